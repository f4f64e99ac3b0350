"""Programs that a language model wrote, evaluated against its own preferences: run on segments, the best is selected,
and reported on held-out preferences.

code, segments ──> sandbox ──> values [S], faults ──> agreement with half of the preferences: selects a program
                                                  ──> agreement with the other half: reported for the selected one
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learner.knowledge.preferences import Preferences
from learner.knowledge.segments import Segments
from learner.windows import Windows
from llm_service.sandbox.process import Sandbox

EVIDENCE = 5
"""Segments whose values by a program are shown to the writer of the next program."""
EVIDENCE_CHARACTERS = 14_000
"""Maximum characters of their captions, to leave room for the program; further segments are left out."""
FAULTLESS = 0.5
"""Minimum share of segments for which a program must return a value."""


@dataclass(frozen=True)
class Candidate:
    """A program of one round, and its evaluation."""

    variant: int
    round: int
    code: str  # in normal form; empty: none was written
    hash: str = ""
    values: NDArray[np.float32] = field(
        default_factory=lambda: np.zeros(0, np.float32)
    )  # value of each segment; 0 at a fault
    faults: Mapping[str, int] = field(default_factory=dict)  # segments without a value, by the reason
    agreement: float = math.nan  # with the preferences used for selection
    reason: str = ""  # why no program was written

    @property
    def valid(self) -> bool:
        """Whether it may be selected."""
        judged = len(self.values) - sum(self.faults.values())
        return bool(self.code) and judged > FAULTLESS * len(self.values) and math.isfinite(self.agreement)

    def dump(self) -> dict[str, Any]:
        """As JSON."""
        kept = {name: getattr(self, name) for name in ("round", "variant", "hash", "code", "faults", "reason")}
        return kept | {"agreement": number(self.agreement), "valid": self.valid}


class Judge:
    """Judges programs on segments.

    Args:
        shown: the field that programs read.
        chosen_by: preferences between the segments, used for selection.
        seed: of the choice of segments shown as evidence.
    """

    def __init__(self, sandbox: Sandbox, segments: Segments, shown: str, chosen_by: Preferences, seed: int) -> None:
        self._sandbox, self._segments, self._shown, self._chosen_by = sandbox, segments, shown, chosen_by
        self._seed, self._windows = seed, segments.windows()

    def judge(self, variant: int, turn: int, code: str, digest: str) -> Candidate:
        """Evaluate a program that was written in round `turn`."""
        done = self._sandbox.check(code, self._windows.obs(self._shown), self._windows.actions)
        agreement = self._chosen_by.agreement(done.values)
        return Candidate(variant, turn, code, digest, done.values, dict(done.faults), agreement)

    def evidence(self, code: str, turn: int) -> list[dict[str, Any]]:
        """Captions of some segments, different in each round, with a program's result: its value or its fault."""
        chosen = np.random.default_rng([self._seed, 6, turn]).permutation(len(self._segments))[:EVIDENCE]
        found, left = [], EVIDENCE_CHARACTERS
        for i in chosen.tolist():
            caption = self._segments.captions[i]
            left -= sum(map(len, caption))
            if left < 0:
                break
            window: Windows = self._segments.windows(slice(i, i + 1))
            done = self._sandbox.phi(code, window.obs(self._shown), window.actions)
            found.append({"caption": caption, "value": next(iter(done.faults), float(done.values[0]))})
        return found


def halves(preferences: Preferences, seed: int) -> tuple[Preferences, Preferences]:
    """The preferences that select a program, and those that evaluate the selected one."""
    drawn = np.random.default_rng([seed, 5]).permutation(len(preferences))
    middle = (len(drawn) + 1) // 2
    return preferences.take(np.sort(drawn[:middle])), preferences.take(np.sort(drawn[middle:]))


def best(candidates: Sequence[Candidate]) -> Candidate | None:
    """The valid program with the highest agreement, the first of several; None: no program is valid."""
    return max((c for c in candidates if c.valid), key=lambda candidate: candidate.agreement, default=None)


def number(value: float) -> float | None:
    """As JSON: None for NaN."""
    return value if math.isfinite(value) else None
