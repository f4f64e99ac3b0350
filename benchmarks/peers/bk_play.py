"""Recorded BabyAI play for bk's potentials: 64 players, the planner with errors, chunk by chunk.

record ──> chunks, each of 1,024 windows of 5 observations ──> both sides
       └─> segments in words ──> a label folder of goals, pairs to label
"""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import envs
from envs.babyai import Expert
from learner.windows import Trail, Windows

LEVEL = "babyai/Text-GoToLocal-Pretraining-S20"
ENVS, STEPS, WINDOW = 64, 16, 5
ERRORS = 0.3
"""Share of steps with a random action instead of the planned one."""
CHOSEN = "You choose: "
"""Prefix of an action in the lines of a label stage's captions."""


class Play(NamedTuple):
    """A recording."""

    env: Any  # its spec and its texts
    chunks: list[Windows]
    told: list[list[str]]  # for each step, the captions of all players
    actions: list[NDArray[np.int64]]  # for each step, the actions of all players


def record(chunks: int, envs_: int = ENVS, steps: int = STEPS, seed: int = 0) -> Play:
    """Record chunks of windows, one window for each state after a step. A chunk before the first is discarded."""
    with contextlib.redirect_stdout(io.StringIO()):  # Minigrid prints the levels it rejects
        env: Any = envs.make(LEVEL, envs_, seed=seed, captions=True)
        obs = env.begin()
    names = [name for name, field in env.env_spec.fields.items() if name != "mission"]
    trail, expert, random = Trail(names, WINDOW), Expert(), np.random.default_rng(seed)
    trail.begin(obs)
    play = Play(env, [], [], [])
    for _ in range(chunks + 1):
        for _ in range(steps):
            drawn = random.random(envs_) < ERRORS
            actions = np.where(drawn, random.integers(0, 3, envs_), expert.act(env))
            play.told.append(env.texts.texts(obs["caption"]))
            play.actions.append(actions)
            transition = env.advance(actions)
            trail.add(actions, transition)
            obs = transition.obs
        found, _ = trail.chunk()
        n = steps * envs_  # windows after these are last states of episodes
        play.chunks.append(Windows(found.rows, found.index[:n], found.actions[:n]))
    del play.chunks[0]
    return play


def segment(play: Play, player: int, begin: int, actions: int) -> list[str]:
    """A player's next `actions` actions and the captions around them, as lines in time order."""
    names, lines = play.env.env_spec.action_names, []
    for t in range(begin, begin + actions):
        lines += [play.told[t][player], f"{CHOSEN}{names[play.actions[t][player]]}"]
    return [*lines, play.told[begin + actions][player]]


def segments(play: Play, count: int, actions: int, seed: int = 0) -> list[list[str]]:
    """Up to `count` different segments, sampled at random."""
    random, found = np.random.default_rng(seed), dict[tuple[str, ...], None]()
    for _ in range(100 * count):
        if len(found) == count:
            break
        player, begin = random.integers(len(play.told[0])), random.integers(len(play.told) - actions)
        found[tuple(segment(play, int(player), int(begin), actions))] = None
    return [list(lines) for lines in found]


def told(play: Play, windows: Windows) -> tuple[list[list[str]], list[list[str]]]:
    """For each window, the texts of its past and of its last step: observation, action, ..., observation."""
    pasts, transitions, names = [], [], play.env.env_spec.action_names
    for ids, actions in zip(windows.obs("caption"), windows.actions.tolist(), strict=True):
        *seen, now = play.env.texts.texts(ids)
        texts = [text for s, a in zip(seen, actions, strict=True) if a >= 0 for text in (s, names[a])] + [now]
        pasts.append(texts[:-2] or texts)
        transitions.append(texts[-3:])
    return pasts, transitions


def label_folder(play: Play, folder: Path, count: int = 60) -> Path:
    """A label stage's folder with made-up goals: to go to the objects that each segment sees."""
    captions = segments(play, count, actions=3)
    goals = []
    for i, lines in enumerate(captions):
        things = {word for line in lines for word in ("key", "ball", "box") if word in line}
        goals.append({"segment": i, "goals": [f"go to the {thing}" for thing in sorted(things)] or ["look around"]})
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in (("captions.jsonl", captions), ("goals.jsonl", goals)):
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder
