"""Observations and actions of the last steps of N envs that are stepped together.

    given [N, n * (F + 1)] ──> drop the oldest observation and action ──> add the last ones ──> given
                                      episode over: it belongs to the last observation; then all places are empty

All values are text ids; a step of N envs is two concatenations of integer arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from actors.wrappers import Setting
from envs.api import DenseEnv, Observation, Transition, Wrapper
from learner.config import Configuration
from learner.models.config import CANDIDATES, HISTORY, PolicyConfig, remembered, remembers

Config = PolicyConfig  # the policy's prompt determines the history
after = ("goals", "task", "shaping", "tee")  # their fields come first in a policy's observation
training_only = False
spec = remembered


def part(config: Configuration) -> PolicyConfig | None:
    return config.policy if remembers(config.policy) else None


def make(config: PolicyConfig, env: DenseEnv, setting: Setting) -> History:
    return History(env, config.prompt.observation, config.prompt.observations)


class History(Wrapper):
    """Adds the field `history` of the running episodes.

    Args:
        env: N envs.
        observation: the F remembered text fields, each one text.
        observations: how many observations a policy gets, including the present one, at least 1.

    Attributes:
        given: int32 [N, (observations - 1) * (F + 1)] text ids: F texts and an action for each earlier step, oldest
            first; "" if there was none. A new array in each step.
    """

    def __init__(self, env: DenseEnv, observation: Sequence[str], observations: int) -> None:
        super().__init__(env)
        self._observation, self._width = tuple(observation), len(observation) + 1
        self._empty = env.texts.intern("")
        self._actions = np.array([env.texts.intern(name) for name in env.env_spec.action_names], np.int32)
        self.given = np.full((env.num_envs, (observations - 1) * self._width), self._empty, np.int32)
        self._seen = np.full((env.num_envs, len(observation)), self._empty, np.int32)
        self._offered: NDArray[Any] | None = None  # the names of each state's own actions, if these differ

    def begin(self, seeds: NDArray[np.int64] | None = None) -> Observation:
        self.given = np.full_like(self.given, self._empty)
        return self._observed(self.env.begin(seeds))

    def advance(self, actions: NDArray[Any]) -> Transition:
        transition = self.env.advance(actions)
        done = self._actions[actions] if self._offered is None else self._offered[np.arange(len(actions)), actions]
        told = np.concatenate([self.given, self._seen, done[:, None]], 1)[:, self._width :]
        ended = transition.final_index
        if len(ended):
            transition.final_obs[HISTORY] = told[ended]
            told[ended] = self._empty
        self.given = told
        transition.obs = self._observed(transition.obs)
        return transition

    def _observed(self, obs: Observation) -> Observation:
        """Add the field to an observation of all envs, the one before the next action."""
        self._seen = np.stack([obs[name] for name in self._observation], 1)
        self._offered = obs.get(CANDIDATES)
        return obs | {HISTORY: self.given}

    def state(self) -> dict[str, NDArray[Any]]:
        told, texts = self.texts.pack(self.given)
        return self.env.state() | self._named({"told": told, "texts": texts})

    def restore(self, state: dict[str, NDArray[Any]]) -> Observation:
        """Continue from `state()` of an equal stack.

        Raises:
            ValueError: the state is of other envs, or has another number of texts. Then nothing has changed.
        """
        own = self._own(state)
        if own["told"].shape != self.given.shape:
            raise ValueError(
                f"the state remembers {list(own['told'].shape)} texts, these envs {list(self.given.shape)}: "
                "their number and policy.prompt must not change"
            )
        obs = self.env.restore(state)
        self.given = self.texts.unpack(own["told"], own["texts"])
        return self._observed(obs)
