"""The behaviours of an archive that are most like a sentence, or end nearest to a place, and where a sentence leads.

    sentence ── places that it names, in order ──> likeness to the texts of all behaviours ──> nearest by text, an end
    place    ── distance of all ends ──────────────────────────────────────────────────────> nearest by end

Texts are compared by their places, as the replays of `baselines` compare them; a sentence without places is compared
by its words. The limit is one comparison per different text, some milliseconds for ten thousand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from learner.behaviours.words import Description, likeness


@dataclass(frozen=True)
class Entry:
    """A behaviour that was found."""

    row: int  # of the descriptors
    text: str  # the one of its texts that is most like the sentence; "": it has none
    likeness: float  # of this text to the sentence, in [0, 1]


class Lookup:
    """An archive of N behaviours.

    Args:
        descriptor: float32 [N, 2], where they end, world units.
        texts: of each of the N; none: it has no text.
    """

    def __init__(self, descriptor: NDArray[np.float32], texts: Sequence[Sequence[Description]]) -> None:
        self.descriptor = descriptor
        self.texts = [[told.text for told in own] for own in texts]
        self.rows: dict[str, list[int]] = {}
        for row, own in enumerate(self.texts):
            for text in own:
                self.rows.setdefault(text, []).append(row)
        self._places = {told.text: told.places for own in texts for told in own}
        self._words = {text: frozenset(text.lower().split()) for text in self.rows}

    def likeness(self, sentence: Description) -> dict[str, float]:
        """Of every different text to a sentence, in [0, 1]: by places, or by words if the sentence names no place."""
        if not sentence.places:
            return self._shared(sentence)
        of = {places: likeness(sentence.places, places) for places in set(self._places.values())}
        return {text: of[places] for text, places in self._places.items()}

    def _shared(self, sentence: Description) -> dict[str, float]:
        """Words that texts share with a sentence, as a share of all (Dice)."""
        own = frozenset(sentence.text.lower().split())
        return {text: 2 * len(own & other) / max(len(own) + len(other), 1) for text, other in self._words.items()}

    def by_text(self, sentence: Description, count: int, place: NDArray[np.float32] | None = None) -> list[Entry]:
        """Up to `count` behaviours with different texts that are most like a sentence.

        place: [2], world units; of equally alike texts, and of behaviours with one text, those that end nearest to it
            come first. None: the text with more of the sentence's words comes first.
        """
        alike, shared = self.likeness(sentence), self._shared(sentence)
        distance = self._distance(place)
        nearest = {text: min(rows, key=lambda row: distance[row]) for text, rows in self.rows.items()}
        order = sorted(nearest, key=lambda text: (-alike[text], distance[nearest[text]], -shared[text], text))
        return [Entry(nearest[text], text, alike[text]) for text in order[:count]]

    def by_end(self, place: NDArray[np.float32], count: int, sentence: Description) -> list[Entry]:
        """Up to `count` behaviours that end nearest to a place [2], world units."""
        alike, found = self.likeness(sentence), []
        for row in np.argsort(self._distance(place), kind="stable")[:count].tolist():
            text = max(self.texts[row], key=lambda text: alike[text], default="")
            found.append(Entry(row, text, alike.get(text, 0.0)))
        return found

    def leads_to(self, sentence: Description) -> tuple[NDArray[np.float32], int]:
        """Where behaviours end whose texts are most like a sentence, and how many these are: of their ends the one that
        is nearest to the median of each coordinate. With no text like it at all there are 0 of them, and it is nan.

        A true text ends where its behaviour ends, so that texts with the sentence's last place come before all others.
        """
        alike, wanted = self.likeness(sentence), sentence.places
        if same := {text for text, places in self._places.items() if wanted and places[-1:] == wanted[-1:]}:
            alike = {text: value * (text in same) for text, value in alike.items()}
        most = max(alike.values(), default=0.0)
        rows = sorted({row for text, own in self.rows.items() if alike[text] == most for row in own})
        if not most or not rows:
            return np.full(2, np.nan, np.float32), 0
        ends = self.descriptor[rows]
        return ends[np.linalg.norm(ends - np.median(ends, 0), axis=1).argmin()], len(rows)

    def _distance(self, place: NDArray[np.float32] | None) -> NDArray[np.float32]:
        if place is None:
            return np.zeros(len(self.descriptor), np.float32)
        distance: NDArray[np.float32] = np.linalg.norm(self.descriptor - place, axis=1)
        return distance
