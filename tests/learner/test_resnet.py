"""The residual network with a recurrent memory: the learner's sequences, how far gradients reach, and its options."""

import numpy as np
import pytest
import torch

import envs
from actors import ActorsConfig, ActorSetup, RolloutActor
from learner.algorithms.ppo.outputs import Outputs
from learner.batch import collate
from learner.group import build_policy, get_weights
from learner.models import PolicyConfig

OPTIONS = {"length": 11}  # several episodes end in a chunk, at different places of different envs
CONFIG = PolicyConfig(network="resnet", memory="gru", hidden=16, channels=[4, 6])


@pytest.fixture(scope="module")
def played():
    """A policy with opinions, and a chunk of it that begins in the middle of episodes."""
    spec = envs.spec("crafter/Standard", **OPTIONS)
    policy = build_policy(CONFIG, spec, 1)
    torch.nn.init.normal_(policy.actor.weight)
    made = ActorSetup("crafter/Standard", OPTIONS, spec, ActorsConfig(n=1, envs=4, steps=25), CONFIG, 5, True)
    actor = RolloutActor(made, 0)
    for _ in range(2):
        _, chunk = actor.rollout(get_weights(policy), 0)
    return policy, chunk


def test_the_learner_computes_in_sequences_what_the_actor_computed_step_by_step(played):
    policy, chunk = played
    ends = chunk.final_index[:, 0]
    assert len(ends) >= 8
    assert 0 < ends.min() < ends.max() < 24
    assert np.abs(chunk.policy_state).max() > 0.01, "the chunk begins with a memory"
    batch = collate([chunk], policy, 0, 1.0)
    for columns in ([2], [3, 0], [0, 1, 2, 3]):  # minibatches are whole rows of time
        index = (np.arange(25)[:, None] * 4 + columns).ravel()
        (piece,) = Outputs(policy, False, False).pieces(batch, index)
        log_prob = piece.logits.log_softmax(-1)[range(len(index)), chunk.action.ravel()[index]]
        np.testing.assert_allclose(log_prob.detach(), chunk.log_prob.ravel()[index], atol=1e-5)
        np.testing.assert_allclose(piece.value.detach(), chunk.value[:-1].ravel()[index], atol=1e-5)
    forgetful = collate([chunk], policy, 0, 1.0)
    forgetful.state = torch.zeros_like(forgetful.state)
    assert np.abs(Outputs(policy, False, False).whole(forgetful)[1] - chunk.value).max() > 1e-4


def test_a_gradient_reaches_the_first_step_of_a_sequence_and_never_crosses_the_end_of_an_episode():
    spec = envs.spec("crafter/Standard")
    policy = build_policy(CONFIG, spec, 1)
    done = torch.zeros(12, 2, dtype=torch.bool)
    done[5, 1] = True  # an episode of the second env ends between the first and the last step
    pictures = torch.rand(12, 2, 64, 64, 3).mul(255).requires_grad_()
    logits, values, _ = policy.unroll({"pixels": pictures * 1}, policy.codes(None), policy.initial_state(2), done)
    (logits[-1].square().sum() + values[-1].sum()).backward()
    reached = pictures.grad.abs().amax((2, 3, 4))
    assert (reached[:, 0] > 0).all()
    assert (reached[5:, 1] > 0).all()
    assert (reached[:5, 1] == 0).all()


@pytest.mark.parametrize("channels", [[5], [4, 8, 8], [2, 2, 2, 3]])
def test_channels_are_the_stages_and_each_halves_a_picture(channels):
    policy = build_policy(
        PolicyConfig(network="resnet", hidden=16, channels=channels), envs.spec("crafter/Standard"), 0
    )
    side = 64 // 2 ** len(channels)
    assert policy.network.out[-1].shape == (16, channels[-1] * side * side)
    widths = [layer.out_channels for layer in policy.network.of_picture[0] if isinstance(layer, torch.nn.Conv2d)]
    assert widths == channels


@pytest.mark.parametrize("channels", [[5], [4, 6, 3]])
def test_a_patch_is_one_cell_of_the_world_and_no_stage_pools(channels):
    config = PolicyConfig(network="resnet", hidden=16, channels=channels, patch=7)
    policy = build_policy(config, envs.spec("crafter/Standard"), 0)
    assert policy.network.out[-1].shape == (16, channels[-1] * 9 * 9)
    picture = torch.zeros(1, 3, 64, 64)
    changed = picture.clone()
    changed[0, :, 14:21, 35:42] = 1  # the cell in row 2 and column 5
    first = policy.network.of_picture[0][0]
    differs = (first(changed) != first(picture)).any(1)[0]
    assert differs.nonzero().tolist() == [[2, 5]]


def test_a_patch_wider_than_the_picture_is_refused():
    config = PolicyConfig(network="resnet", patch=65)
    with pytest.raises(ValueError, match=r"policy\.patch=65 is wider than a picture of 64 x 64 pixels"):
        build_policy(config, envs.spec("crafter/Standard"), 0)


@pytest.mark.parametrize("channels", [[], [0], [16, -1]])
def test_channels_that_are_none_are_refused(channels):
    with pytest.raises(ValueError, match="channels"):
        PolicyConfig(network="resnet", channels=channels)
