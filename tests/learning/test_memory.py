"""A task that needs a memory is solved with one, and only with one."""

import json

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from cluster import run as controller
from cluster.config.tree import compose

LENGTH = 6


class Corridor(gymnasium.Env):
    """A T-maze: a sign at its beginning says which way to turn at its end, where nothing says it any more.

    Observed are the sign, -1 or 1 and later 0, and whether this is the end. Turning the right way there pays 1.
    """

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.way, self.at = int(self.np_random.integers(2)), 0
        return np.array([2 * self.way - 1, 0], np.float32), {}

    def step(self, action):
        ended, right = self.at == LENGTH, action == self.way
        self.at += 1
        seen = np.array([0, self.at == LENGTH], np.float32)
        return seen, float(ended and right), ended, False, {"is_success": bool(ended and right)}


gymnasium.register("CorridorOfMemory-v0", Corridor)


@pytest.mark.slow
@pytest.mark.parametrize("memory", ["gru", "none"])
def test_a_corridor_is_solved_with_a_memory_and_not_without(tmp_path, memory):
    """Most chunks begin in the middle of an episode, of which they remember the sign by the state at their start."""
    words = ["cluster=inline", "env=gym", "env.id=gym/CorridorOfMemory-v0", "env.success=is_success", "sync=true"]
    words += ["policy.network=resnet", f"policy.memory={memory}", "policy.hidden=32", "actors.envs=32"]
    words += ["actors.steps=10", "learner.env_steps=60000", "learner.learning_rate=2e-3", "learner.minibatch=80"]
    words += ["learner.ppo.gae_lambda=0.9", "evaluate.every=0", "evaluate.episodes=128", "evaluate.videos=0"]
    assert controller.run(compose([*words, f"run.folder={tmp_path}", "run.name=it"])) == 0
    found = json.loads((tmp_path / "it/stages/evaluate/results.json").read_text())["success"]
    assert found["low"] > 0.9 if memory == "gru" else found["high"] < 0.7
