"""The ledger: money and tokens, spent and reserved, so that no cap is ever exceeded.

A ledger is an append-only file of JSON lines:

    {"reserve": 7, "at": 1700000000.5, "tokens": 300, "dollars": 0.0009}     before anything is sent
    {"settle": 7, "tokens": 212, "dollars": 0.0006}                          the reply arrived: its real cost
    {"release": 7}                                                           nothing was sent, or it was not charged

A line is one write, passed to the operating system before a call is sent: killing the process loses nothing. Power loss
may lose the lines of the last seconds, unless `fsync` is on. A reservation that was neither settled nor released counts
as spent forever, because the fate of its call is unknown.

A damaged line is set aside, and a reservation as large as the largest one replaces it. The sum spent may then be too
high, and is too low only if the damaged call cost more than all others.
"""

from __future__ import annotations

import errno
import json
import logging
import math
import os
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llm_service.errors import OutOfBudget, UsageError
from llm_service.lines import open_alone, put_in_place, set_aside
from llm_service.pipeline.clock import Clock
from llm_service.pipeline.limits import LimitsConfig

log = logging.getLogger(__name__)

HOUR_S = 3600.0
NANO = 1_000_000_000
"""Money is counted in whole billionths of a dollar: sums are exact in any order."""
DAMAGE = (ValueError, KeyError, TypeError, AttributeError, OverflowError)
"""Errors that applying a damaged line may raise."""


@dataclass(slots=True)
class _Entry:
    at: float  # time of the reservation, seconds since the epoch
    tokens: int
    nano: int  # billionths of a dollar


class Book:
    """Sums over entries, for all time and for the last hour. Open reservations are counted in full."""

    def __init__(self) -> None:
        self.tokens = self.nano = self.hour_tokens = self.hour_nano = 0
        self.open: dict[int, _Entry] = {}
        self.calls = self.last = 0
        self.most_tokens = self.most_nano = 0  # the largest of one call
        self._hour: deque[_Entry] = deque()

    @property
    def dollars(self) -> float:
        return self.nano / NANO

    def reserve(self, id: int, at: float, tokens: int, nano: int) -> None:
        entry = self.open[id] = _Entry(at, 0, 0)
        self._hour.append(entry)
        self._add(entry, tokens, nano, in_hour=True)
        self.calls, self.last = self.calls + 1, max(self.last, id)

    def settle(self, id: int, tokens: int, nano: int) -> None:
        entry = self.open.pop(id)
        self._add(entry, tokens - entry.tokens, nano - entry.nano, in_hour=entry.at > -math.inf)

    def release(self, id: int) -> None:
        self.settle(id, 0, 0)
        self.calls -= 1

    def forget(self, now: float) -> None:
        """Remove entries that are more than an hour old from the hour's sums."""
        if (
            self._hour and self._hour[-1].at > now
        ):  # the clock was set back: count from now, which counts too long rather than too short
            for entry in self._hour:
                entry.at = min(entry.at, now)
        while self._hour and self._hour[0].at <= now - HOUR_S:
            entry = self._hour.popleft()
            self.hour_tokens -= entry.tokens
            self.hour_nano -= entry.nano
            entry.at = -math.inf

    def _add(self, entry: _Entry, tokens: int, nano: int, in_hour: bool) -> None:
        entry.tokens, entry.nano = entry.tokens + tokens, entry.nano + nano
        self.most_tokens, self.most_nano = max(self.most_tokens, entry.tokens), max(self.most_nano, entry.nano)
        self.tokens, self.nano = self.tokens + tokens, self.nano + nano
        if in_hour:
            self.hour_tokens, self.hour_nano = self.hour_tokens + tokens, self.hour_nano + nano


class Ledger:
    """The sum spent, with caps that are checked before anything is sent. One writer; one thread.

    The caps hold exactly as long as a call costs at most its reservation; a more expensive call is counted at its real
    cost, and the next reservation takes it into account.

    Args:
        path: the file, created if missing.
        fsync: wait for the disk after each line.

    Raises:
        UsageError: another process writes the file.
    """

    def __init__(self, config: LimitsConfig, path: Path, clock: Clock, fsync: bool = False) -> None:
        self._config, self._path, self._clock, self._fsync = config, path, clock, fsync
        self._book = Book()
        self._file: int | None = None
        self._unwritten = b""  # settlements that could not be written yet
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            file = open_alone(path)
        except BlockingIOError:
            raise UsageError(f"{path} is written by another service: give this one its own folder") from None
        try:
            try:
                self._end = _replay(self._book, path)
            except UsageError:
                file = self._mend(file)
                self._book = Book()
                self._end = _replay(self._book, path)
            os.ftruncate(file, self._end)  # a line that was cut by a crash: nothing was sent because of it
        except BaseException:
            os.close(file)
            raise
        self._file = file

    def _mend(self, file: int) -> int:
        """Replace the file by one without damaged lines. Returns its descriptor."""
        book, good, damaged = _parted(self._path)
        tokens, dollars, at = book.most_tokens, book.most_nano / NANO, round(self._clock.wall(), 3)
        instead = [
            _line({"reserve": book.last + n, "at": at, "tokens": tokens, "dollars": dollars})
            for n in range(1, len(damaged) + 1)
        ]
        told = set_aside(self._path, damaged)
        file = put_in_place(self._path, file, [*good, *instead])
        log.warning(
            "%s; what was spent by it is not known: %s tokens and %s dollars count as spent, for each as much as the "
            "dearest call", told, f"{tokens * len(damaged):,}", f"{dollars * len(damaged):.10g}"
        )  # fmt: skip
        return file

    def reserve(self, tokens: int, dollars: float) -> int:
        """Before a call is sent: reserve its maximum cost. Returns the reservation's number.

        Raises:
            OutOfBudget: a cap would be exceeded, or the reservation could not be written.
        """
        book, at = self._book, self._clock.wall()
        book.forget(at)
        nano = _nano(dollars)
        for name, spent, wanted, unit in (
            ("tokens", book.tokens, tokens, 1),
            ("dollars", book.nano, nano, NANO),
            ("tokens_per_hour", book.hour_tokens, tokens, 1),
            ("dollars_per_hour", book.hour_nano, nano, NANO),
        ):
            cap = getattr(self._config, name)
            if cap is not None and spent + wanted > round(cap * unit):
                raise OutOfBudget(
                    f"limits.{name} is {cap:,.10g}, of which {spent / unit:,.10g} are spent or reserved: a call that "
                    f"may need {wanted / unit:,.10g} is not sent; raise the cap"
                    + (" or wait" if "hour" in name else "")
                )
        id = book.last + 1
        line = {"reserve": id, "at": round(at, 3), "tokens": tokens, "dollars": nano / NANO}
        try:
            self._write(_line(line))
        except OSError as error:
            raise OutOfBudget(
                f"cannot write {self._path}: {error.strerror}; no call is sent without a record"
            ) from None
        book.reserve(id, at, tokens, nano)
        return id

    def settle(self, id: int, tokens: int, dollars: float) -> None:
        """Record the real cost of a reply. Raises KeyError if there is no such open reservation."""
        nano = _nano(dollars)
        self._book.settle(id, tokens, nano)
        self._finish(_line({"settle": id, "tokens": tokens, "dollars": nano / NANO}))

    def release(self, id: int) -> None:
        """Cancel a reservation: nothing was sent or charged. Raises KeyError if there is no such open reservation."""
        self._book.release(id)
        self._finish(_line({"release": id}))

    @property
    def tokens(self) -> int:
        """Sum spent and reserved, across all restarts."""
        return self._book.tokens

    @property
    def dollars(self) -> float:
        """Sum spent and reserved, across all restarts."""
        return self._book.dollars

    @property
    def share(self) -> float:
        """Share, spent or reserved, of the cap that is closest to exhausted; 0 without caps. Any thread may call this.

        Hourly caps are as of the last call.
        """
        book, config = self._book, self._config
        shares = [
            (book.tokens, config.tokens),
            (book.dollars, config.dollars),
            (book.hour_tokens, config.tokens_per_hour),
            (book.hour_nano / NANO, config.dollars_per_hour),
        ]
        return max((spent / cap if cap else 1.0 for spent, cap in shares if cap is not None), default=0.0)

    def close(self) -> None:
        """Let another process write."""
        if self._file is not None:
            self._finish(b"")
            os.fsync(self._file)
            os.close(self._file)
            self._file = None

    def _finish(self, line: bytes) -> None:
        """Write the end of a reservation. If the disk is full, it is written before the next reservation.

        The answer is paid for and must reach its caller. If the end is never written, the reservation stays open.
        """
        try:
            self._write(line)
        except OSError:
            self._unwritten += line

    def _write(self, line: bytes) -> None:
        if self._file is None:
            raise OSError(errno.EBADF, "it is closed")
        rest = self._unwritten + line
        written = 0
        try:
            while written < len(rest):
                written += os.write(self._file, rest[written:])
            if self._fsync:
                os.fsync(self._file)
        except OSError:
            os.ftruncate(self._file, self._end)  # no half line may stand in the middle
            raise
        self._end += len(rest)
        self._unwritten = b""


def read(path: Path) -> Book:
    """Totals of a ledger, also while another process writes it.

    Raises:
        UsageError: the file is missing, or a line is damaged.
    """
    book = Book()
    try:
        _replay(book, path)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    return book


def _replay(book: Book, path: Path) -> int:
    """Apply every line to a book; returns the offset after the last complete line."""
    end = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                break
            try:
                _repeat(book, json.loads(line))
            except DAMAGE:
                raise UsageError(
                    f"{path}, line {number} is damaged, so the sum spent is unknown; the service sets it aside when it "
                    "starts again"
                ) from None
            end += len(line)
    return end


def _parted(path: Path) -> tuple[Book, list[bytes], list[bytes]]:
    """The book of all lines that can be applied in order, these lines, and the damaged ones; without a cut line."""
    book, good, damaged = Book(), list[bytes](), list[bytes]()
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                break
            try:
                _repeat(book, json.loads(line))
                good.append(line)
            except DAMAGE:
                damaged.append(line)
    return book, good, damaged


def _repeat(book: Book, line: dict[str, Any]) -> None:
    if "release" in line:
        book.release(line["release"])
        return
    tokens, nano = line["tokens"], _nano(line["dollars"])
    if type(tokens) is not int or tokens < 0:
        raise ValueError
    if "settle" in line:
        book.settle(line["settle"], tokens, nano)
        return
    id, at = line["reserve"], line["at"]
    if type(id) is not int or id <= book.last or not math.isfinite(at):
        raise ValueError
    book.forget(at)
    book.reserve(id, float(at), tokens, nano)


def _line(record: dict[str, Any]) -> bytes:
    return json.dumps(record).encode() + b"\n"


def _nano(dollars: float) -> int:
    if not (math.isfinite(dollars) and dollars >= 0):
        raise ValueError(f"{dollars} is not an amount of dollars")
    return round(dollars * NANO)
