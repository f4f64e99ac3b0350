"""Lives of envs whose every observation has a number of its own, as chunks and as a list of steps to compare with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from envs.api import Chunk, Field
from envs.text import text_hash

FIELDS = {
    "number": Field("vector", (1,)),
    "kind": Field("category", size=300),
    "view": Field("grid", (2, 1, 3)),
    "said": Field("text"),
}
APART = 10_000  # numbers of two envs


@dataclass
class Step:
    """One step as it was lived; observations by their numbers."""

    obs: int
    action: int
    reward: float
    terminated: bool
    truncated: bool
    following: int
    first: int  # number of the episode's first observation


class Lives:
    """N envs of one actor. Number i of an env is followed by i + 1, also over an episode's end."""

    def __init__(self, envs: int, seed: int = 0, actor: int = 0, fields: dict[str, Field] = FIELDS) -> None:
        self.env_index = np.arange(actor * envs, (actor + 1) * envs, dtype=np.int32)
        self.fields, self.actor, self.sequence = fields, actor, 0
        self.random = np.random.default_rng(seed)
        self.number = self.env_index * APART
        self.first = self.number.copy()
        self.steps: list[list[Step]] = [[] for _ in range(envs)]

    def chunk(self, terminated: Any, truncated: Any) -> Chunk:
        """Live T steps that end episodes as these flags [T, N] say."""
        terminated, truncated = np.asarray(terminated, bool), np.asarray(truncated, bool)
        length, n = terminated.shape
        numbers, final_index, final = np.zeros((length + 1, n), np.int64), [], []
        action = self.random.integers(3, size=(length, n))
        reward = self.random.normal(size=(length, n)).astype(np.float32)
        numbers[0] = self.number
        for t in range(length):
            for e in range(n):
                following = self.number[e] + 1
                ends = (bool(terminated[t, e]), bool(truncated[t, e]))
                told = int(self.number[e]), int(action[t, e]), float(reward[t, e]), *ends, int(following)
                self.steps[e].append(Step(*told, int(self.first[e])))
                self.number[e] = following
                if any(ends):
                    final_index.append((t, e))
                    final.append(following)
                    self.number[e] = self.first[e] = following + 1
            numbers[t + 1] = self.number
        obs, final_obs = (self.observe(np.array(found, np.int64)) for found in (numbers, final))
        texts = {text_hash(text): text for text in (f"text {k}" for k in range(7))}
        self.sequence += 1
        zeros = np.zeros((length + 1, n), np.float32)
        return Chunk(
            actor=self.actor,
            incarnation=0,
            sequence=self.sequence - 1,
            version=0,
            env_index=self.env_index,
            obs=obs,
            final_obs=final_obs,
            final_index=np.array(final_index, np.int32).reshape(-1, 2),
            action=action,
            log_prob=zeros[:-1],
            value=zeros,
            final_value=np.zeros(len(final), np.float32),
            rewards={"env": reward - 1, "goal": np.ones_like(reward)},
            terminated=terminated,
            truncated=truncated,
            policy_state=None,
            episode=np.zeros((length, n), np.int64),
            texts=texts,
            llm_status=np.zeros((length, n), np.uint8),
        )

    def observe(self, numbers: Any) -> dict[str, Any]:
        """What observations with these numbers [...] hold."""
        made = {}
        for name, field in self.fields.items():
            numbers_wide = numbers.reshape(numbers.shape + (1,) * len(field.shape))
            full = np.broadcast_to(numbers_wide, numbers.shape + field.shape)
            made[name] = {
                "vector": lambda full=full: full.astype(np.float32),
                "category": lambda full=full, field=field: full % field.size,
                "grid": lambda full=full: (full % 256).astype(np.uint8),
                "pixels": lambda full=full: (full % 256).astype(np.uint8),
                "text": lambda full=full: np.vectorize(lambda k: text_hash(f"text {k % 7}"), otypes=[np.int64])(full),
            }[field.kind]()
        return made

    def some(self, length: int, ends: float = 0.3) -> Chunk:
        """A chunk whose episodes end at random."""
        drawn = self.random.random((length, len(self.steps)))
        return self.chunk(drawn < ends / 2, (drawn >= ends / 2) & (drawn < ends))


def n_step(steps: list[Step], at: int, n: int, discount: float) -> tuple[float, float, int]:
    """The return of step `at`, what to multiply the rest with, and the observation to estimate it at."""
    total = 0.0
    for k in range(n):
        step = steps[at + k]
        total += discount**k * step.reward
        if step.terminated or step.truncated:
            return total, 0.0 if step.terminated else discount ** (k + 1), step.following
    return total, discount**n, steps[at + n - 1].following
