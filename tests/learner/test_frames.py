"""Stacks of pictures: what acts, in training and in evaluation, sees what the learner is shown of the same rows."""

from collections import defaultdict

import numpy as np
import pytest
import torch

import envs
from actors import ActorsConfig, ActorSetup, RolloutActor
from cluster.config.tree import compose
from envs.api import EnvSpec, Field
from learner.algorithms.dqn import DQN, DQNConfig
from learner.config import LearnerConfig
from learner.group import build_policy, get_weights
from learner.models.config import PolicyConfig, visible
from learner.models.frames import Frames
from learner.models.policy import Policy
from learner.store.replay import Replay
from llm_service.errors import UsageError
from tests.learner.setups import rank_of

ENV, OPTIONS = "crafter/Standard", {"length": 7, "observe": ["pixels", "feelings"]}
N, STEPS = 3, 10


def chosen(stack):
    return PolicyConfig(network="texts", hidden=16, head="dueling", stack=stack)


def actor_of(stack, state=None):
    actors = ActorsConfig(n=1, envs=N, steps=STEPS)
    setup = ActorSetup(ENV, OPTIONS, envs.spec(ENV, **OPTIONS), actors, chosen(stack), 3, True)
    return RolloutActor(setup, 0, state=state)


class Watched:
    """Keeps the pictures [B, S, H, W, C] that a policy was shown."""

    def __init__(self, policy):
        self.shown = []
        self.real, policy.inputs = policy.inputs, self

    def __call__(self, obs):
        self.shown.append(obs["pixels"].numpy().copy())
        return self.real(obs)


@pytest.mark.parametrize("stack", [2, 4])
def test_who_acts_sees_what_the_replay_shows(stack):
    actor = actor_of(stack)
    replay = Replay(visible(chosen(stack), actor.setup.spec).fields, 17, np.arange(N), 3000, 3, stack)
    weights = get_weights(actor.player.policy)
    acted, ended, state = defaultdict(list), 0, None
    for round_ in range(4):
        if round_ == 2:  # another takes over, from what the first one has handed in
            actor = actor_of(stack, state)
        watched, player = Watched(actor.player.policy), actor.player
        player.value = lambda obs, state, player=player: player.step(obs, state)[1]  # last ones are looked at, too
        summary, chunk = actor.rollout(weights, round_)
        replay.insert(chunk)
        state = summary.state
        ended += len(chunk.final_index)
        shown = watched.shown
        assert len(shown) == STEPS + 2  # each step, the one after the last, and the last ones of episodes
        for t in range(STEPS):
            done = dict.fromkeys(chunk.final_index[chunk.final_index[:, 0] == t, 1].tolist())
            for n in range(N):
                acted[n].append(shown[t][n])
                if n in done:
                    acted[n].append(shown[-1][chunk.final_index.tolist().index([t, n])])
    assert ended > 9
    for n in range(N):
        rows = n * replay.length + np.arange(replay.count[n])
        learned = replay.observe(rows, stack)["pixels"]
        assert learned.shape == (len(acted[n]), stack, 64, 64, 3)
        np.testing.assert_array_equal(learned, np.array(acted[n]))
        assert len(np.unique(learned.reshape(len(rows), -1), axis=0)) > 20
        np.testing.assert_array_equal(learned[:, -1], replay.observe(rows)["pixels"])  # the last one is the newest


def test_an_evaluation_sees_frames_of_its_own_episodes():
    actor, env = actor_of(3), envs.make(ENV, 2, **OPTIONS)
    actor.rollout(get_weights(actor.player.policy), 0)
    watched = Watched(actor.player.policy)
    player = actor.player.twin()
    seeds = np.array([5, 6], np.int64)
    frames = [(obs := env.begin(seeds))["pixels"]]
    state = player.begin(env, seeds)
    for k in range(5):
        action, _, _, state = player.act(obs, state, None)
        obs = env.advance(action).obs
        if k == 2:
            state[1] = 0  # as if its episode had ended
        frames.append(obs["pixels"])
    for k, shown in enumerate(watched.shown):
        for env_index, first in ((0, 0), (1, 3 if k > 2 else 0)):
            expected = [frames[max(at, first)][env_index] for at in (k - 2, k - 1, k)]
            np.testing.assert_array_equal(shown[env_index], expected)
    assert len(watched.shown) == 5
    assert len(np.unique(np.array(frames).reshape(12, -1), axis=0)) > 6


def test_the_network_sees_the_frames_as_channels_oldest_first():
    spec = EnvSpec("test/P", {"a": Field("pixels", (36, 40, 3)), "b": Field("pixels", (38, 36, 1))}, ("x", "y"))
    frames = Frames(spec, 2)
    wide = frames.widen(spec).fields
    assert (wide["a"].shape, wide["b"].shape) == ((36, 40, 6), (38, 36, 2))
    obs = {name: torch.randint(0, 255, (5, 2, *field.shape), dtype=torch.uint8) for name, field in spec.fields.items()}
    joined = frames.join(obs)
    for name, value in obs.items():
        assert torch.equal(joined[name], torch.cat([value[:, 0], value[:, 1]], -1))
    policy = Policy(PolicyConfig(network="texts", hidden=8, head="dueling", stack=2), spec)
    features = policy.network(policy.inputs(obs), policy.codes(None))[0]
    assert features.shape == (5, 8)
    swapped = {name: value.flip(1) for name, value in obs.items()}
    assert not torch.equal(features, policy.network(policy.inputs(swapped), policy.codes(None))[0])


def test_a_state_of_zeros_is_an_episodes_begin():
    spec = EnvSpec("test/P", {"a": Field("pixels", (1, 1, 1))}, ("x",))
    frames, state, seen = Frames(spec, 3), Frames(spec, 3).initial_state(2), []
    for k in range(5):
        if k == 3:
            state[1] = 0
        shown, state = frames.add({"a": torch.tensor([k, 10 + k], dtype=torch.uint8).view(2, 1, 1, 1)}, state)
        seen.append(shown["a"].flatten(1).tolist())
    assert [one for one, _ in seen] == [[0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4]]
    assert [other for _, other in seen] == [[10, 10, 10], [10, 10, 11], [10, 11, 12], [13, 13, 13], [13, 13, 14]]


def test_dqn_learns_from_stacks():
    actor, spec = actor_of(4), envs.spec(ENV, **OPTIONS)
    config = LearnerConfig(algorithm="dqn", minibatch=16, anneal=False)
    options = DQNConfig(capacity=3000, start_steps=30, samples_per_insert=1.0, keep="memory")
    dqn = DQN(rank_of(config, build_policy(chosen(4), spec, 3), 3, options=options, env_index=np.arange(N)))
    for k in range(3):
        before = get_weights(dqn.policy)
        report = dqn.learn(k, 0, [actor.rollout(before, k)[1]])
    assert report["replay/updates"] > 0
    moved = {name for name, value in get_weights(dqn.policy).items() if not np.array_equal(value, before[name])}
    assert "network.of_picture.0.0.weight" in moved
    assert before["network.of_picture.0.0.weight"].shape == (32, 12, 8, 8)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["method=ppo", "env=crafter/Standard", "policy.network=texts"], r"method ppo needs policy\.stack=1, got 4"),
        (["method=dqn", "env=toy/Line"], r"policy\.stack=4 is for pictures, but the policy sees"),
        (["method=dqn", "env=crafter/Standard", "policy.stack=0"], r"policy\.stack: must be at least 1"),
    ],
)
def test_stacks_that_cannot_be_are_refused(words, reason):
    with pytest.raises(UsageError, match=reason):
        compose(["policy.stack=4", *words])


def test_what_is_judged_for_its_novelty_is_the_newest_picture_alone():
    actor = actor_of(4)
    replay = Replay(visible(chosen(4), actor.setup.spec).fields, 17, np.arange(N), 3000, 3, 4)
    weights = get_weights(actor.player.policy)
    for k in range(3):
        replay.insert(actor.rollout(weights, k)[1])
    walks = []
    sample = replay.sample(9, np.random.default_rng(0), 0.9, lambda walk: walks.append(walk) or walk.rewards["env"])
    seen = walks[0].observe(walks[0].row)["pixels"]
    assert seen.shape == (9, 4, 64, 64, 3)  # rows of a walk, each with one picture
    np.testing.assert_array_equal(seen[:, 0], sample.obs["pixels"][:, -1])
    np.testing.assert_array_equal(seen[:, -1], sample.following["pixels"][:, -1])
