"""Names of goals and of events as numbers, and the similarity of each goal and each event.

A name is embedded once, when it is new; after that a similarity is an entry of a table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llm_service.embedding import embed_one
from llm_service.patterns import Pattern

Embed = Callable[[str], NDArray[np.float32]]

_ARTICLE = re.compile(r"\b(?:an?|the)\s+")
_NONE = -1


class Endings:
    """What ends for an episode when a goal is reached, from an environment's patterns."""

    def __init__(self, known: Mapping[str, Any]) -> None:
        slots = known.get("slots", {})
        self._endings = [
            (Pattern(ending["reached"], slots), [Pattern(text, slots) for text in ending["ends"]])
            for ending in known.get("endings", ())
        ]

    def of(self, name: str) -> str:
        """What reaching a goal of this name ends, as a name; "" for nothing."""
        return next((reached.fill(found[0]) for reached, _ in self._endings if (found := reached.find([name]))), "")

    def that_ends(self, name: str) -> str:
        """What ends a goal of this name."""
        for reached, ended in self._endings:
            for pattern in ended:
                if found := pattern.find([name]):
                    return reached.fill(found[0])
        return ""


class Vocabulary:
    """Goals and events by number, and the similarity of each goal and each event.

    Args:
        synonyms: names of the same event.
        endings: what ends when goals are reached.
        embed: text -> unit vector.

    Attributes:
        goals: names of the goals so far.
        meaning: int32 [G + 1] by goal; goals and events with the same meaning share it. The last entry is for no goal.
        event_meaning: int32 [D + 1] by event, likewise.
        ended_by: int32 [G + 1] by goal, the number of what ends it for an episode, -1 if nothing does.
        ends: int32 [G + 1] by goal, that number of what reaching it ends, or -1.
        event_ends: int32 [D + 1] by event, likewise.
        similarity: float32 [D + 1, G + 1], -1 in the last row and column.
    """

    def __init__(
        self, synonyms: Iterable[Sequence[str]], embed: Embed = embed_one, endings: Endings | None = None
    ) -> None:
        self._embed, self._endings = embed, endings or Endings({})
        self._first = {_plain(name): _plain(names[0]) for names in synonyms for name in names}
        self.meanings: dict[str, int] = {}
        self._goal: dict[str, int] = {}
        self._event: dict[str, int] = {}
        self.meaning = self.event_meaning = np.full(1, _NONE, np.int32)
        self.ended_by = self.ends = self.event_ends = np.full(1, _NONE, np.int32)
        self.similarity = np.full((1, 1), -1, np.float32)

    @property
    def goals(self) -> list[str]:
        return list(self._goal)

    def goal(self, name: str) -> int:
        """The number of a goal."""
        if name not in self._goal:
            self._goal[name] = len(self._goal)
            self.meaning = np.insert(self.meaning, -1, self.means(name))
            self.ended_by = np.insert(self.ended_by, -1, self._ending(self._endings.that_ends(name)))
            self.ends = np.insert(self.ends, -1, self._ending(self._endings.of(name)))
            alike = [self._alike(event, name) for event in self._event]
            self.similarity = np.insert(self.similarity, -1, [*alike, -1], axis=1)
        return self._goal[name]

    def event(self, name: str) -> int:
        """The number of an event."""
        if name not in self._event:
            self._event[name] = len(self._event)
            self.event_meaning = np.insert(self.event_meaning, -1, self.means(name))
            self.event_ends = np.insert(self.event_ends, -1, self._ending(self._endings.of(name)))
            alike = [self._alike(name, goal) for goal in self._goal]
            self.similarity = np.insert(self.similarity, -1, [*alike, -1], axis=0)
        return self._event[name]

    def means(self, name: str) -> int:
        """The number of the meaning of a goal or event: the same for synonyms."""
        plain = _plain(name)
        return self.meanings.setdefault(self._first.get(plain, plain), len(self.meanings))

    def _ending(self, name: str) -> int:
        return self.means(f"{name}*") if name else _NONE

    def _alike(self, event: str, goal: str) -> float:
        """Cosine similarity; 1 for the same meaning."""
        if self.means(event) == self.means(goal):
            return 1.0
        return float(self._embed(event) @ self._embed(goal))


def _plain(name: str) -> str:
    return _ARTICLE.sub("", name.lower())
