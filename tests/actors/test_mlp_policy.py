"""The small policy in NumPy says what PyTorch says."""

import numpy as np
import pytest
import torch

import envs
from actors import ActorsConfig, ActorSetup
from actors.players.mlp import MLPPlayer, suits
from actors.players.policy import TorchPlayer
from envs.api import EnvSpec, Field
from learner.group import build_policy, get_weights
from learner.models import PolicyConfig

MIXED = EnvSpec(
    "test/Mixed",
    {"vector": Field("vector", (5,)), "kind": Field("category", size=4), "view": Field("grid", (3, 3, 2))},
    ("a", "b", "c"),
)


def setup(config, spec):
    return ActorSetup(spec.id, {}, spec, ActorsConfig(), config, 0, False)


def observations(n, seed=0):
    random = np.random.default_rng(seed)
    return {
        "vector": random.normal(size=(n, 5)).astype(np.float32),
        "kind": random.integers(0, 4, n),
        "view": random.integers(0, 11, (n, 3, 3, 2), np.uint8),
    }


def trained(policy):
    """Weights as training leaves them: heads that say something, biases that are not 0."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return get_weights(policy)


@pytest.mark.parametrize("n", [1, 2, 33])
@pytest.mark.parametrize("reads", [[], ["vector"], ["kind", "view"]])
@pytest.mark.parametrize("hidden", [1, 16, 64])
def test_logits_and_values_are_those_of_pytorch(n, reads, hidden):
    config = PolicyConfig(network="mlp", hidden=hidden, reads=reads)
    assert suits(setup(config, MIXED))
    policy = build_policy(config, MIXED, 0)
    ours, theirs = MLPPlayer(config, MIXED), TorchPlayer(policy, alone=False)
    weights = trained(policy)
    for acting in (ours, theirs):
        acting.begin(envs.make("toy/Line", n))  # its texts are not read
        acting.load(weights, 1)
    found, expected = ours.step(observations(n)), theirs.step(observations(n), None)
    for a, b in zip(found[:2], expected[:2], strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype == np.float32
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)
    assert found[2] is expected[2] is None
    assert set(ours.fields) == set(theirs.fields)


def test_weights_change_with_their_version_alone():
    config = PolicyConfig(network="mlp", hidden=8, reads=["vector"])
    policy = build_policy(config, MIXED, 0)
    acting = MLPPlayer(config, MIXED)
    first, second = get_weights(policy), trained(policy)
    obs = observations(4)
    acting.load(first, 0)
    before = acting.step(obs)[0]
    acting.load(second, 0)
    assert np.array_equal(acting.step(obs)[0], before)
    acting.load(second, 1)
    assert not np.allclose(acting.step(obs)[0], before)
    elsewhere = acting.twin()
    elsewhere.begin(envs.make("toy/Line", 2))
    assert (elsewhere.version, elsewhere.env.num_envs) == (1, 2)
    assert np.array_equal(elsewhere.step(obs)[0], acting.step(obs)[0])


@pytest.mark.parametrize(
    "other", [{"network": "film"}, {"memory": "gru"}, {"head": "dueling"}, {"network": "language_model"}]
)
def test_what_it_cannot_do_is_left_to_pytorch(other):
    assert not suits(setup(PolicyConfig(**{"network": "mlp", **other}), MIXED))
    assert suits(setup(PolicyConfig(network="mlp"), MIXED))


def test_texts_are_left_to_pytorch():
    spec = envs.spec("toy/Line")
    assert not suits(setup(PolicyConfig(network="mlp"), spec))
    assert suits(setup(PolicyConfig(network="mlp", reads=["position"]), spec))
