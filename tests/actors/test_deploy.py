"""Robots that act by a sequence model drive by the house's physics, each as if it were alone."""

import numpy as np
import pytest
import torch

from actors.behaviours.deploy import deploy
from actors.behaviours.ride import Sense
from envs.api import Episodes, Field
from envs.navigation import load, odometry, simulate
from learner.behaviours.demonstrations import SENSED, Sequences
from learner.models.sequence import behaviour_transformer
from learner.models.sequence.behaviour_config import BehaviourConfig
from learner.models.sequence.behaviour_transformer import BehaviourModel, Demonstrations, Scales
from learner.models.sequence.choice import Choice
from learner.store.episodes import EpisodeStore, EpisodeWriter, Layout, Steps
from llm_service.errors import UsageError

HOUSE = load()
CENTRES = tuple(np.array([-1, 1, 2.5, 4], np.float32) for _ in range(2))
VOCABULARY = 30


def build(layout="merged", **config):
    """A model whose actions depend much on everything."""
    torch.manual_seed(0)
    shape = {"width": 16, "layers": 2, "heads": 2, "layout": layout, "device": "cpu"} | config
    model = BehaviourModel(BehaviourConfig(**shape), VOCABULARY, (9, 40), CENTRES)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3)
    return model


def prompts(n=5):
    random = np.random.default_rng(3)
    return {
        "tokens": [random.integers(0, VOCABULARY, random.integers(1, 10)) for _ in range(n)],
        "target": random.uniform(0, 600, (n, 2)).astype(np.float32),
        "start": np.stack([[60, 450, angle] for angle in np.linspace(-1, 1, n)]).astype(np.float32),
    }


def recomputed(model, asked, prompt, found, stride):
    """What a model chooses that is shown an episode as a whole: actions of its steps [T, 2], by argmax."""
    action = found["action"][prompt, 0]
    windows = np.arange(0, len(action), stride)
    still = np.zeros((1, 2), np.float32)
    sensed = simulate(HOUSE, asked["start"][prompt], np.concatenate([still, action])[None])["obs"][0]
    shown = Demonstrations(
        tokens=asked["tokens"][prompt],
        texts=[len(asked["tokens"][prompt])],
        target=asked["target"][prompt, None],
        sensors=sensed[windows],
        actions=action[windows],
        steps=[len(windows)],
    )
    with torch.no_grad():
        return model.choose(model(shown), Choice("argmax"), np.zeros((len(windows), 2)))


@pytest.mark.parametrize("layout", ["merged", "separate"])
@pytest.mark.parametrize("stride", [1, 4])
def test_robots_do_what_the_model_would_choose_if_it_saw_all_of_the_past(layout, stride):
    model, asked = build(layout), prompts()
    found = deploy(model, HOUSE, **asked, length=30, stride=stride, strategy="argmax")
    assert (found["pose"].shape, found["action"].shape) == ((5, 1, 30, 3), (5, 1, 30, 2))
    for prompt in range(5):
        chosen = recomputed(model, asked, prompt, found, stride).clip(-4, 4).repeat(stride, 0)[:30]
        np.testing.assert_allclose(found["action"][prompt, 0], chosen, atol=0.05 / stride + 1e-4)
    parts = found["action"].astype(np.float64) * 10 * stride  # as stored: tenths, or means of as many as the stride
    np.testing.assert_allclose(parts, np.rint(parts), atol=1e-4)
    assert found["action"].std((0, 1, 2)).min() > 0.3


def test_poses_are_those_of_the_simulator_and_the_last_window_may_be_short():
    asked = prompts()
    found = deploy(build(), HOUSE, **asked, trials=3, length=31, stride=8, seed=1)
    for trial in range(3):
        expected = simulate(HOUSE, asked["start"], found["action"][:, trial])["pose"]
        np.testing.assert_array_equal(found["pose"][:, trial], expected)
    windows = found["action"][:, :, :24].reshape(5, 3, 3, 8, 2)
    assert (windows == windows[:, :, :, :1]).all()
    assert np.abs(found["action"]).max() <= 4
    assert np.ptp(found["pose"][..., :2]) > 20


@pytest.mark.parametrize("strategy", ["sample", "argmax", "nucleus"])
def test_batches_change_nothing(strategy):
    model, asked = build(), prompts()
    together = deploy(model, HOUSE, **asked, trials=4, length=24, stride=2, strategy=strategy)
    apart = deploy(model, HOUSE, **asked, trials=4, length=24, stride=2, strategy=strategy, memory_gb=1e-9)
    for name in together:
        np.testing.assert_allclose(together[name], apart[name], atol=2e-3)
    alone = deploy(
        model, HOUSE, asked["tokens"][:1], asked["target"][:1], asked["start"][:1], 2, 24, stride=2, strategy=strategy
    )
    np.testing.assert_allclose(alone["pose"][0], together["pose"][0, :2], atol=2e-3)


def test_trials_are_drawn_apart_by_the_seed_and_are_one_where_nothing_is_drawn():
    model, asked = build(), prompts(2)
    runs = {seed: deploy(model, HOUSE, **asked, trials=3, length=20, stride=2, seed=seed)["action"] for seed in (0, 1)}
    again = deploy(model, HOUSE, **asked, trials=3, length=20, stride=2, seed=0)["action"]
    np.testing.assert_array_equal(runs[0], again)
    assert len({row.tobytes() for row in np.concatenate([runs[0], runs[1]]).reshape(12, -1)}) == 12
    argmax = deploy(model, HOUSE, **asked, trials=3, length=20, stride=2, strategy="argmax")["action"]
    assert (argmax == argmax[:, :1]).all()
    cold = deploy(model, HOUSE, **asked, trials=1, length=20, stride=2, temperature=1e-6)["action"]
    np.testing.assert_allclose(cold, argmax[:, :1], atol=1e-4)


def test_prompts_of_one_noise_differ_by_what_is_asked_only():
    model, asked = build(ablate="text"), prompts(4)
    same = {"target": asked["target"][[0] * 4], "start": asked["start"][[0] * 4], "tokens": asked["tokens"]}
    found = deploy(model, HOUSE, **same, trials=3, length=20, stride=2, noise=[5, 5, 6, 6])["action"]
    np.testing.assert_array_equal(found[::2], found[1::2])  # it reads no text
    assert np.abs(found[0] - found[2]).max() > 0.5
    assert np.abs(found[0, 0] - found[0, 1]).max() > 0.5  # trials of one prompt draw anew
    other = deploy(model, HOUSE, **same, trials=3, length=20, stride=2, noise=[6, 6, 5, 5])["action"]
    np.testing.assert_array_equal(found, other[[2, 3, 0, 1]])
    for noise in ([1, 2, 3], [1, 2, 3, -1]):
        with pytest.raises(UsageError, match="noise is a number from 0 for each of 4 texts"):
            deploy(model, HOUSE, **same, length=4, stride=2, noise=noise)


@pytest.mark.parametrize("ablate", ["text", "target", "both"])
def test_a_blind_model_drives_alike_whatever_it_is_told(ablate):
    model, asked = build(ablate=ablate), prompts(3)
    other = dict(asked)
    if ablate in ("text", "both"):
        other["tokens"] = [(text + 5)[: len(text) // 2 + 1] % VOCABULARY for text in asked["tokens"]]
    if ablate in ("target", "both"):
        other["target"] = 600 - asked["target"]
    runs = [deploy(model, HOUSE, **told, length=20, stride=2, strategy="argmax")["pose"] for told in (asked, other)]
    np.testing.assert_allclose(*runs, atol=1e-3)


def test_guidance_says_how_much_a_text_counts():
    """0: as without a text; 1: as ever; more: farther from what would be done without."""
    model, asked = build(), prompts(3)
    with torch.no_grad():
        for parameter in model.offsets.parameters():
            parameter.zero_()  # they are those with a text in any case
    how = {"length": 20, "stride": 2, "strategy": "argmax"}
    silent = asked | {"tokens": [text[[0, -1]] for text in asked["tokens"]]}
    plain, without = (deploy(model, HOUSE, **told, **how)["action"] for told in (asked, silent))
    none, once, thrice = (deploy(model, HOUSE, **asked, **how, guidance=w)["action"] for w in (0.0, 1.0, 3.0))
    np.testing.assert_array_equal(none, without)
    np.testing.assert_array_equal(once, plain)
    assert np.abs(plain - without).max() > 0.5
    assert np.abs(thrice - plain).max() > 0.5
    deaf = build(ablate="text")
    one, other = (deploy(deaf, HOUSE, **asked, **how, guidance=w)["action"] for w in (1.0, 3.0))
    np.testing.assert_array_equal(one, other)


def test_a_model_with_odometry_drives_with_it_and_not_without():
    torch.manual_seed(0)
    kinds = Scales(sensors=("laser",) * 3 + ("bumper",) * 2 + odometry.SENSED + odometry.GUIDED)
    config = BehaviourConfig(width=16, layers=1, heads=2, device="cpu")
    reckoning, asked = BehaviourModel(config, VOCABULARY, (9, 40), CENTRES, kinds), prompts(2)
    with torch.no_grad():
        for parameter in reckoning.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3)
    how = {"length": 6, "stride": 2, "trials": 2, "strategy": "argmax"}
    found = [deploy(reckoning, HOUSE, **asked, **how, sense=Sense(particles=n)) for n in (0, 8)]
    assert np.abs(found[0]["action"] - found[1]["action"]).max() > 1e-4
    with pytest.raises(UsageError, match="13 sensor values: 5 without odometry"):
        deploy(reckoning, HOUSE, **asked, **how)
    with pytest.raises(UsageError, match="5 sensor values: 5 without odometry"):
        deploy(build(), HOUSE, **asked, **how, sense=Sense())


@pytest.mark.parametrize("layout", ["merged", "separate"])
def test_a_target_that_is_not_told_is_acted_on_as_it_was_learned(tmp_path, layout):
    """Prompts with and without a target in one batch: each does what the model chooses for the same episode in a store,
    read as for fitting, where the target is told or forgotten."""
    torch.manual_seed(0)
    kinds = Scales(sensors=("laser",) * 3 + ("bumper",) * 2 + odometry.SENSED + odometry.GUIDED)
    config = BehaviourConfig(width=16, layers=1, heads=2, device="cpu", layout=layout, waves=2)
    model, asked, stride = BehaviourModel(config, VOCABULARY, (9, 40), CENTRES, kinds), prompts(3), 4
    ends = asked["target"]
    how = {"length": 40, "stride": stride, "strategy": "argmax", "sense": Sense()}
    found = deploy(model, HOUSE, **(asked | {"target": np.where([[True], [False], [True]], ends, np.nan)}), **how)
    sensed = [simulate(HOUSE, asked["start"][p], action)["obs"] for p, action in enumerate(found["action"])]
    first = simulate(HOUSE, asked["start"], np.zeros((3, 1, 2), np.float32))["obs"]
    before = np.concatenate([first, np.concatenate(sensed)[:, :-1]], 1).reshape(120, 5)
    rows = Episodes(**{n: np.zeros(3, column.dtype) for n, column in vars(Episodes.empty()).items()})
    rows.length[:] = 40
    steps = Steps({SENSED: before}, found["action"].reshape(120, 2), np.zeros(120, np.float32))
    EpisodeWriter(tmp_path, Layout({SENSED: Field("vector", (5,))}, (), (2,)), {}).write("a", rows, steps, {})
    store, texts = EpisodeStore(tmp_path), [[text] for text in asked["tokens"]]
    data = Sequences(store, np.arange(3), texts, ends, stride, HOUSE.start)
    for prompt, forget in enumerate((0.0, 1.0, 0.0)):
        shown = data.read(np.array([prompt]), np.zeros(1), forget=forget)
        with torch.no_grad():
            chosen = model.choose(model(shown), Choice("argmax"), np.zeros((10, 2))).clip(-4, 4)
        np.testing.assert_allclose(found["action"][prompt, 0, ::stride], chosen, atol=0.05 / stride + 1e-4)
    told = deploy(model, HOUSE, **asked, **how)
    np.testing.assert_allclose(found["action"][0], told["action"][0], atol=1e-3)
    assert np.abs(found["action"][1] - told["action"][1]).max() > 0.1


def test_half_the_precision_drives(monkeypatch):
    monkeypatch.setattr(behaviour_transformer, "has_bfloat16", lambda: True)  # slow where the processor has none
    found = deploy(build(precision="bfloat16"), HOUSE, **prompts(), trials=2, length=12, stride=3)
    assert np.isfinite(found["pose"]).all()
    assert found["pose"].dtype == np.float32


def test_senseless_prompts_are_one_sentence():
    model, good = build(), prompts(2)
    bad = [
        ({"tokens": good["tokens"][:1]}, "each of 1 texts needs"),
        ({"tokens": [good["tokens"][0], np.arange(10)]}, "text of prompt 1 has 10 tokens: the model reads 1 to 9"),
        ({"tokens": [good["tokens"][0], np.array([30])]}, "prompt 1 contains a token that is not in 0 to 29"),
        ({"target": np.array([[0, 0], [np.nan, 0]], np.float32)}, "target of prompt 1"),
        ({"target": np.array([[np.inf, 0], [0, 0]], np.float32)}, "target of prompt 0"),
        ({"length": 81}, "81 steps with a stride of 2"),
        ({"trials": 0}, "at least 1"),
        ({"memory_gb": 0.0}, "memory_gb"),
        ({"temperature": 0.0}, "temperature"),
        ({"mass": 1.5}, "mass"),
    ]
    for change, said in bad:
        with pytest.raises(UsageError, match=said):
            deploy(model, HOUSE, **({"stride": 2, "length": 4} | good | change))
    with pytest.raises(ValueError, match="in a wall"):
        deploy(model, HOUSE, **(good | {"start": np.zeros((2, 3), np.float32) + 3}), length=4, stride=2)
    with torch.no_grad():
        model.offsets[2].bias.fill_(float("nan"))
    with pytest.raises(UsageError, match="weights are damaged"):
        deploy(model, HOUSE, **good, length=4, stride=2)
