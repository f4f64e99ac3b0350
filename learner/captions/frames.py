"""What a captioner learns from: states that players pass, each with its picture, its facts, and the event before it.

    N wanderers ──> (picture before, picture after, facts after, event) each step ──> the last few thousand are kept

A wanderer walks on in one direction for a while, and now and then does something that makes sense, or anything at all.
No picture is stored: new ones cost less than a gradient step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import envs
from envs.api import CELLS, FACTS, HELD_OUT_FIRST
from learner.captions.about import PICTURE

READS = (PICTURE, CELLS, FACTS)
"""The fields that they are fitted to."""
GOES_ON, SENSIBLE = 0.45, 0.45
"""Chances that a wanderer walks on, and that it does something that makes sense; else it does anything."""
TURNS = 0.2
"""Chance that who walks takes another direction."""


class Steps(NamedTuple):
    """Steps of N players, or a sample of them."""

    before: NDArray[np.uint8]  # [N, side, side, 3], pictures of the states in which they acted
    after: NDArray[np.uint8]  # of the states that followed
    cells: NDArray[np.int64]  # [N, C], what is where in those
    facts: NDArray[np.int64]  # [N, F], of those
    event: NDArray[np.int64]  # [N], what was done, a place in `Wanderers.events`, or its length

    def take(self, rows: NDArray[Any]) -> Steps:
        """Those of some players."""
        return Steps(self.before[rows], self.after[rows], self.cells[rows], self.facts[rows], self.event[rows])


class Wanderers:
    """N players.

    Args:
        env_id, options: the environment; `env.observe` has `pixels`, `cells` and `facts`.
        n: number of players N.
        seed: of training episodes and of the players' choices.
        held_out: play one held-out episode each instead: `HELD_OUT_FIRST` + `seed` + 0, 1, ...

    Attributes:
        events: names of the events that are told apart: those of all actions.
        playing: bool [N], who is still in the first episode.
    """

    def __init__(self, env_id: str, options: dict[str, Any], n: int, seed: int, held_out: bool = False) -> None:
        self.env = envs.make(env_id, n, seed, **options)
        spec = self.env.env_spec
        self.events = spec.action_names
        self.playing = np.ones(n, np.bool_)
        self._number = {name: event for event, name in enumerate(self.events)}
        self._walks = np.array([self._number[name] for name in self.events if name.startswith("move ")])
        self._acts = np.array([self._number.get(goal, -1) for goal in spec.goals])
        self._random = np.random.default_rng([seed, n])
        self._heading = self._random.choice(self._walks, n)
        self._obs = self.env.begin(HELD_OUT_FIRST + seed + np.arange(n) if held_out else None)

    def step(self) -> Steps:
        """Each player takes a step."""
        before = self._obs[PICTURE]
        moved = self.env.advance(self._choice())
        self._obs, after = moved.obs, {name: moved.obs[name].copy() for name in READS}
        for name in READS if len(moved.final_index) else ():
            after[name][moved.final_index] = moved.final_obs[name]
        names = (self.env.texts[text] if text >= 0 else "" for text in self.env.events.tolist())
        said = [self._number.get(name, len(self.events)) for name in names]
        cells, facts = after[CELLS].astype(np.int64), after[FACTS].astype(np.int64)
        steps = Steps(before, after[PICTURE], cells, facts, np.array(said))
        self.playing = self.playing & ~(moved.terminated | moved.truncated)
        return steps

    def _choice(self) -> NDArray[np.int64]:
        n, random = self.env.num_envs, self._random
        turns = random.random(n) < TURNS
        self._heading[turns] = random.choice(self._walks, int(turns.sum()))
        mood, anything = random.random(n), random.integers(0, len(self.events), n)
        possible = self.env.possible_goals() * random.random((n, len(self._acts)))
        act = np.where(possible.any(1), self._acts[possible.argmax(1)], anything)
        return np.where(mood < GOES_ON, self._heading, np.where(mood < GOES_ON + SENSIBLE, act, anything))


@dataclass
class Recent:
    """The steps that were added last, at most `most`; samples have rare events more often than they happen.

    An event is drawn in proportion to the root of its number, so that none is learned from hardly ever.
    """

    most: int
    _kept: Steps | None = None
    _added: int = 0

    def add(self, steps: Steps) -> None:
        if self._kept is None:
            self._kept = steps.take(np.zeros(self.most, np.int64))
        places = np.arange(self._added, self._added + len(steps.event)) % self.most
        for name in Steps._fields:
            getattr(self._kept, name)[places] = getattr(steps, name)
        self._added += len(steps.event)

    def sample(self, n: int, random: np.random.Generator) -> Steps:
        """`n` steps, drawn with replacement."""
        assert self._kept is not None, "steps are added first"
        event = self._kept.event[: self._added]
        weight = 1 / np.sqrt(np.bincount(event)[event])
        rows = random.choice(len(event), n, p=weight / weight.sum())
        return self._kept.take(rows)
