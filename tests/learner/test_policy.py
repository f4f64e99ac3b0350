"""Policies: stepping and unrolling agree, texts are read, networks fit their worlds."""

import numpy as np
import pytest
import torch

import envs
from learner.group import build_policy, get_weights, set_weights
from learner.models import PolicyConfig, networks
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


@pytest.mark.parametrize("network", networks())
@pytest.mark.parametrize("memory", ["none", "gru"])
@pytest.mark.parametrize("env", ["toy/Line", "babyai/GoToLocal", "gym/CartPole-v1"])
def test_unroll_equals_step_by_step(network, memory, env):
    spec = envs.spec(env)
    policy = build_policy(PolicyConfig(network=network, memory=memory, hidden=16), spec, 0)
    obs = observations(spec, 6, 3, texts=2)
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


@pytest.mark.parametrize("text", ["learned", "minilm"])
def test_the_mission_reaches_the_actions(text):
    spec = envs.spec("babyai/GoToLocal")
    policy = build_policy(PolicyConfig(text=text, hidden=16), spec, 0)
    torch.nn.init.normal_(policy.actor.weight)
    obs = {k: v[0] for k, v in observations(spec, 1, 1, texts=1).items()}
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


def test_minilm_knows_meaning():
    cup, mug, fire = (
        embed_one(t) for t in ("put the cup in the sink", "place the mug into the basin", "the stock market fell")
    )
    assert np.linalg.norm(cup) == pytest.approx(1, abs=1e-5)
    assert cup @ mug > 0.6 > 0.4 > cup @ fire
