"""The role that plays trials: shares of seeds, each with all tasks at once (`actors/trials.py`).

TrialShare ──> Trials of seeds x tasks, for about a second ──> Tried: progress, and at the end all arrays
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import envs
from actors.memories import Integers, Lived
from actors.trials import Trials, seeds_of
from envs import registry
from envs.api import Observation, VectorEnv
from learner.context import encoders
from learner.context.config import RetrieveConfig, SequenceConfig, TrialsConfig
from learner.context.encoders import Encoder
from learner.histories import kept_fields
from learner.models.sequence.history_transformer import HistoryTransformer
from learner.models.weights import Weights

CALL_S = 1.0  # seconds after which a call returns: between two calls, the run can be stopped
PATH = "path."


@dataclass(frozen=True)
class TrialsSetup:
    """Everything that a player of trials needs. Plain data."""

    env_id: str
    env_options: dict[str, Any]
    config: TrialsConfig
    retrieve: RetrieveConfig
    model: SequenceConfig
    weights: Weights
    encoder: Weights | None  # of the encoder of keys, empty if it is frozen; None without an encoder
    seed: int
    tasks: tuple[int, ...]
    shown: bool = False  # whether memories contain only an episode of the environment's planner

    @property
    def looks(self) -> bool:
        """Whether its players retrieve chunks."""
        return self.config.memory != "none" and "retrieved.place.weight" in self.weights


@dataclass(frozen=True)
class TrialShare:
    """Seeds; a player plays all tasks of them at once."""

    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Tried:
    """The progress of a share."""

    number: int  # trials of each row so far
    arrays: dict[str, NDArray[Any]] | None
    """At the end: [seed, task, trial] by name; names that begin with `PATH`: one row of seed 0, if it is in the
    share."""


class TrialPlayer:
    """A role. It continues its current share, and starts any other one from its first trial."""

    def __init__(self, setup: TrialsSetup, index: int = 0, incarnation: int = 0, saved: Any = None) -> None:
        torch.set_num_threads(1)  # actors share the cores with each other
        self.setup = setup
        self._phase, self._share = "start", TrialShare(())
        self._spec = envs.spec(setup.env_id, **setup.env_options)
        self._model = HistoryTransformer.of(setup.model, self._spec, setup.weights)
        self._encoder: Encoder | None = None
        if setup.encoder is not None:
            largest = float(self._model.largest)
            self._encoder = encoders.make(setup.model, setup.retrieve, self._spec, setup.encoder, largest)
        self._done = {"actor/steps": 0.0, "actor/episodes": 0.0}
        self._trials: Trials

    def ready(self) -> bool:
        """True once the constructor has finished."""
        return True

    def heartbeat(self) -> dict[str, Any]:
        return {"phase": self._phase, "pid": os.getpid()}

    def numbers(self) -> dict[str, float]:
        """Its counters since it was built, named as in `cluster.metrics.table.ACTOR`; any thread may call this."""
        return dict(self._done)

    def play(self, share: TrialShare) -> Tried:
        """Play a share for about a second, or to its end."""
        setup, began, tasks = self.setup, time.monotonic(), np.array(self.setup.tasks)
        if share != self._share:
            env = envs.make(setup.env_id, len(share.seeds) * len(tasks), **setup.env_options)
            rows = np.repeat(share.seeds, len(tasks)), np.tile(tasks, len(share.seeds))
            how = (setup.config, setup.retrieve, setup.seed)
            shown = None
            if setup.shown and setup.looks:  # in separate envs, where legacy rules keep no key from it
                there = envs.make(setup.env_id, env.num_envs, **setup.env_options)
                shown = demonstrations(there, seeds_of(self._spec, rows[1]))
            self._trials, self._share = Trials(env, self._model, self._encoder, *how, *rows, shown), share
        trials, self._phase = self._trials, "play"
        while trials.number < setup.config.trials and time.monotonic() - began < CALL_S:
            self._done["actor/steps"] += trials.play()
            self._done["actor/episodes"] += len(share.seeds) * len(tasks)
        self._phase = "idle"
        if trials.number < setup.config.trials:
            return Tried(trials.number, None)
        shape = (len(share.seeds), len(tasks), trials.number)
        arrays: dict[str, NDArray[Any]] = {"return": np.stack(trials.returns, 1).reshape(shape)}
        if trials.memories is not None:
            arrays |= {
                f"retrieved.{name}": np.stack(value, 1).reshape(shape) for name, value in trials.retrieved.items()
            }
        arrays |= {f"{PATH}{name}": column for name, column in trials.paths.typical().items()}
        return Tried(trials.number, arrays)


def demonstrations(env: VectorEnv, seeds: Integers) -> Lived:
    """An episode of the environment's planner in each of N envs, as a demonstration of a task. The planner sees the
    full state, so the demonstration contains information that no player could have.

    Args:
        env: envs with a planner, used only here.
        seeds: int64 [N], seeds of the episodes.
    """
    expert = registry.family(env.env_spec.id.partition("/")[0]).Expert()
    fields = list(kept_fields(env.env_spec))
    length, running = np.zeros(env.num_envs, np.int64), np.ones(env.num_envs, np.bool_)
    lived: list[tuple[Observation, Integers, NDArray[np.float32]]] = []
    obs = env.begin(seeds)
    while running.any():
        seen, action = {name: obs[name].copy() for name in fields}, expert.act(env)
        t = env.advance(action)
        lived.append((seen, action, t.reward.copy()))
        obs, over = t.obs, t.final_index[running[t.final_index]]
        length[over], running[over] = len(lived), False
    steps, action, reward = zip(*lived, strict=True)
    every = {name: np.stack([step[name] for step in steps]) for name in fields}
    return Lived(every, np.stack(action), np.stack(reward), length)
