"""Policies: stepping and unrolling agree, texts are read, networks fit their worlds."""

import numpy as np
import pytest
import torch

import envs
from actors import sample
from envs.api import EnvSpec, Field
from learner.group import build_policy, get_weights, set_weights
from learner.models import PolicyConfig, networks
from learner.models.q import Dueling, project
from llm_service import embed_one


def observations(spec, length, n, texts, seed=0):
    random = np.random.default_rng(seed)
    made = {}
    for name, field in spec.fields.items():
        shape = (length, n, *field.shape)
        high = {"grid": 3, "category": max(field.size, 1), "text": texts, "vector": 1}[field.kind]
        made[name] = torch.from_numpy(
            random.normal(size=shape).astype(np.float32)
            if field.kind == "vector"
            else random.integers(high, size=shape).astype(field.dtype)
        )
    return made


@pytest.mark.parametrize("network", networks.names())
@pytest.mark.parametrize(
    ("memory", "head"), [("none", "actor_critic"), ("gru", "actor_critic"), ("none", "dueling"), ("gru", "dueling")]
)
@pytest.mark.parametrize("env", ["toy/Line", "babyai/GoToLocal", "gym/CartPole-v1"])
def test_unroll_equals_step_by_step(network, memory, head, env):
    spec = envs.spec(env)
    policy = build_policy(PolicyConfig(network=network, memory=memory, head=head, hidden=16), spec, 0)
    obs = observations(spec, 6, 3, texts=2)
    obs = policy.inputs(obs)
    codes = policy.codes(policy.prepare(["go left", "go right"]))
    done = torch.zeros(6, 3, dtype=torch.bool)
    done[2, 1] = done[4, 0] = True
    state = policy.initial_state(3)
    with torch.no_grad():
        logits, values, _ = policy.unroll(obs, codes, state, done)
        for t in range(6):
            if state is not None:
                state = state * (~done[t]).unsqueeze(-1)
            step_logits, step_values, state = policy.step({k: v[t] for k, v in obs.items()}, codes, state)
            torch.testing.assert_close(step_logits, logits[t], rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(step_values, values[t], rtol=1e-4, atol=1e-5)


def plain_mlp(network, obs, codes):
    """Two bodies, one after the other, as in the paper."""
    kinds = {"grid": lambda x, f: x.flatten(1) / 10, "vector": lambda x, f: x, "text": lambda x, f: codes[x]}
    kinds["category"] = lambda x, f: torch.nn.functional.one_hot(x, f.size).float()
    ordered = sorted(obs, key=lambda name: network.spec.fields[name].kind == "text")  # texts last
    flat = torch.cat([kinds[network.spec.fields[n].kind](obs[n], network.spec.fields[n]) for n in ordered], -1)
    features = []
    for body, weight in enumerate(network.first_weight.split(network.width, 1)):
        inner = torch.tanh(flat @ weight + network.first_bias.split(network.width)[body])
        features.append(torch.tanh(inner @ network.second_weight[body] + network.second_bias[body, 0]))
    return features


def plain_film(network, obs, codes):
    """Every cell on its own."""
    objects, colours, states = network.symbols
    said = torch.cat([codes[obs[name]] for name in network.texts], -1)
    o, c, s = (part.flatten(1) for part in obs["image"].long().unbind(-1))
    meaning = network.meaning(said).unflatten(1, (24, -1))
    each = torch.arange(len(said))[:, None]
    cells = objects[o] + colours[c] + states[s]
    context = torch.relu(network.context(torch.cat([said, cells[:, 3 * 7 + 6]], -1)))
    scale, shift = network.film(context).unsqueeze(1).chunk(2, -1)
    cells = torch.relu(cells + meaning[each, o] + meaning[each, 16 + c])
    cells = torch.relu(network.mix(cells) * (1 + scale) + shift)
    rest = torch.cat([context, torch.nn.functional.one_hot(obs["direction"], 4).float()], -1) @ network.out_rest.T
    features = torch.relu(rest + cells.flatten(1) @ network.out_cells.T + network.out_bias)
    return [torch.relu(network.last(features))] * 2


@pytest.mark.parametrize("captions", [False, True])
@pytest.mark.parametrize(("name", "plain"), [("mlp", plain_mlp), ("film", plain_film)])
def test_networks_compute_what_their_plain_forms_compute_and_so_do_their_gradients(name, plain, captions):
    spec = envs.spec("babyai/GoToLocal", captions=captions)
    policy = build_policy(PolicyConfig(network=name, hidden=16), spec, 0)
    policy.network.spec = spec
    obs = {k: v[0] for k, v in observations(spec, 1, 40, texts=5).items()}
    random = torch.Generator().manual_seed(0)
    codes = torch.randn(5, 16, generator=random, requires_grad=True)
    towards = torch.randn(2, 40, 16, generator=random)
    found = []
    for features in (policy.network(policy.inputs(obs), codes), plain(policy.network, obs, codes)):
        policy.zero_grad()
        codes.grad = None
        sum((f * to).sum() for f, to in zip(features, towards, strict=True)).backward()
        gradients = {n: p.grad.clone() for n, p in policy.network.named_parameters()}
        found.append((*(f.detach() for f in features), codes.grad.clone(), *gradients.values()))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("symbol", [(16, 0, 0), (0, 8, 0), (5, 0, 4)])
def test_film_refuses_symbols_that_it_has_no_room_for(symbol):
    policy = build_policy(PolicyConfig(hidden=16), envs.spec("babyai/GoToLocal"), 0)
    obs = {k: v[0] for k, v in observations(envs.spec("babyai/GoToLocal"), 1, 2, texts=1).items()}
    obs["image"][0, 0, 0] = torch.tensor(symbol, dtype=torch.uint8)
    with pytest.raises(ValueError, match="beyond"):
        policy.inputs(obs)


def test_bodies_begin_as_linear_layers_do():
    """The parameters are laid out for speed; their distribution is the layers' own."""
    network = build_policy(PolicyConfig(network="mlp", hidden=64), envs.spec("babyai/GoToLocal"), 0).network
    for value, inputs in ((network.first_weight, len(network.first_weight)), (network.second_weight, 64)):
        assert value.abs().max() <= inputs**-0.5
        assert value.std().item() == pytest.approx((3 * inputs) ** -0.5, rel=0.05)


@pytest.mark.parametrize("text", ["learned", "minilm"])
def test_the_mission_reaches_the_actions(text):
    spec = envs.spec("babyai/GoToLocal")
    policy = build_policy(PolicyConfig(text=text, hidden=16), spec, 0)
    torch.nn.init.normal_(policy.actor.weight)
    obs = policy.inputs({k: v[0] for k, v in observations(spec, 1, 1, texts=1).items()})
    with torch.no_grad():
        one, other = (
            policy.step(obs, policy.codes(policy.prepare([mission])), None)[0]
            for mission in ("go to the red ball", "go to the blue key")
        )
    assert not torch.allclose(one, other)


def test_padding_does_not_change_a_code():
    policy = build_policy(PolicyConfig(hidden=16), envs.spec("babyai/GoToLocal"), 0)
    with torch.no_grad():
        alone = policy.codes(policy.prepare(["go to a red ball"]))
        padded = policy.codes(policy.prepare(["go to a red ball", "put the red ball next to the box on your left"]))
    torch.testing.assert_close(alone[0], padded[0])


def test_text_only_policy_reads_captions():
    spec = envs.spec("babyai/GoToLocal", captions=True)
    policy = build_policy(PolicyConfig(reads=["mission", "caption"], hidden=16), spec, 0)
    assert list(policy.fields) == ["mission", "caption"]
    with pytest.raises(ValueError, match=r"env\.captions=true"):
        build_policy(PolicyConfig(reads=["caption"]), envs.spec("babyai/GoToLocal"), 0)


def test_weights_round_trip_and_refuse_another_shape():
    spec = envs.spec("toy/Line")
    one, two = (build_policy(PolicyConfig(hidden=16), spec, seed) for seed in (0, 1))
    set_weights(two, get_weights(one))
    assert all(np.array_equal(a, b) for a, b in zip(get_weights(one).values(), get_weights(two).values(), strict=True))
    with pytest.raises(ValueError, match="do not fit"):
        set_weights(build_policy(PolicyConfig(hidden=8), spec, 0), get_weights(one))


def test_the_weights_of_actor_and_critic_are_the_parameters_and_nothing_else():
    for network in networks.names():
        policy = build_policy(PolicyConfig(network=network, memory="gru", hidden=16), envs.spec("babyai/GoToLocal"), 0)
        assert list(get_weights(policy)) == [name for name, _ in policy.named_parameters()]


def test_epsilon_travels_with_the_weights_of_action_values():
    config, spec = PolicyConfig(hidden=16, head="dueling", atoms=5), envs.spec("toy/Line")
    one, two = (build_policy(config, spec, seed) for seed in (0, 1))
    one.q.epsilon.fill_(0.25)
    weights = get_weights(one)
    assert set(weights) - {name for name, _ in one.named_parameters()} == {"q.epsilon"}
    set_weights(two, weights)
    assert two.q.epsilon.item() == 0.25
    with pytest.raises(ValueError, match="do not fit"):
        set_weights(two, get_weights(build_policy(PolicyConfig(hidden=16), spec, 0)))


@pytest.mark.parametrize("atoms", [1, 7])
def test_the_streams_of_a_dueling_head_are_value_and_advantage(atoms):
    head = Dueling(6, 4, 8, atoms, -1.0, 3.0)
    actor, critic = torch.randn(2, 10, 6, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        q, value, advantage = head(actor, critic), head.value(critic), head.advantage(actor).view(10, 4, atoms)
        assert q.shape == (10, 4, atoms)
        torch.testing.assert_close(q.mean(1), value)
        torch.testing.assert_close(q - q[:, :1], advantage - advantage[:, :1])
        support = np.linspace(-1, 3, atoms) if atoms > 1 else [1.0]
        shares = q.softmax(-1) if atoms > 1 else q
        expected = sum(shares[..., k] * float(at) for k, at in enumerate(support))
        torch.testing.assert_close(head.mean(q), expected)


@pytest.mark.parametrize("epsilon", [0.0, 0.01, 0.3, 1.0])
def test_behaviour_is_epsilon_greedy_and_always_finite(epsilon):
    head = Dueling(6, 3, 8)
    head.epsilon.fill_(epsilon)
    values = torch.tensor([[0.1, 0.5, -2.0], [3.0, 3.0, 3.0], [-1.0, -3.0, 7e5]])
    log_probs, largest = head.behaviour(values)
    assert torch.isfinite(log_probs).all()
    assert largest.tolist() == [0.5, 3.0, 7e5]
    assert log_probs.argmax(-1).tolist() == [1, 0, 2]  # whatever epsilon is
    epsilon = min(epsilon, 0.999)
    expected = np.full((3, 3), epsilon / 3)
    expected[[0, 1, 2], [1, 0, 2]] += 1 - epsilon
    np.testing.assert_allclose(log_probs.exp(), expected, atol=1e-6)
    random = np.random.default_rng(0).random((3, 20_000)).astype(np.float32)
    for row, uniform in zip(log_probs, random, strict=True):
        actions, told = sample(row.expand(20_000, 3), uniform)
        frequency = np.bincount(actions, minlength=3) / 20_000
        np.testing.assert_allclose(frequency, row.exp(), atol=0.015)
        np.testing.assert_allclose(told, row.numpy()[actions], atol=1e-5)


def test_a_distribution_is_projected_as_by_hand():
    random = np.random.default_rng(0)
    support = np.linspace(-2.0, 4.0, 13)
    probability = random.dirichlet(np.ones(13), 50)
    reward, discount = random.normal(size=50) * 3, random.choice([0.0, 0.5, 0.99], 50)
    expected = np.zeros((50, 13))
    for b in range(50):
        for p, atom in zip(probability[b], support, strict=True):
            place = (min(max(reward[b] + discount[b] * atom, -2.0), 4.0) + 2.0) / 0.5
            below = min(int(place), 11)
            expected[b, below] += p * (below + 1 - place)
            expected[b, below + 1] += p * (place - below)
    found = project(*(torch.from_numpy(x) for x in (probability, reward, discount, support)))
    np.testing.assert_allclose(found, expected, atol=1e-9)
    np.testing.assert_allclose(found.sum(-1), 1, atol=1e-9)


PICTURES = EnvSpec(
    "test/Pictures",
    {
        "frame": Field("pixels", (64, 64, 3)),
        "body": Field("vector", (4,)),
        "said": Field("text"),
        "goal": Field("text"),
    },
    ("left", "right"),
    words=("go", "left", "right"),
)


def test_the_texts_network_sees_every_field_and_tells_texts_apart():
    policy = build_policy(PolicyConfig(network="texts", hidden=16), PICTURES, 0)
    random = np.random.default_rng(0)
    obs = {
        "frame": torch.from_numpy(random.integers(255, size=(5, 64, 64, 3)).astype(np.uint8)),
        "said": torch.tensor([0, 1, 0, 1, 1]),
        "goal": torch.tensor([1, 1, 0, 0, 1]),
        "body": torch.from_numpy(random.normal(size=(5, 4)).astype(np.float32)),
    }
    codes = policy.codes(policy.prepare(["go left", "go right"]))
    inputs = policy.inputs(obs)
    assert inputs["frame"].dtype == torch.uint8
    features, _ = policy.network(inputs, codes)
    assert features.shape == (5, 16)
    for b in range(5):  # each row as if alone
        alone = policy.network({name: value[b : b + 1] for name, value in inputs.items()}, codes)[0]
        torch.testing.assert_close(alone[0], features[b], rtol=1e-4, atol=1e-5)
    for name in obs:
        other = inputs | {name: 1 - inputs[name] if name in ("said", "goal") else inputs[name].flip(0)}
        assert not torch.allclose(policy.network(other, codes)[0], features, atol=1e-4), name
    swapped = inputs | {"said": inputs["goal"], "goal": inputs["said"]}
    assert not torch.allclose(policy.network(swapped, codes)[0], features, atol=1e-4)
    features.sum().backward()
    assert all(p.grad is not None for p in policy.network.parameters())


@pytest.mark.parametrize("side", [36, 63, 84])
def test_pictures_of_every_size_fit_down_to_the_smallest(side):
    fields = {"frame": Field("pixels", (side, side + 5, 1))}
    policy = build_policy(PolicyConfig(network="texts", hidden=8), EnvSpec("test/P", fields, ("a", "b")), 0)
    frame = torch.zeros(2, side, side + 5, 1, dtype=torch.uint8)
    assert policy.network(policy.inputs({"frame": frame}), policy.codes(None))[0].shape == (2, 8)
    small = EnvSpec("test/P", {"frame": Field("pixels", (35, 64, 1))}, ("a", "b"))
    with pytest.raises(ValueError, match="36 pixels a side"):
        build_policy(PolicyConfig(network="texts"), small, 0)


def test_minilm_knows_meaning():
    cup, mug, fire = (
        embed_one(t) for t in ("put the cup in the sink", "place the mug into the basin", "the stock market fell")
    )
    assert np.linalg.norm(cup) == pytest.approx(1, abs=1e-5)
    assert cup @ mug > 0.6 > 0.4 > cup @ fire
