"""People's ratings of behaviours: an append-only log, so that a crash loses no answer.

    ratings/ana.jsonl   {"n": 0, "item": "3f0c...", "score": 0.7, "at": 1795370353.4}    an answer
                        {"n": 1, "item": "9a51...", "score": null, "at": ...}            skipped: asked again later
                        {"n": 2, "retracts": 1, "at": ...}                               taken back

One file per rater, one line per answer, appended and synced before the rater sees that it is saved. Nothing is
rewritten: a partial line from a killed process is dropped on reading, and the next line begins after it. An item is
whatever is shown, named by a hash of its content, so that a rating never counts for something else.

The limit is reading a whole file at each answer, a few milliseconds for a thousand answers.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from learner.files import sync_folder
from llm_service.errors import UsageError

LEVELS = tuple(tenths / 10 for tenths in range(11))
"""The possible scores."""
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
PEOPLE, MODEL, RULE = "people", "language model", "rule"


class RatingError(UsageError):
    """A rating, a rater's name or a file of ratings is invalid."""


class Answer(NamedTuple):
    """A rating that was not retracted."""

    n: int  # its line number
    item: str
    score: float | None  # one of LEVELS; None: skipped


class Ratings:
    """The answers of one rater. Several processes may append to them.

    Args:
        folder: of the ratings of a run; made at the first answer.
        rater: the rater's name.

    Raises:
        RatingError: the name cannot be a file name.
    """

    def __init__(self, folder: Path, rater: str) -> None:
        if not NAME.fullmatch(rater) or rater in (PEOPLE, RULE):
            raise RatingError(
                "a rater's name is 1 to 32 letters a to z, digits, - and _, begins with a letter or digit, and is not "
                f"{PEOPLE!r} or {RULE!r}: got {rater!r}"
            )
        self.folder, self.rater = folder, rater
        self.path = folder / f"{rater}.jsonl"

    def answers(self) -> list[Answer]:
        """The ratings that were not retracted, in order.

        Raises:
            RatingError: a complete line is not a rating, or the file is a symbolic link.
        """
        try:
            file = self._open(os.O_RDONLY)
        except (FileNotFoundError, NotADirectoryError):
            return []
        with open(file, "rb") as reader:
            return _standing(reader.read(), self.path)[0]

    def give(self, item: str, score: float | None) -> None:
        """Append an answer: a score of LEVELS, or None to skip. It is on disk when this returns.

        Raises:
            RatingError: another score, or the file is damaged.
        """
        if score is not None and score not in LEVELS:
            raise RatingError(f"a score is one of 0.0, 0.1, ... 1.0: got {score!r}")
        with self._appending() as (file, _, n):
            _append(file, {"n": n, "item": item, "score": score, "at": time.time()})

    def take_back(self) -> Answer | None:
        """Retract the last answer that was not retracted. Returns it, or None if there is none.

        Raises:
            RatingError: the file is damaged.
        """
        if not self.answers():
            return None
        with self._appending() as (file, standing, n):
            if not standing:
                return None
            _append(file, {"n": n, "retracts": standing[-1].n, "at": time.time()})
            return standing[-1]

    @contextmanager
    def _appending(self) -> Iterator[tuple[int, list[Answer], int]]:
        """The locked file, its valid ratings, and its next line number."""
        if not self.folder.exists():
            self.folder.mkdir(exist_ok=True)
            sync_folder(self.folder.parent)
        file = self._open(os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)  # of this open file: threads exclude each other too
            sync_folder(self.folder)
            with open(file, "rb", closefd=False) as reader:
                content = reader.read()
            if content and not content.endswith(b"\n"):
                os.write(file, b"\n")
            yield file, *_standing(content, self.path)
        finally:
            os.close(file)

    def _open(self, flags: int) -> int:
        """The open file. A symbolic link would let a run folder of somebody else name any file of the rater's."""
        try:
            if not self.folder.is_symlink():
                return os.open(self.path, flags | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
        raise RatingError(f"{self.path} is reached by a symbolic link: put the file itself there")


def read(folder: Path) -> dict[str, dict[str, float]]:
    """Every rater's scores by item. Skipped items are absent; of several scores of one item, the last counts.

    Raises:
        RatingError: a file is damaged.
    """
    raters = [Ratings(folder, path.stem) for path in sorted(folder.glob("*.jsonl"))]
    return {each.rater: found for each in raters if (found := scores(each.answers()))}


def scores(answers: Iterable[Answer]) -> dict[str, float]:
    """The last score of each item that has one."""
    return {answer.item: answer.score for answer in answers if answer.score is not None}


def waiting(items: Iterable[str], answers: Iterable[Answer]) -> list[str]:
    """The items without a score: new ones in their order, then the skipped ones, starting with the oldest skip."""
    given = list(answers)
    rated, passed = scores(given), {answer.item: answer.n for answer in given}
    left = [item for item in items if item not in rated]
    return sorted(left, key=lambda item: passed.get(item, -1))  # stable: new ones keep their order


def shuffled(items: Iterable[str], rater: str) -> list[str]:
    """Each rater's own order, always the same."""
    return sorted(items, key=lambda item: hashlib.sha256(f"{rater}\n{item}".encode()).digest())


Pair = tuple[NDArray[np.float64], NDArray[np.float64]]


def pairs(
    people: Mapping[str, Mapping[str, float]], model: Mapping[str, float], rule: Mapping[str, float]
) -> dict[tuple[str, str], Pair]:
    """All pairs of raters that can be compared, as scores [N] of their common items; pairs without a common item are
    left out. For `learner.behaviours.agreement`.

    people: scores by rater and item; a mean over raters stands for all of them.
    model, rule: scores by item of the language model and of the rule.
    """
    given: dict[str, list[float]] = {}
    for rated in people.values():
        for item, score in rated.items():
            given.setdefault(item, []).append(score)
    mean = {item: sum(values) / len(values) for item, values in given.items()}
    sides: list[tuple[tuple[str, str], Mapping[str, float], Mapping[str, float]]] = [
        ((MODEL, RULE), model, rule),
        ((PEOPLE, RULE), mean, rule),
        ((PEOPLE, MODEL), mean, model),
        *(((one, other), people[one], people[other]) for one, other in combinations(people, 2)),
    ]
    found = {}
    for names, one, other in sides:
        if both := sorted(one.keys() & other.keys()):
            found[names] = np.array([one[i] for i in both]), np.array([other[i] for i in both])
    return found


def _standing(content: bytes, path: Path) -> tuple[list[Answer], int]:
    """The answers in a file that were not retracted, and its next line number."""
    found: dict[int, Answer] = {}
    n = 0
    for number, line in enumerate(content.split(b"\n"), 1):
        try:
            row = json.loads(line)
        except ValueError:  # partial: its rater never saw that it was saved
            continue
        if not isinstance(row, dict) or row.get("n") != n or not _is_answer(row):
            raise RatingError(f"line {number} of {path} is no rating: restore the file from a copy, or move it away")
        if "retracts" in row:
            found.pop(row["retracts"], None)
        else:
            found[n] = Answer(n, row["item"], row["score"])
        n += 1
    return list(found.values()), n


def _is_answer(row: Mapping[str, object]) -> bool:
    if "retracts" in row:
        return isinstance(row["retracts"], int)
    return isinstance(row.get("item"), str) and "score" in row and (row["score"] is None or row["score"] in LEVELS)


def _append(file: int, row: Mapping[str, object]) -> None:
    line = json.dumps(row).encode() + b"\n"
    if os.write(file, line) != len(line):
        raise OSError("the disk is full: this rating is not saved")
    os.fsync(file)
