"""Reward shaping by a potential: the column `shaping`, computed once per chunk.

    every step: observations, actions ──> Trail
    the chunk is over: windows [T * N] ──> phi ──> F = gamma phi(s') - phi(s) [T, N], or another form

Only training gets shaping rewards; recorded episodes of an evaluation show what they would be (`actors/trace.py`). The
potential is a module of `learner/potentials`, the form a class of `learner/forms`.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import defaultdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from actors.wrappers import Setting
from envs.api import Chunk, DenseEnv, EnvSpec, Observation, Transition, Wrapper
from envs.config import Part
from learner import potentials
from learner.config import Configuration
from learner.forms import FORMS
from learner.potentials import COLUMN, NONE, PotentialSetup, ShapingConfig
from learner.windows import Trail, Windows

after = ("captioning", "goals", "task")
training_only = True


class Config(Part):
    """The shaping of a run."""

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
    """A policy's observations do not change.

    Raises:
        ValueError: this potential is not possible in this environment.
    """
    potentials.potential(config.shaping.potential).check(config.shaping, spec)
    return spec


def identity(config: Config) -> NDArray[np.uint8]:
    """Hash of everything that rewards depend on: a run cannot continue with another one."""
    shaping = config.shaping
    told = potentials.depends_on(shaping) | {"form": shaping.form, "window": shaping.window, "scale": shaping.scale}
    told |= {"discount": config.discount, "seed": config.seed}
    return np.frombuffer(hashlib.sha256(json.dumps(told, sort_keys=True).encode()).digest(), np.uint8)


def inputs(config: Config) -> dict[str, str]:
    """The shaping in words, and the hashes of phi's inputs and of everything that it depends on."""
    shaping = config.shaping
    told = f"{shaping.potential}, form {shaping.form}, window {shaping.window}, scale {shaping.scale:g}"
    content = potentials.potential(shaping.potential).content(shaping)
    hashes = {"shaping.content": content} if content else {}
    return {"shaping": told, "shaping.identity": identity(config).tobytes().hex()} | hashes


def make(config: Config, env: DenseEnv, setting: Setting) -> Shaping:
    return Shaping(env, config)


class Watch:
    """A run's potential of every state of N envs, one chunk at a time.

    Args:
        env: the env whose fields it reads, and whose texts these name.

    Attributes:
        phi: float32 [N], of the states at which the chunk began; set by `begin` or a restored state.
    """

    def __init__(self, env: DenseEnv, config: Config) -> None:
        shaping, fields = config.shaping, env.env_spec.fields
        made = potentials.potential(shaping.potential)
        self.potential = made(PotentialSetup(shaping, fields, config.seed, env.texts, env.env_spec.action_names))
        texts = [name for name in self.potential.fields if fields[name].kind == "text"]
        self.trail = Trail(self.potential.fields, shaping.window, texts, env.texts)
        self.phi = np.zeros(0, np.float32)
        self._name, self._scale = shaping.potential, np.float32(shaping.scale)

    def begin(self, obs: Observation) -> None:
        """New episodes begin in all envs."""
        self.trail.begin(obs)
        self.phi = self._judge(self.trail.now())

    def add(self, actions: NDArray[Any], transition: Transition) -> None:
        """A step of all envs."""
        self.trail.add(actions, transition)

    def chunk(self) -> tuple[NDArray[np.float32], NDArray[np.float32], int]:
        """The chunk of T steps is over.

        Returns:
            phi [T + 1, N] of the states before actions, and of the first states of the next chunk; phi [T, N] of the
            states after each step, for an ended episode its own last state; the number of evaluated windows.

        Raises:
            FloatingPointError: the potential gave a number that is not finite.
        """
        windows, ended = self.trail.chunk()
        states, last = np.split(self._judge(windows), [len(windows) - len(ended)])
        phi = np.concatenate([self.phi, states]).reshape(-1, len(self.phi))
        after = phi[1:].copy()
        after[tuple(ended.T)] = last
        self.phi = phi[-1]
        return phi, after, len(windows)

    def _judge(self, windows: Windows) -> NDArray[np.float32]:
        phi: NDArray[np.float32] = self.potential.phi(windows) * self._scale
        if phi.shape != (len(windows),) or not np.isfinite(phi).all():
            raise FloatingPointError(f"potential {self._name} gave no finite number for some of {len(windows)} windows")
        return phi


class Shaping(Wrapper):
    """Adds the column `shaping` to every chunk."""

    def __init__(self, env: DenseEnv, config: Config) -> None:
        super().__init__(env)
        self._watch = Watch(env, config)
        self._identity = identity(config)
        self._form = FORMS[config.shaping.form](config.discount, env.num_envs)
        self._counts = defaultdict[str, float](int)
        self._seconds = 0.0

    def begin(self, seeds: NDArray[np.int64] | None = None) -> Observation:
        obs = self.env.begin(seeds)
        self._watch.begin(obs)
        self._counts["windows"] += self.num_envs
        return obs

    def advance(self, actions: NDArray[Any]) -> Transition:
        transition = self.env.advance(actions)
        self._watch.add(actions, transition)
        return transition

    def finish(self, chunk: Chunk) -> None:
        self.env.finish(chunk)
        began = time.perf_counter()
        phi, after, judged = self._watch.chunk()
        chunk.rewards[COLUMN] = paid = self._form.pay(phi, after, chunk.terminated)
        taken = time.perf_counter() - began
        self._seconds += taken
        sums = {"seconds": taken, "phi_sum": float(phi[1:].sum()), "paid_sum": float(np.abs(paid).sum())}
        for name, value in {"windows": judged, **sums}.items():
            self._counts[name] += value

    # ---- statistics, and state between two chunks -----------------------------------------------------------------

    def report(self) -> dict[str, Any]:
        """Since the last report: evaluated windows, and those that could not be, by reason; the sums of phi after every
        step and of the absolute rewards; seconds."""
        counts, self._counts = self._counts, defaultdict[str, float](int)
        unjudged = {f"unjudged/{reason}": n for reason, n in self._watch.potential.report().items()}
        return self.env.report() | {self.name: {**counts, **self._watch.potential.counts(), **unjudged}}

    def seconds(self) -> dict[str, float]:
        taken, self._seconds = self._seconds, 0.0
        return self.env.seconds() | {self.name: taken}

    def state(self) -> dict[str, NDArray[Any]]:
        own: dict[str, NDArray[Any]] = {"phi": self._watch.phi.copy(), "identity": self._identity}
        form = {f"form.{name}": value for name, value in self._form.state().items()}
        return self.env.state() | self._named(own | form | self._watch.trail.state())

    def restore(self, state: dict[str, NDArray[Any]]) -> Observation:
        """Continue from `state()` of an equal stack.

        Raises:
            ValueError: the state was made without shaping, or with another potential. Then nothing has changed.
        """
        own = self._own(state)
        if not np.array_equal(own.get("identity", ()), self._identity):
            raise ValueError("this run started with another potential: restore that one, or start a new run")
        obs = self.env.restore(state)
        self._watch.trail.restore(own)
        self._form.restore({name.removeprefix("form."): v for name, v in own.items() if name.startswith("form.")})
        self._watch.phi = own["phi"].copy()
        return obs
