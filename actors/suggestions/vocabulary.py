"""Names of goals and of deeds as numbers, and how alike each goal is to each deed.

A name is embedded once, when it is new; from then on a similarity is an entry of a table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from envs.knowledge import Knowledge
from llm_service.embedding import embed_one
from llm_service.patterns import Pattern

Embed = Callable[[str], NDArray[np.float32]]

_ARTICLE = re.compile(r"\b(?:an?|the)\s+")
_NONE = -1


class Vocabulary:
    """Goals and deeds by number, and how alike each goal is to each deed.

    Args:
        synonyms: names of one and the same deed.
        group: what is reached together with a goal or deed, by its name; "" if that is reached alone.
        embed: text -> unit vector.

    Attributes:
        goals: names of the goals so far.
        meaning: int32 [G + 1] by goal; goals and deeds of one meaning share it. The last is of no goal.
        deed_meaning: int32 [D + 1] by deed, likewise.
        reaches, deed_reaches: the same, but that those of a group have one number.
        similarity: float32 [D + 1, G + 1], -1 in the last row and column.
    """

    def __init__(
        self, synonyms: Iterable[Sequence[str]], embed: Embed = embed_one, group: Callable[[str], str] = lambda _: ""
    ) -> None:
        self._embed, self._group = embed, group
        self._first = {_plain(name): _plain(names[0]) for names in synonyms for name in names}
        self.meanings: dict[str, int] = {}
        self._goal: dict[str, int] = {}
        self._deed: dict[str, int] = {}
        self.meaning = self.deed_meaning = np.full(1, _NONE, np.int32)
        self.reaches = self.deed_reaches = np.full(1, _NONE, np.int32)
        self.similarity = np.full((1, 1), -1, np.float32)

    @property
    def goals(self) -> list[str]:
        return list(self._goal)

    def goal(self, name: str) -> int:
        """The number of a goal."""
        if name not in self._goal:
            self._goal[name] = len(self._goal)
            self.meaning = np.insert(self.meaning, -1, self.means(name))
            self.reaches = np.insert(self.reaches, -1, self._reached_by(name))
            alike = [self._alike(deed, name) for deed in self._deed]
            self.similarity = np.insert(self.similarity, -1, [*alike, -1], axis=1)
        return self._goal[name]

    def deed(self, name: str) -> int:
        """The number of a deed."""
        if name not in self._deed:
            self._deed[name] = len(self._deed)
            self.deed_meaning = np.insert(self.deed_meaning, -1, self.means(name))
            self.deed_reaches = np.insert(self.deed_reaches, -1, self._reached_by(name))
            alike = [self._alike(name, goal) for goal in self._goal]
            self.similarity = np.insert(self.similarity, -1, [*alike, -1], axis=0)
        return self._deed[name]

    def means(self, name: str) -> int:
        """The number of what a goal or deed means: the same for synonyms."""
        plain = _plain(name)
        return self.meanings.setdefault(self._first.get(plain, plain), len(self.meanings))

    def _reached_by(self, name: str) -> int:
        """The number of its group, else of what it means."""
        group = self._group(name)
        return self.means(f"{group}*" if group else name)

    def _alike(self, deed: str, goal: str) -> float:
        """Cosine similarity; 1 for what means the same."""
        if self.means(deed) == self.means(goal):
            return 1.0
        return float(self._embed(deed) @ self._embed(goal))


def grouping(known: Knowledge) -> Callable[[str], str]:
    """What a goal or deed is reached together with, by its name: the first pattern of `once` that stands in it."""
    patterns = [Pattern(text, known.get("slots", {})) for text in known.get("once", ())]

    def group(name: str) -> str:
        return next((pattern.fill(found[0]) for pattern in patterns if (found := pattern.find([name]))), "")

    return group


def _plain(name: str) -> str:
    return _ARTICLE.sub("", name.lower())
