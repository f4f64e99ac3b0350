"""Evaluation: whole episodes on given seeds, each counted once, by any player."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

import envs
from actors.animation import Animation
from actors.players import Player
from actors.trace import Trace, Tracer
from actors.wrappers import shaping
from envs.api import DenseEnv, Episodes, Observation
from envs.config import Part
from learner.goals import COLUMN


class EvaluateConfig(Part):
    """Evaluation on frozen, held-out seeds."""

    episodes: int = 512
    """Episodes of the final evaluation, seeds `envs.HELD_OUT_FIRST + 0, 1, ...`."""
    greedy: bool = True
    """Take the most probable action; false: sample."""
    every: int = 100_000
    """During training, evaluate each time after this many env steps on validation seeds (not the final ones); 0:
    never."""
    validation_episodes: int = 128
    """Episodes of each evaluation during training."""
    videos: int = 6
    """Episodes of the final evaluation that are recorded as animations."""
    env: dict[str, Any] = Field(default={})
    """Options of the environment in evaluations that differ from training, such as {starts: seed}."""
    beside: list[Literal["random", "expert"]] = Field(default=[])
    """Further players of the final evaluation's episodes, for comparison: random actions, the environment's expert."""


VALIDATION_FIRST = envs.HELD_OUT_FIRST + 100_000_000
"""Seeds of evaluations during training, different from those of training and of the final evaluation."""


@dataclass
class Recording:
    """One animated episode."""

    seed: int
    mission: str
    success: bool
    total: float
    length: int
    gif: bytes
    trace: Trace | None = None  # the run's potential along it; None in a run without shaping


@dataclass
class Played:
    """The result of `play`: one row per seed, in the order of the seeds; recordings of the first few."""

    episodes: Episodes
    recordings: list[Recording] = field(default_factory=list)
    report: dict[str, Any] = field(default_factory=dict)  # like `Summary.report`
    # Reward for goals, by episode.
    reached: NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, np.float32))
    # For the first few episodes of a language model's policy, step by step: its prompt, and why it acted.
    trajectories: list[list[dict[str, Any]]] = field(default_factory=list)


def play(
    env: DenseEnv,
    player: Player,
    seeds: NDArray[np.int64],
    greedy: bool = True,
    record: int = 0,
    shaped: shaping.Config | None = None,
) -> Played:
    """Play the episodes of `seeds` [N] in the N envs, one each, and record the first `record`, if the env draws
    pictures.

    greedy: the player takes its best action; false: it samples, with random numbers from the first seed.
    shaped: the shaping of the run's training; recordings show its potential.
    """
    obs = env.begin(seeds)
    state, random = player.begin(env, seeds), np.random.default_rng(int(seeds[0]))
    explained: list[list[dict[str, Any]]] = [[] for _ in range(record)]
    record = record if _can_be_drawn(env) else 0
    running = np.ones(env.num_envs, np.bool_)
    reached, nothing = np.zeros((2, env.num_envs), np.float32)
    finished: list[Episodes] = []
    animations = [Animation(_mission(env, obs, i), captioned=env.goals_of(i) is not None) for i in range(record)]
    for i, animation in enumerate(animations):
        animation.add(env.frame(i), env.goals_of(i) or ())
    tracer = Tracer(env, shaped, record, obs) if shaped and record else None
    while running.any():
        action, _, _, state = player.act(obs, state, None if greedy else random.random(env.num_envs, np.float32))
        for i in np.flatnonzero(running[: len(explained)]).tolist():
            if (why := player.explain(obs, i, action[i])) is not None:
                explained[i].append({"seed": int(seeds[i]), "step": len(explained[i])} | why)
        env.counted[:] = running
        t = env.advance(action)
        if tracer and running[:record].any():
            tracer.add(action, t)
        paid = t.rewards.get(COLUMN, nothing)
        reached += paid * running
        obs = t.obs
        first = running[t.final_index]  # later episodes of a finished env do not count
        rows = {name: getattr(t.episodes, name)[first] for name in Episodes.__annotations__}
        finished.append(Episodes(**rows))
        running[t.final_index] = False
        player.observe(t)
        if state is not None:
            state[t.final_index] = 0
        for i in np.flatnonzero(running[:record]).tolist():
            done = env.texts[int(env.events[i])] if paid[i] else ""
            animations[i].add(env.frame(i), env.goals_of(i) or (), done)
    episodes = Episodes.concatenate(finished)
    order = np.argsort(episodes.env, kind="stable")
    episodes = Episodes(**{name: getattr(episodes, name)[order] for name in Episodes.__annotations__})
    traces = tracer.traces(episodes.length[:record]) if tracer else [None] * record
    recordings = [
        Recording(
            seed=int(seeds[i]),
            mission=animations[i].mission,
            success=bool(episodes.success[i]),
            total=float(episodes.total[i]),
            length=int(episodes.length[i]),
            gif=animations[i].gif(trace),
            trace=trace,
        )
        for i, trace in enumerate(traces)
    ]
    return Played(episodes, recordings, env.report(), reached, explained)


def _can_be_drawn(env: DenseEnv) -> bool:
    try:
        env.frame(0)
    except LookupError:
        return False
    return True


def _mission(env: DenseEnv, obs: Observation, i: int) -> str:
    return env.texts[int(obs["mission"][i])] if "mission" in obs else env.env_spec.id
