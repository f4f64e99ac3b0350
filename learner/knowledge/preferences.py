"""Preferences between segments, from a language model.

preferences.jsonl    {"first": 3, "second": 17, "label": "first", "probability": 1.0, "consistent": true}
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from learner.store.episodes import StoreError

FILE = "preferences.jsonl"


@dataclass(frozen=True)
class Preferences:
    """P judged pairs; pairs for which the model abstained or failed are absent."""

    first: NDArray[np.int64]  # [P] segment
    second: NDArray[np.int64]  # [P] another
    probability: NDArray[np.float32]  # [P] that the first is better: 1, 0, or 0.5 for a tie

    def __len__(self) -> int:
        return len(self.first)

    @property
    def decided(self) -> int:
        """Number of pairs without a tie, the denominator of an agreement."""
        return int((self.probability != 0.5).sum())

    def take(self, index: NDArray[np.int64] | NDArray[np.bool_]) -> Preferences:
        """Some of the preferences."""
        return Preferences(self.first[index], self.second[index], self.probability[index])

    def agreement(self, values: NDArray[np.float32]) -> float:
        """Share of pairs without a tie in which the better segment has the higher of `values` [S]; equal values count
        half. NaN if all pairs are ties."""
        decided = self.probability != 0.5
        difference = np.sign(values[self.first] - values[self.second])[decided]
        right = 0.5 + 0.5 * difference * np.sign(self.probability[decided] - 0.5)
        return float(right.mean()) if len(right) else float("nan")

    @staticmethod
    def load(folder: Path) -> Preferences:
        """The preferences of a label stage.

        Raises:
            StoreError: they are missing or damaged.
        """
        try:
            lines = [json.loads(line) for line in (folder / FILE).read_text(encoding="utf-8").splitlines()]
            told = [line for line in lines if line["probability"] is not None]
            kinds = {"first": np.int64, "second": np.int64, "probability": np.float32}
            return Preferences(*(np.array([line[name] for line in told], kind) for name, kind in kinds.items()))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreError(f"{folder / FILE} cannot be read: {error}; run its stage again") from None
