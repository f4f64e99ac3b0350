"""How far a table of answers agrees with people: counts, by room and by furniture, and whether its sureness is earned.

answers bool [..., 269, 128] ──┐
labels  bool [..., 269, 128] ──┴──> Agreement, whole and by room and by kind of furniture
probabilities, labels ───────────> Reliability: bins for a picture
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from envs.housekeep.names import PLACES


@dataclass(frozen=True)
class Agreement:
    """Answers to yes or no questions, counted by what the labels say.

    Attributes:
        hits: both yes.
        false_yes: the answer is yes, the label no.
        false_no: the answer is no, the label yes.
        rejections: both no.
    """

    hits: int
    false_yes: int
    false_no: int
    rejections: int

    @property
    def count(self) -> int:
        """Of questions."""
        return self.hits + self.false_yes + self.false_no + self.rejections

    @property
    def accuracy(self) -> float:
        """Share of answers that are as the label; NaN without questions."""
        return _share(self.hits + self.rejections, self.count)

    @property
    def precision(self) -> float:
        """Share of yes answers that are right; NaN if there is none."""
        return _share(self.hits, self.hits + self.false_yes)

    @property
    def recall(self) -> float:
        """Share of yes labels that were found; NaN if there is none."""
        return _share(self.hits, self.hits + self.false_no)


@dataclass(frozen=True)
class Places:
    """Agreement on all objects and places, by the room and by the furniture of the place."""

    whole: Agreement
    rooms: dict[str, Agreement]
    kinds: dict[str, Agreement]


@dataclass(frozen=True, eq=False)
class Reliability:
    """What came true of answers that were given with about the same probability, in B bins of equal width.

    Attributes:
        edges: float64 [B + 1], 0 to 1. A bin has its lower edge and not its upper one, which only the last has.
        count: int64 [B], answers.
        said: float64 [B], their mean probability of yes; NaN where there are none.
        came: float64 [B], the share that the labels call yes; NaN where there are none.
        error: mean distance of the two over all answers (the expected calibration error).
    """

    edges: NDArray[np.float64]
    count: NDArray[np.int64]
    said: NDArray[np.float64]
    came: NDArray[np.float64]
    error: float


def agreement(
    answers: NDArray[np.bool_], labels: NDArray[np.bool_], asked: NDArray[np.bool_] | None = None
) -> Agreement:
    """Agreement of answers with labels, both bool of one shape; asked: bool of it, which count, None for all.

    Raises:
        ValueError: one sentence: shapes or types differ.
    """
    _same(answers=answers, labels=labels, **({} if asked is None else {"asked": asked}))
    asked = np.ones(labels.shape, np.bool_) if asked is None else asked
    counted = (answers & labels, answers & ~labels, ~answers & labels, ~answers & ~labels)
    return Agreement(*(int((cell & asked).sum()) for cell in counted))


def by_place(answers: NDArray[np.bool_], labels: NDArray[np.bool_], asked: NDArray[np.bool_] | None = None) -> Places:
    """The same of tables whose last axis are `PLACES`, by room and by furniture too.

    Raises:
        ValueError: one sentence: shapes or types differ, or there are not as many columns as places.
    """
    whole = agreement(answers, labels, asked)
    if labels.shape[-1:] != (len(PLACES),):
        raise ValueError(f"tables have a column for each of {len(PLACES)} places: got the shape {list(labels.shape)}")
    asked = np.ones(labels.shape, np.bool_) if asked is None else asked

    def parts(axis: int) -> dict[str, Agreement]:
        names = np.array([place[axis] for place in PLACES])
        return {
            str(name): agreement(answers[..., here], labels[..., here], asked[..., here])
            for name in np.unique(names)
            if (here := names == name).any()
        }

    return Places(whole, parts(0), parts(1))


def reliability(probabilities: NDArray[np.floating], labels: NDArray[np.bool_], bins: int = 10) -> Reliability:
    """Bins of probabilities of yes.

    Args:
        probabilities: 0 to 1, of any shape.
        labels: bool of the same shape.
        bins: at least 1.

    Raises:
        ValueError: one sentence: shapes differ, something is no probability, or there are no bins.
    """
    if probabilities.shape != labels.shape or labels.dtype != np.bool_:
        raise ValueError(
            f"probabilities and bool labels have one shape: got {list(probabilities.shape)} and {labels.dtype} "
            f"{list(labels.shape)}"
        )
    if bins < 1:
        raise ValueError(f"bins are at least 1: got {bins}")
    given = probabilities.astype(np.float64).ravel()
    if not ((given >= 0) & (given <= 1)).all():
        raise ValueError("probabilities are 0 to 1")
    edges = np.linspace(0, 1, bins + 1)
    which = np.minimum(np.searchsorted(edges, given, "right") - 1, bins - 1)
    count = np.bincount(which, minlength=bins)
    sums = (np.bincount(which, weights, bins) for weights in (given, labels.ravel().astype(np.float64)))
    said, came = (np.divide(total, count, out=np.full(bins, np.nan), where=count > 0) for total in sums)
    apart = np.abs(said - came)[count > 0]
    error = float((apart * count[count > 0]).sum() / len(given)) if len(given) else float("nan")
    return Reliability(edges, count, said, came, error)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")


def _same(**tables: NDArray[np.bool_]) -> None:
    """Raises ValueError unless all are bool and of one shape."""
    if any(table.dtype != np.bool_ for table in tables.values()) or len({t.shape for t in tables.values()}) > 1:
        given = " and ".join(f"{name} {table.dtype} {list(table.shape)}" for name, table in tables.items())
        raise ValueError(f"answers and labels are bool of one shape: got {given}")
