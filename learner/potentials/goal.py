"""How near the last step came to the goals that a language model would pursue here: cosines of sentences.

    texts of a window ──> text ids, in order of time ──┬─ past ───────> 3 nearest keys ─┐
                                                       └─ transition ─> cosines ────────┴─> phi in [0, 1]

Goals come from a label stage, which asked about segments of episodes (`learner/knowledge/goal_bank.py`). No model is
asked here, and each text is embedded once: known pasts and transitions are looked up, others are summed from their
observations, and new observations from their sentences. The caches are bounded, and their bits do not depend on other
calls or their order.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field as Option

from envs.api import EnvSpec, Field
from envs.config import Part
from learner.knowledge.goal_bank import By, GoalBank, digest, events, read, units
from learner.options import Artifact
from learner.potentials import Potential, PotentialSetup, ShapingConfig
from learner.store.episodes import StoreError
from learner.windows import NO_ACTION, Windows
from llm_service.embedding import embed_one

CAPTION, MISSION = "caption", "mission"
NO_TEXT = -1

MOST_UNITS = 10_000
"""Maximum number of cached text embeddings."""
MOST_SEEN = 20_000
"""Maximum number of cached observations."""
MOST_STEPS = 200_000
"""Maximum number of cached pasts, and of transitions."""
MOST_BYTES = 100_000_000
"""Maximum memory of each cache; rows grow with the number of goals, so this may allow fewer entries than the limits
above."""

Ids = NDArray[np.int32]


class GoalConfig(Part):
    """Options of `method.shaping.potential=goal`."""

    goals: Artifact = ""
    """`goal`: the folder of a label stage, or run:NAME/label: goals that a language model named for segments."""
    goal_by: By = "sentence"
    """`goal`: `sentence` embeds each sentence and each action's name once, and adds them up; `caption` embeds whole
    captions of several steps, as published, which are nearly all new in large worlds."""
    goal_captions: list[str] = Option(default=[])
    """`goal`: text fields that describe the observation; empty: `caption`, otherwise all texts except `mission`."""
    goal_quantile: float = Option(default=0.9, ge=0, le=1)
    """`goal`: phi is 0 for steps less similar to their goals than this share of the labelled segments."""


def _folder(config: GoalConfig) -> Path:
    return Path(os.path.expanduser(config.goals))  # that of Path raises where there is no such user


def _told(config: GoalConfig, fields: Mapping[str, Field]) -> tuple[str, ...]:
    """Names of the fields that describe the observation; none if an environment has no such texts."""
    texts = [name for name, field in fields.items() if field.kind == "text" and not field.shape]
    if config.goal_captions:
        return tuple(name for name in config.goal_captions if name in texts)
    return (CAPTION,) if CAPTION in texts else tuple(name for name in texts if name != MISSION)


class Kept:
    """A cache: rows of values by rows of integers; it is cleared when there are too many.

    Attributes:
        asked, made: number of lookups, and how many of them had to be computed.
    """

    def __init__(self, most: int) -> None:
        self._most, self._place = most, dict[bytes, int]()
        self._values: NDArray[Any] | None = None
        self.asked = self.made = 0

    def __len__(self) -> int:
        return len(self._place)

    def find(self, keys: Ids, make: Callable[[Ids], NDArray[Any]]) -> NDArray[Any]:
        """Values [M, ...] of keys [M, W]. `make` gets the distinct unknown keys."""
        if len(self._place) > self._most:
            self._place.clear()
        keys = np.ascontiguousarray(keys)
        named: list[bytes] = keys.view(f"V{keys.itemsize * keys.shape[1]}")[:, 0].tolist()
        first: dict[bytes, int] = {}
        for i, name in enumerate(named):
            if name not in self._place:
                first.setdefault(name, i)
        self.asked, self.made = self.asked + len(named), self.made + len(first)
        if first:
            self._keep(make(keys[[*first.values()]]), first)
        assert self._values is not None
        found: NDArray[Any] = self._values[[self._place[name] for name in named]]
        return found

    def _keep(self, new: NDArray[Any], names: Iterable[bytes]) -> None:
        if self._values is None:
            self._values = np.empty((64, *new.shape[1:]), new.dtype)
        start, end = len(self._place), len(self._place) + len(new)
        while end > len(self._values):
            self._values = np.concatenate([self._values, np.empty_like(self._values)])
        self._values[start:end] = new
        self._place.update(zip(names, range(start, end), strict=True))


class Goal(Potential):
    """As published: the largest cosine of the last step's caption to the goals of similar pasts."""

    Config = GoalConfig

    @classmethod
    def check(cls, config: ShapingConfig, spec: EnvSpec) -> None:
        own = config.own(GoalConfig)
        if not own.goals:
            raise ValueError("method.shaping.potential=goal needs goals: set method.shaping.goals=run:NAME/label")
        try:
            captions, _ = read(_folder(own))
        except StoreError as error:
            raise ValueError(f"method.shaping.goals: {error}") from None
        done = events(captions)
        if done and not done & {*spec.action_names}:
            raise ValueError(
                f"method.shaping.goals: {own.goals} tells of another world, where one can {min(done)!r} and nothing "
                f"that one can in {spec.id}: ask about this world's own episodes"
            )
        told = _told(own, spec.fields)
        if missing := [name for name in own.goal_captions if name not in told]:
            raise ValueError(f"method.shaping.goal_captions={missing[0]}: {spec.id} shows no such text")
        if not told:
            raise ValueError(
                f"method.shaping.potential=goal compares captions, and {spec.id} shows none: set env.captions=true, "
                "or env.observe=[...,around] in Crafter"
            )

    @classmethod
    def content(cls, config: ShapingConfig) -> str:
        """SHA-256 of the goals and the captions that they were named for."""
        return digest(_folder(config.own(GoalConfig)))

    def __init__(self, setup: PotentialSetup) -> None:
        own = setup.config.own(GoalConfig)
        self.fields = _told(own, setup.fields)
        self.bank = GoalBank.of(_folder(own), own.goal_by)
        self.threshold = self.bank.threshold(own.goal_quantile)
        self._texts = setup.texts
        self._events = np.array([*map(self._texts.intern, setup.action_names), NO_TEXT], np.int32)  # the last: of -1
        self._known = dict(zip(self.bank.units, self.bank.vectors, strict=True))
        self._row_of: dict[str, NDArray[np.float32]] = {}
        self._nothing = np.zeros(self.bank.goals.shape[1] + len(self.bank.keys) + len(self.bank.goals), np.float32)
        self._embedded = 0
        fit = MOST_BYTES // self._nothing.nbytes
        self._most_units, self._seen, self._pasts = min(MOST_UNITS, fit), Kept(min(MOST_SEEN, fit)), Kept(MOST_STEPS)
        self._transitions = Kept(min(MOST_STEPS, MOST_BYTES // (self._nothing.itemsize * len(self.bank.goals))))

    def phi(self, windows: Windows) -> NDArray[np.float32]:
        past, transition = self._split(windows)
        nearest = self._pasts.find(past, lambda keys: self.bank.nearest(self._rows(keys)))
        likeness = self._transitions.find(transition, lambda keys: self.bank.likeness(self._rows(keys)))
        closest = self.bank.closest(nearest, likeness)
        return np.where(closest > self.threshold, closest, np.float32(0))

    def counts(self) -> dict[str, int]:
        """Numbers of looked-up and of new pasts and transitions, and of texts embedded for them."""
        steps = (self._pasts, self._transitions)
        found = {"texts": sum(kept.asked for kept in steps), "texts_new": sum(kept.made for kept in steps)}
        found["texts_embedded"], self._embedded = self._embedded, 0
        for kept in steps:
            kept.asked = kept.made = 0
        return found

    def _split(self, windows: Windows) -> tuple[Ids, Ids]:
        """Text ids in order of time, of pasts and of transitions (`goal_bank.split`): F of an observation, one of an
        action, F, ..., F. `NO_TEXT` fills the time before the episode."""
        m, width = len(windows), len(self.fields)
        seen = np.stack([windows.obs(name) for name in self.fields], 2).astype(np.int32)  # [M, K, F]
        seen[:, :-1][windows.actions == NO_ACTION] = NO_TEXT
        before = np.concatenate([seen[:, :-1], self._events[windows.actions][..., None]], 2)
        texts = np.concatenate([before.reshape(m, -1), seen[:, -1]], 1)
        if not windows.actions.shape[1]:
            return texts, texts
        past = texts[:, : -width - 1].copy()
        first = windows.actions[:, -1] == NO_ACTION
        past[first, -width:] = texts[first, -width:]
        return past, texts[:, -2 * width - 1 :]

    # ---- texts to rows: one by one, and sums in order of time, so that bits depend on nothing else ----

    def _rows(self, keys: Ids) -> NDArray[np.float32]:
        """Rows [M, D + n + G] of sequences of texts, ids [M, W]."""
        if self.bank.by == "caption":
            return self._each(keys)
        ids, where = np.unique(keys, return_inverse=True)
        rows, where = self._seen.find(ids[:, None], self._each), where.reshape(keys.shape)
        total = rows[where[:, 0]]
        for column in where.T[1:]:
            total += rows[column]
        return total

    def _each(self, keys: Ids) -> NDArray[np.float32]:
        texts = [[self._texts[i] for i in key if i != NO_TEXT] for key in keys.tolist()]
        return np.stack([self._row(units(told, self.bank.by)) for told in texts])

    def _row(self, parts: Sequence[str]) -> NDArray[np.float32]:
        """The sum of the rows of embedded units."""
        if len(self._row_of) > self._most_units:
            self._row_of.clear()
        for text in parts:
            if text not in self._row_of:
                vector = self._known.get(text)
                self._embedded += vector is None
                self._row_of[text] = self.bank.row(embed_one(text) if vector is None else vector)
        return sum((self._row_of[text] for text in parts), start=self._nothing)


POTENTIAL = Goal
