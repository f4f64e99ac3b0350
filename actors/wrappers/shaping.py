"""Pays for moving to where it is more sensible to be: the column `shaping`, once a chunk.

    every step: observations, actions ──> Trail
    the chunk is over: windows [T * N] ──> phi ──> F = gamma phi(s') - phi(s) [T, N]

Only training is paid so. The potential is a module of `learner/potentials`; what F must be, that package says.
"""

from __future__ import annotations

import hashlib
import json
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from actors.wrappers import Setting
from envs.api import Chunk, DenseEnv, EnvSpec, Observation, Transition, Wrapper
from envs.config import Part
from learner import potentials
from learner.config import Configuration
from learner.potentials import COLUMN, NONE, PotentialSetup, ShapingConfig, shaped
from learner.windows import Trail, Windows

after = ()
training_only = True


class Config(Part):
    """What pays in a run."""

    shaping: ShapingConfig
    """The potential."""
    discount: float
    """The learner's."""
    seed: int
    """The run's."""


def part(config: Configuration) -> Config | None:
    shaping = config.method.part(ShapingConfig)
    if shaping.potential == NONE:
        return None
    return Config(shaping=shaping, discount=config.learner.discount, seed=config.seed)


def spec(config: Config, spec: EnvSpec) -> EnvSpec:
    """A policy sees what it saw without.

    Raises:
        ValueError: this potential cannot be had in this world.
    """
    potentials.potential(config.shaping.potential).check(config.shaping, spec)
    return spec


def identity(config: Config) -> NDArray[np.uint8]:
    """Hash of all that what is paid depends on: a run cannot go on with another one."""
    shaping = config.shaping
    own = shaping.own(potentials.potential(shaping.potential).Config).model_dump()
    told = [shaping.potential, shaping.window, shaping.scale, own, config.discount, config.seed]
    return np.frombuffer(hashlib.sha256(json.dumps(told, sort_keys=True).encode()).digest(), np.uint8)


def make(config: Config, env: DenseEnv, setting: Setting) -> Shaping:
    return Shaping(env, config)


class Shaping(Wrapper):
    """Adds the column `shaping` to every chunk."""

    def __init__(self, env: DenseEnv, config: Config) -> None:
        super().__init__(env)
        shaping, self._discount = config.shaping, config.discount
        made = potentials.potential(shaping.potential)
        fields = env.env_spec.fields
        self._potential = made(PotentialSetup(shaping, fields, config.seed, env.texts, env.env_spec.action_names))
        self._name, self._scale = shaping.potential, np.float32(shaping.scale)
        self._identity = identity(config)
        texts = [name for name in self._potential.fields if fields[name].kind == "text"]
        self._trail = Trail(self._potential.fields, shaping.window, texts, env.texts)
        self._phi = np.zeros(env.num_envs, np.float32)  # of the states that the envs are in
        self._windows, self._seconds = 0, 0.0

    def begin(self, seeds: NDArray[np.int64] | None = None) -> Observation:
        obs = self.env.begin(seeds)
        self._trail.begin(obs)
        self._phi = self._judge(self._trail.now())
        return obs

    def advance(self, actions: NDArray[Any]) -> Transition:
        transition = self.env.advance(actions)
        self._trail.add(actions, transition)
        return transition

    def finish(self, chunk: Chunk) -> None:
        self.env.finish(chunk)
        began = time.perf_counter()
        windows, ended = self._trail.chunk()
        states, last = np.split(self._judge(windows), [chunk.terminated.size])
        phi = np.concatenate([self._phi, states]).reshape(-1, self.num_envs)
        after = phi[1:].copy()
        after[tuple(ended.T)] = last
        chunk.rewards[COLUMN] = shaped(phi[:-1], after, chunk.terminated, self._discount)
        self._phi = phi[-1]
        self._seconds += time.perf_counter() - began

    def _judge(self, windows: Windows) -> NDArray[np.float32]:
        self._windows += len(windows)
        phi: NDArray[np.float32] = self._potential.phi(windows) * self._scale
        if phi.shape != (len(windows),) or not np.isfinite(phi).all():
            raise FloatingPointError(f"potential {self._name} gave no finite number for some of {len(windows)} windows")
        return phi

    # ---- what was counted, and state between two chunks -----------------------------------------------------------

    def report(self) -> dict[str, Any]:
        """Windows that were judged since the last report, and those that could not be, by the reason."""
        windows, self._windows = self._windows, 0
        unjudged = {f"unjudged/{reason}": n for reason, n in self._potential.report().items()}
        return self.env.report() | {self.name: {"windows": windows} | unjudged | self._potential.counts()}

    def seconds(self) -> dict[str, float]:
        taken, self._seconds = self._seconds, 0.0
        return self.env.seconds() | {self.name: taken}

    def state(self) -> dict[str, NDArray[Any]]:
        own = {"phi": self._phi.copy(), "identity": self._identity}
        return self.env.state() | self._named(own | self._trail.state())

    def restore(self, state: dict[str, NDArray[Any]]) -> Observation:
        """Continue from `state()` of an equal stack.

        Raises:
            ValueError: the state was made without shaping, or with another. Nothing has changed then.
        """
        own = self._own(state)
        if not np.array_equal(own.get("identity", ()), self._identity):
            raise ValueError("the potential is another one than this run began with: put it back, or begin a new run")
        obs = self.env.restore(state)
        self._trail.restore(own)
        self._phi = own["phi"].copy()
        return obs
