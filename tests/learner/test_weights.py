"""Weights that travel: one buffer of a version, rounded where that changes no answer, two versions side by side."""

import numpy as np
import pytest
import torch

import envs
from actors.policy_server import PolicyServer
from learner.models.config import remembered
from learner.models.weights import BITS, Versions, get_weights, set_weights
from tests.learner.language_policies import OPTIONS, WORLD, at, config_of, policy_of, states


def changed(policy, by=0.05):
    torch.manual_seed(0)
    with torch.no_grad():
        for value in policy.payload().values():
            value.add_(torch.randn_like(value), alpha=by)
    return policy


def test_a_version_is_one_buffer_of_copies():
    policy = policy_of("t5")
    weights = get_weights(policy)
    first = min(array.ctypes.data for array in weights.values())
    last = max(array.ctypes.data + array.nbytes for array in weights.values())
    assert last - first <= sum(array.nbytes for array in weights.values()) + 64 * len(weights), "side by side"
    assert all(array.ctypes.data % 64 == first % 64 for array in weights.values())
    before = weights["value_head.0.weight"].copy()
    changed(policy)
    assert np.array_equal(weights["value_head.0.weight"], before)


@pytest.mark.parametrize("tune", ["all", "lora"])
@pytest.mark.parametrize("name", ["t5", "flan", "llama", "gpt2"])
@pytest.mark.parametrize("head", ["scores", "actions"])
def test_rounded_weights_give_the_same_answers(name, tune, head):
    """A reader that computes in bfloat16 rounds these weights itself: to the last bit, nothing else is different."""
    lm = {"tune": tune, "head": head, "precision": "bfloat16"}
    policy, (obs, texts) = changed(policy_of(name, **lm)), states()
    rounded = policy.rounded()
    weights = get_weights(policy, rounded)
    assert {key for key, array in weights.items() if array.dtype == BITS} == rounded & weights.keys()
    assert not any("head." in key and not key.startswith("model.") for key in rounded), "heads compute in float32"
    assert sum(a.nbytes for a in weights.values()) < sum(a.nbytes for a in get_weights(policy).values()) or (
        name == "gpt2" and tune == "all"  # its layers are of another kind
    )
    other = policy_of(name, **lm)
    set_weights(other, weights)
    for ours, theirs in zip(other.decide(obs, texts), policy.decide(obs, texts), strict=True):
        assert torch.equal(ours, theirs)


def test_nothing_is_rounded_for_readers_in_float32():
    assert policy_of("t5").rounded() == policy_of("t5", placement="server").rounded() == frozenset()


def test_two_versions_are_held_and_a_third_replaces_the_one_used_longest_ago():
    policies = [changed(policy_of("t5"), by) for by in (0.0, 0.05, 0.1)]
    weights, (obs, texts) = [get_weights(policy) for policy in policies], states()
    expected = [policy.decide(obs, texts)[0] for policy in policies]
    model = policy_of("t5")
    versions = Versions(model, model.payload)
    places = {}
    for version in (0, 1, 0, 1, 0, 2, 0, 2, 1):
        versions.use(version, weights[version])
        assert torch.equal(model.decide(obs, texts)[0], expected[version])
        places.setdefault(version, []).append(model.value_layer.weight.data_ptr())
    assert places[0] == [places[0][0]] * 4, "it was never copied again"
    assert places[2] == [places[1][0]] * 2, "in the place of version 1, which was used longer ago"
    assert places[1][-1] == places[0][0]
    versions.use(2, {})  # held: what it is given is not looked at
    with pytest.raises(ValueError, match="do not fit"):
        versions.use(7, {})
    assert torch.equal(model.decide(obs, texts)[0], expected[2]), "a version that does not fit changes nothing"


def test_a_server_answers_in_turn_with_two_versions():
    config, (obs, texts) = config_of("t5"), states()
    server = PolicyServer(config, remembered(config, envs.spec(WORLD, **OPTIONS)), 0, True)
    policies = [changed(policy_of("t5"), by) for by in (0.0, 0.05)]
    asked = policies[0].prompter.ask(at(obs, slice(10)), texts)
    expected = [policy.answer(asked)[0].numpy() for policy in policies]
    for version, policy in enumerate(policies):
        server.load(version, get_weights(policy))
    for version in (0, 1, 0, 1):
        assert np.array_equal(server.answer(version, asked)[0], expected[version])
