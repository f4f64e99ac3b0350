"""Programs that a language model wrote, judged by what it prefers: each on segments, the best chosen, told apart.

code, segments ──> sandbox ──> values [S], faults ──> agreement with half of the preferences: which is chosen
                                                  ──> agreement with the other half: what is told of the chosen one
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
"""Segments of which a program's values are shown to whoever writes the next one."""
EVIDENCE_CHARACTERS = 14_000
"""Of their captions at most, so that the program finds room beside them; segments beyond are left out."""
FAULTLESS = 0.5
"""Share of segments that a program must have a value for."""


@dataclass(frozen=True)
class Candidate:
    """A program of one round, and what it is worth."""

    variant: int
    round: int
    code: str  # in normal form; empty: none was written
    hash: str = ""
    values: NDArray[np.float32] = field(
        default_factory=lambda: np.zeros(0, np.float32)
    )  # of each segment; 0 at a fault
    faults: Mapping[str, int] = field(default_factory=dict)  # segments without a value, by the reason
    agreement: float = math.nan  # with the preferences that are chosen by
    reason: str = ""  # why none was written

    @property
    def valid(self) -> bool:
        """Whether it may be chosen."""
        judged = len(self.values) - sum(self.faults.values())
        return bool(self.code) and judged > FAULTLESS * len(self.values) and math.isfinite(self.agreement)

    def dump(self) -> dict[str, Any]:
        """As JSON."""
        kept = {name: getattr(self, name) for name in ("round", "variant", "hash", "code", "faults", "reason")}
        return kept | {"agreement": number(self.agreement), "valid": self.valid}


class Judge:
    """Judges programs on segments.

    Args:
        shown: the field that they are shown.
        chosen_by: preferences between the segments.
        seed: of the segments that are evidence.
    """

    def __init__(self, sandbox: Sandbox, segments: Segments, shown: str, chosen_by: Preferences, seed: int) -> None:
        self._sandbox, self._segments, self._shown, self._chosen_by = sandbox, segments, shown, chosen_by
        self._seed, self._windows = seed, segments.windows()

    def judge(self, variant: int, turn: int, code: str, digest: str) -> Candidate:
        """A program that was written in round `turn`."""
        done = self._sandbox.check(code, self._windows.obs(self._shown), self._windows.actions)
        agreement = self._chosen_by.agreement(done.values)
        return Candidate(variant, turn, code, digest, done.values, dict(done.faults), agreement)

    def evidence(self, code: str, turn: int) -> list[dict[str, Any]]:
        """Captions of some segments, in each round others, with what a program says: its value, or its fault."""
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
    """Those by which a program is chosen, and those by which the chosen one is judged."""
    drawn = np.random.default_rng([seed, 5]).permutation(len(preferences))
    middle = (len(drawn) + 1) // 2
    return preferences.take(np.sort(drawn[:middle])), preferences.take(np.sort(drawn[middle:]))


def best(candidates: Sequence[Candidate]) -> Candidate | None:
    """The valid one of the highest agreement; of several the first; None: none is valid."""
    return max((c for c in candidates if c.valid), key=lambda candidate: candidate.agreement, default=None)


def number(value: float) -> float | None:
    """As JSON has it: None for what cannot be told."""
    return value if math.isfinite(value) else None
