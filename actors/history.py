"""What was seen and done in the last steps of N envs that are stepped together.

    told [N, n * (F + 1)] ──> drop the oldest observation and action ──> add the last ones ──> told
                                      episode over: it goes with the last observation; then all places are empty

All of it is text ids; a step of N envs is two joins of integer arrays.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.api import Observation, Transition, VectorEnv
from learner.history import CANDIDATES, FIELD


class History:
    """The field `history` of the running episodes.

    Args:
        env: the worlds, N of them, which have begun or will.
        observation: the F text fields that are remembered, each one text.
        observations: how many observations a policy is told, the present one included, at least 1.

    Attributes:
        told: int32 [N, (observations - 1) * (F + 1)] text ids: F texts and an action for each earlier step, oldest
            first; "" where there was none. Made anew by each step.
    """

    def __init__(self, env: VectorEnv, observation: Sequence[str], observations: int) -> None:
        self.env, self._observation, self._width = env, tuple(observation), len(observation) + 1
        self._empty = env.texts.intern("")
        self._actions = np.array([env.texts.intern(name) for name in env.env_spec.action_names], np.int32)
        self.told = np.full((env.num_envs, (observations - 1) * self._width), self._empty, np.int32)
        self._seen = np.full((env.num_envs, len(observation)), self._empty, np.int32)
        self._offered: NDArray[Any] | None = None  # the names of each state's own actions, where these differ

    def observe(self, obs: Observation) -> Observation:
        """Add the field to an observation of all envs: the one that the next action follows."""
        self._seen = np.stack([obs[name] for name in self._observation], 1)
        self._offered = obs.get(CANDIDATES)
        return obs | {FIELD: self.told}

    def advance(self, action: NDArray[np.integer], transition: Transition) -> None:
        """After a step of the env by `action` [N]: add the field to the observations. New episodes begin without."""
        done = self._actions[action] if self._offered is None else self._offered[np.arange(len(action)), action]
        told = np.concatenate([self.told, self._seen, done[:, None]], 1)[:, self._width :]
        ended = transition.final_index
        if len(ended):
            transition.final_obs[FIELD] = told[ended]
            told[ended] = self._empty
        self.told = told
        transition.obs = self.observe(transition.obs)

    def state(self) -> dict[str, NDArray[Any]]:
        """What a successor needs besides the env's state."""
        ids, first, rows = np.unique(self.told, return_index=True, return_inverse=True)
        order = np.argsort(first)  # as they are met: ids differ between processes, equal states are equal arrays
        texts = json.dumps(self.env.texts.texts(ids[order]), ensure_ascii=False)
        return {
            "texts": np.frombuffer(texts.encode(), np.uint8),
            "told": np.argsort(order)[rows].reshape(self.told.shape).astype(np.int32),  # rows of `texts`
        }

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Continue from `state()`, in an env that stands where it stood; then `observe` what it observes.

        Raises:
            ValueError: the state is of other envs, or remembers another number of texts.
        """
        if state["told"].shape != self.told.shape:
            raise ValueError(
                f"the state remembers {list(state['told'].shape)} texts, these envs {list(self.told.shape)}: "
                "their number and policy.prompt must be as they were"
            )
        texts = json.loads(state["texts"].tobytes().decode())
        ids = np.array([self.env.texts.intern(text) for text in texts], np.int32)
        self.told = ids[state["told"]]
