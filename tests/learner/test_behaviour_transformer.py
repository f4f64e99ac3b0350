"""The model that acts from a text, a target and its history: what it sees, what it is taught, what it chooses."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.config.tree import compose
from learner.group import get_weights
from learner.models.sequence import behaviour_transformer
from learner.models.sequence.behaviour_config import BehaviourConfig
from learner.models.sequence.behaviour_transformer import BehaviourModel, Demonstrations, Scales
from learner.models.sequence.choice import Choice

CENTRES = (np.array([-2, 0, 1, 3], np.float32), np.array([-1, 0.5, 2], np.float32))
VOCABULARY = 20
SHAPES = [
    {"layout": layout, "dimensions": dimensions, "ablate": ablate}
    for layout in ("merged", "separate")
    for dimensions, ablate in (("independent", "none"), ("conditional", "none"), ("conditional", "both"))
] + [{"layout": "separate", "ablate": "target"}, {"layout": "merged", "ablate": "text"}]
SHAPES += [{"layout": "merged", "waves": 3}, {"layout": "merged", "hidden": 2, "offset_width": 24, "times": 20}]


def build(seed=0, large=True, **config):
    """A small model; `large`: with weights for which every input matters much."""
    torch.manual_seed(seed)
    config = BehaviourConfig(**{"width": 16, "layers": 2, "heads": 2, "dropout": 0.0, "device": "cpu"} | config)
    model = BehaviourModel(config, VOCABULARY, (8, 12), CENTRES).eval()
    for parameter in model.parameters() if large else ():
        parameter.data = torch.randn_like(parameter) * 0.5
    return model


def shown(steps=(4, 1, 6), texts=(3, 8, 1), seed=0):
    random = np.random.default_rng(seed)
    n, b = sum(steps), len(steps)
    sensors = np.concatenate([random.uniform(0, 100, (n, 3)), random.integers(0, 2, (n, 2))], 1)
    return Demonstrations(
        tokens=random.integers(0, VOCABULARY, sum(texts)),
        texts=list(texts),
        target=random.uniform(0, 600, (b, 2)).astype(np.float32),
        sensors=sensors.astype(np.float32),
        actions=random.uniform(-4, 4, (n, 2)).astype(np.float32),
        steps=list(steps),
    )


def one(demonstrations, row):
    """Episode `row` alone."""
    text, step = (np.cumsum([0, *n]) for n in (demonstrations.texts, demonstrations.steps))
    own = slice(step[row], step[row + 1])
    return Demonstrations(
        demonstrations.tokens[text[row] : text[row + 1]],
        [demonstrations.texts[row]],
        demonstrations.target[row : row + 1],
        demonstrations.sensors[own],
        demonstrations.actions[own],
        [demonstrations.steps[row]],
    )


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "-".join(map(str, shape.values())))
def test_acting_sees_what_learning_saw(shape):
    """Rows of different texts, step by step with a cache, choose what a pass over everything chooses."""
    model, choice = build(**shape), Choice("argmax")
    told = shown(steps=(5, 5, 5), texts=(3, 8, 1))
    features = model(told)
    expected = model.choose(features, choice, np.zeros((15, 2))).reshape(3, 5, 2)
    for row in range(3):
        alone = model(one(told, row))
        torch.testing.assert_close(alone, features[5 * row : 5 * row + 5], atol=1e-4, rtol=1e-4)
    sensors, actions = told.sensors.reshape(3, 5, 5), told.actions.reshape(3, 5, 2)
    cache = model.begin(np.split(told.tokens, [3, 11]))
    cache.spread(torch.arange(3), 5 * model.tokens_per_step)
    code = model.target_code(told.target)
    for step in range(5):
        previous = None if step == 0 else actions[:, step - 1]
        found = model.act(cache, step, code, sensors[:, step], previous, choice, np.zeros((3, 2)))
        np.testing.assert_allclose(found, expected[:, step], atol=1e-4)
    assert expected.std((0, 1)).min() > 0.1


@pytest.mark.parametrize("layout", ["merged", "separate"])
def test_an_action_is_predicted_from_what_is_known_before_it(layout):
    model, told, at = build(layout=layout), shown(steps=(6,), texts=(4,)), 3
    before = model(told)[at]

    def changed(field, row):
        array = getattr(told, field).copy()
        array[row] += 1
        return not torch.equal(model(replace(told, **{field: array}))[at], before)

    assert [changed("sensors", row) for row in range(6)] == [True] * 4 + [False] * 2
    assert [changed("actions", row) for row in range(6)] == [True] * 3 + [False] * 3
    assert changed("target", 0)


def test_targets_are_not_rounded():
    model, told = build(), shown()
    nudged = replace(told, target=told.target + np.float32(0.5))  # a twelve-hundredth of the world
    assert (model(told) - model(nudged)).abs().max() > 1e-5


@pytest.mark.parametrize("layout", ["merged", "separate"])
@pytest.mark.parametrize("ablate", ["none", "text", "target", "both"])
def test_what_is_ablated_changes_nothing_whatever_it_says(layout, ablate):
    model, told = build(layout=layout, ablate=ablate), shown()
    others = {
        "text": replace(told, tokens=(told.tokens + 7) % VOCABULARY),
        "target": replace(told, target=600 - told.target),
    }
    for name, other in others.items():
        blind = ablate in (name, "both")
        assert torch.equal(model(told), model(other)) == blind, name
    assert torch.equal(model(told), model(replace(told, tokens=told.tokens[:4], texts=[1, 2, 1]))) == (
        ablate in ("text", "both")
    )
    model.zero_grad()
    model.loss(told)["loss"].backward()
    for name, parameter in (("text", model.words.weight), ("target", model.encode_target[0].weight)):
        silent = parameter.grad is None or not parameter.grad.any()
        assert silent == (ablate in (name, "both")), name


def reference(model, told, gamma, weight):
    """The loss by its formulas, in float64."""
    features = model(told).detach()
    truth = np.stack([np.abs(told.actions[:, d, None] - c).argmin(1) for d, c in enumerate(CENTRES)], 1)
    cluster, given_first = 0.0, features
    if model.config.dimensions == "conditional":
        given_first = features + model.given[0].weight[truth[:, 0]]
    right = np.ones(len(truth), bool)
    for d, (head, seen) in enumerate(zip(model.heads, (features, given_first), strict=True)):
        p = head(seen).double().softmax(-1).detach().numpy()
        own = p[np.arange(len(p)), truth[:, d]]
        cluster += (-((1 - own) ** gamma) * np.log(own)).sum() / 2
        right &= p.argmax(1) == truth[:, d]
    offsets = model.offsets(features).detach().numpy().reshape(-1, 4, 3, 2)
    centre = np.stack([c[truth[:, d]] for d, c in enumerate(CENTRES)], 1)
    error = centre + offsets[np.arange(len(truth)), truth[:, 0], truth[:, 1]] - told.actions
    offset = (error.astype(np.float64) ** 2).mean(1).sum()
    return {"loss": cluster + weight * offset, "cluster": cluster, "offset": offset, "hits": right.sum()}


@pytest.mark.parametrize("dimensions", ["independent", "conditional"])
@pytest.mark.parametrize(("gamma", "weight"), [(2.0, 1.0), (0.0, 0.3)])
def test_the_loss_is_that_of_the_formulas(dimensions, gamma, weight):
    model = build(dimensions=dimensions, gamma=gamma, offset_weight=weight, large=False)
    told = shown(steps=(11, 1, 12))
    found = model.loss(told)
    for name, value in reference(model, told, gamma, weight).items():
        assert found[name].item() == pytest.approx(value, rel=1e-5), name


def test_what_was_wished_is_learned_and_what_was_executed_is_history():
    model, given = build(), shown()
    wishes = given.actions[::-1].copy()
    with torch.no_grad():
        told, features = model.loss(replace(given, wishes=wishes)), model(given)
        assert torch.equal(model(replace(given, wishes=wishes)), features)
        truth = model.nearest(torch.from_numpy(wishes))
        offset = (model._action(features, truth) - torch.from_numpy(wishes)).square().mean(-1).sum()
    assert told["offset"].item() == pytest.approx(offset.item(), rel=1e-5)
    assert told["loss"].item() != pytest.approx(model.loss(given)["loss"].item(), rel=1e-3)


def test_who_foresees_is_measured_by_the_places_ahead():
    model, given = build(foresight=0.5), shown()
    ahead = np.random.default_rng(1).uniform(0, 600, (len(given.sensors), 6)).astype(np.float32)
    told = model.loss(replace(given, ahead=ahead))
    wanted = torch.from_numpy(ahead) / 300 - 1
    missed = (model.foresee(model(given)) - wanted).abs().mean(1).sum()
    assert told["ahead"].item() == pytest.approx(missed.item(), rel=1e-5)
    action = told["cluster"] + told["offset"]
    assert told["loss"].item() == pytest.approx((action + 0.5 * missed).item(), rel=1e-5)
    assert model.loss(given)["ahead"].isnan()  # nobody knows: only actions are learned
    assert model.loss(given)["loss"].isfinite()
    blind = build()
    assert blind.loss(replace(given, ahead=ahead))["ahead"].isnan()


def test_the_offsets_of_every_pair_of_clusters_learn_and_of_no_other():
    model, told = build(), shown(steps=(12,), texts=(2,))
    pairs = np.array([[a, b] for a in CENTRES[0] for b in CENTRES[1]], np.float32)
    for actions, expected in ((pairs + 0.1, range(12)), (np.tile(pairs[5], (12, 1)) + 0.1, [5])):
        model.zero_grad()
        model.loss(replace(told, actions=actions.astype(np.float32)))["offset"].backward()
        learned = model.offsets[2].bias.grad.reshape(12, 2).abs() > 0
        assert (learned == torch.tensor([[row in expected] for row in range(12)])).all()


@pytest.mark.parametrize("dimensions", ["independent", "conditional"])
def test_what_is_drawn_has_the_distribution_of_the_logits(dimensions):
    model, told, n = build(dimensions=dimensions), shown(steps=(1,), texts=(2,)), 40_000
    features = model(told).detach() * 0.4
    first = model.heads[0](features).softmax(-1)[0].detach().numpy()
    seen = features if dimensions == "independent" else features + model.given[0].weight
    second = model.heads[1](seen).softmax(-1).detach().numpy()  # [1 or 4, 3]
    expected = first[:, None] * second
    clusters = []
    model._action, act = lambda features, chosen: clusters.append(chosen) or act(features, chosen), model._action
    model.choose(features.expand(n, -1), Choice(), np.random.default_rng(0).random((n, 2)))
    found = np.zeros((4, 3))
    np.add.at(found, tuple(clusters[0].numpy().T), 1 / n)
    assert np.abs(found - expected).max() < 4 * math.sqrt(0.25 / n)
    assert (second.std(0).max() > 0.05) == (dimensions == "conditional")
    assert np.sort(expected.ravel())[-2] > 0.1  # several are probable


@settings(max_examples=60, deadline=None)
@given(
    logits=st.lists(st.floats(-4, 4), min_size=1, max_size=6),
    mass=st.floats(0.05, 1.0),
    temperature=st.floats(0.2, 3.0),
    uniform=st.floats(0, 1, exclude_max=True),
)
def test_a_choice_is_that_of_its_definition(logits, mass, temperature, uniform):
    scores, drawn = torch.tensor([logits], dtype=torch.float64), torch.tensor([uniform], dtype=torch.float64)
    assert int(Choice("argmax", temperature, mass)(scores, drawn)) == int(np.argmax(logits))
    p = np.exp(np.array(logits) / temperature)
    p /= p.sum()
    order = np.argsort(-p, kind="stable")
    for strategy in ("sample", "nucleus"):
        kept, total = [], 0.0
        for cluster in order:  # the fewest that have the mass
            if strategy == "sample" or total < mass:
                kept.append(cluster)
                total += p[cluster]
        left, chosen = uniform * p[kept].sum(), None
        for cluster in kept:
            chosen = cluster
            left -= p[cluster]
            if left < 0:
                break
        near = min(abs(uniform * p[kept].sum() - edge) for edge in np.cumsum(p[kept])) < 1e-9
        edge = any(abs(mass - edge) < 1e-9 for edge in np.cumsum(p[order]))
        found = int(Choice(strategy, temperature, mass)(scores, drawn))
        assert found == chosen or near or edge
        assert found in kept or edge


def test_weights_say_what_a_model_is_and_make_it_again():
    model, told = build(), shown()
    weights = get_weights(model)
    again = BehaviourModel.of(model.config, weights).eval()
    assert torch.equal(again(told), model(told))
    assert (again.vocabulary, again.longest, again.clusters) == (VOCABULARY, (8, 12), [4, 3])
    np.testing.assert_array_equal(again.centres, np.concatenate(CENTRES))
    with pytest.raises(ValueError, match="do not fit"):
        BehaviourModel.of(BehaviourConfig(width=16, layers=3, heads=2), weights)
    with pytest.raises(ValueError, match="no weights of a behaviour model"):
        BehaviourModel.of(model.config, {"a": np.zeros(3)})


def test_heads_that_do_not_divide_the_width_are_a_wrong_configuration():
    with pytest.raises(ValueError, match="128 cannot be divided among 3 heads"):
        BehaviourConfig(heads=3)


@pytest.mark.parametrize("waves", [0, 2])
def test_inputs_are_scaled_to_one(waves):
    seen = {}
    config = BehaviourConfig(width=16, layers=1, heads=2, device="cpu", waves=waves)
    model = BehaviourModel(config, VOCABULARY, (8, 12), CENTRES, Scales(world=200.0))
    model.encode_sensors.register_forward_pre_hook(lambda _, given: seen.update(sensors=given[0]))
    model.encode_target.register_forward_pre_hook(lambda _, given: seen.update(target=given[0]))
    told = shown(steps=(2,), texts=(1,))
    sensors = np.array([[100, 0, 50, 1, 0], [0, 0, 0, 0, 1]], np.float32)
    model(replace(told, sensors=sensors, target=np.array([[0, 150]], np.float32)))
    assert seen["sensors"][:, :5].tolist() == [[1, -1, 0, 1, -1], [-1, -1, -1, -1, 1]]
    assert seen["target"][:, :2].tolist() == [[-1, 0.5]]
    # Of both numbers, -1 and 1/2 half turns: their sines, their cosines, and those of twice the angle.
    angles = [0, 1, -1, 0, 0, 0, 1, -1]
    np.testing.assert_allclose(seen["target"][0, 2:], angles[: 4 * waves], atol=1e-6)
    assert seen["sensors"].shape == (2, 5 * (1 + 2 * waves))


def test_half_the_precision_is_near_and_is_refused_where_the_processor_has_it_not(monkeypatch):
    exact, told = build(), shown()
    monkeypatch.setattr(behaviour_transformer, "has_bfloat16", lambda: True)  # slow where the processor has none
    half = build(precision="bfloat16")
    assert build(precision="auto").in_half
    assert half(told).dtype == torch.float32
    difference = (half(told) - exact(told)).abs().mean() / exact(told).abs().mean()
    assert 1e-5 < difference < 0.1
    monkeypatch.setattr(behaviour_transformer, "has_bfloat16", lambda: False)
    assert torch.equal(build(precision="auto")(told), exact(told))
    with pytest.raises(ValueError, match="choose float32"):
        build(precision="bfloat16")


def test_the_published_settings_have_as_many_parameters_as_the_published_model():
    """8,381,312 in the released configuration, with its vocabulary of 1,502 and texts of at most 226 tokens."""
    published = compose(["experiment=lgqd_paper"]).method.sequence.model
    config = published.model_copy(update={"device": "cpu", "precision": "float32"})
    model = BehaviourModel(config, 1502, (226, 400), [np.zeros(4, np.float32)] * 2)
    assert sum(parameter.numel() for parameter in model.parameters()) == 8_381_312
    again = BehaviourModel.of(config, get_weights(model))
    assert sum(parameter.numel() for parameter in again.parameters()) == 8_381_312
