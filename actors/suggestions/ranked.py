"""Goals of the environment in an order, for arms that ask no model.

Likeness    a situation -> the goals whose sentences a sentence encoder finds most like it
Order       an order of all goals for each situation, of which the oracle gives the first that are possible
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from actors.suggestions.asked import Goals
from actors.suggestions.rows import NONE, Rows
from actors.suggestions.vocabulary import Embed
from envs.knowledge import Knowledge
from envs.text import text_hash
from llm_service.embedding import embed_one
from llm_service.patterns import Pattern

Kind = Literal["depth", "name", "random"]


class Likeness:
    """Suggestions by cosine similarity alone: no model is asked, and no rule of ours decides.

    A situation is embedded once, when it is new: about 9 ms.

    Args:
        goals: names of the environment's goals.
        limit: number of goals of each situation.
        embed: text -> unit vector.
    """

    def __init__(self, goals: Sequence[str], limit: int, embed: Embed = embed_one) -> None:
        self._goals, self._limit, self._embed = tuple(goals), limit, embed
        self._codes = np.stack([embed(goal) for goal in goals])
        self._found: dict[str, Goals] = {}

    def ask(self, situations: Sequence[str]) -> None:
        """Rank the goals of these situations."""
        for situation in situations:
            best = np.argsort(-(self._codes @ self._embed(situation)), kind="stable")[: self._limit]
            self._found[situation] = tuple(self._goals[goal] for goal in best)

    def poll(self) -> dict[str, Goals]:
        """The goals of the situations since the last call, the most similar first."""
        found, self._found = self._found, {}
        return found

    wait = poll


class Order:
    """The order in which the oracle gives the G goals of an environment.

    Args:
        kind: `depth`: by falling `worth` of the goals in the environment's knowledge, which in Crafter grows with the
            length of the way to a goal; `name`: by the alphabet; `random`: drawn for each situation.
        goals: their names.

    Attributes:
        fixed: numbers of the goals [G], the first first; None if the order depends on the situation.
    """

    def __init__(self, kind: Kind, goals: Sequence[str], known: Knowledge) -> None:
        self._number = len(goals)
        self._of: dict[str, NDArray[np.intp]] = {}
        self.fixed: NDArray[np.intp] | None = None
        if kind == "depth":
            self.fixed = np.argsort([-worth for worth in worths(goals, known)], kind="stable")
        elif kind == "name":
            self.fixed = np.argsort(goals, kind="stable")

    def of(self, situations: Sequence[str]) -> NDArray[np.intp]:
        """Numbers of the goals [N, G] in each of N situations; equal situations have equal orders."""
        if self.fixed is not None:
            return np.broadcast_to(self.fixed, (len(situations), self._number))
        for situation in set(situations) - self._of.keys():
            self._of[situation] = np.random.default_rng(abs(text_hash(situation))).permutation(self._number)
        return np.stack([self._of[situation] for situation in situations])


def first(possible: NDArray[np.bool_], most: int, order: NDArray[np.intp] | None = None) -> Rows:
    """Numbers of the first possible goals of N envs [N, K], K at most `most`; empty places are -1.

    Args:
        possible: [N, G] by goal.
        order: [N, G] goals, the first first; None: as they are listed.
    """
    if order is None:
        order = np.broadcast_to(np.arange(possible.shape[1]), possible.shape)
    possible = np.take_along_axis(possible, order, 1)
    place = possible.cumsum(1) - 1
    env, column = np.nonzero(possible & (place < most))
    found = np.full((len(possible), place[env, column].max(initial=-1) + 1), NONE, np.int32)
    found[env, place[env, column]] = order[env, column]
    return found


def worths(goals: Sequence[str], known: Knowledge) -> list[float]:
    """What the environment's knowledge says that each goal is worth, in (0, 1]; 1 if it says nothing."""
    slots = known.get("slots", {})
    said = [(Pattern(entry["goal"], slots), entry.get("worth", 1.0)) for entry in known.get("goals", ())]
    return [max((worth for form, worth in said if form.whole(goal) is not None), default=1.0) for goal in goals]
