"""The journal: one JSON line for each reply that was paid for, appended before any caller sees the answer.

It is the proof of what was asked and paid, the recording for the `replay` backend, and the memory of a run: a call with
a key in the journal is never sent again, whatever is killed.

A line is one `write` to a file opened for appending, so killing the process at any moment loses no finished line;
power loss may lose the last seconds, unless `fsync` is on. A line that does not fit on the disk is kept in memory and
written as soon as there is room; until then `ready` is false, and nothing more is paid for.

Instructions are most of a call, and the same in thousands of calls: they are written with the first such call, and
later lines refer to its key (`as_in`).
"""

from __future__ import annotations

import base64
import json
import logging
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from llm_service.errors import UsageError
from llm_service.lines import open_alone, put_in_place, set_aside
from llm_service.records import Call, Reply, Token

log = logging.getLogger(__name__)

READ_BYTES = 16_384
"""Read at once; most lines are shorter."""
MOST_INSTRUCTIONS = 1000
"""Number of instructions that are remembered."""


class InUse(UsageError):
    """Another process writes the file."""


class Journal:
    """One writer, one file.

    A damaged line is set aside and reported in the log: its answer is paid for again if it is asked for again.

    Args:
        path: the file, created if missing.
        fsync: wait for the disk after each line.

    Raises:
        InUse: another process writes this file.
    """

    def __init__(self, path: Path, fsync: bool = False) -> None:
        self.path, self._fsync = path, fsync
        self._place: dict[bytes, int] = {}  # key -> where its line begins; small, because it grows with every call
        self._unwritten: dict[bytes, bytes] = {}  # key -> line that could not be written yet
        self._instructions: dict[str, str] = {}  # instructions of this process's calls -> key of the line that has them
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            file = open_alone(path)
        except BlockingIOError:
            raise InUse(f"{path} is being written by another service: give this one its own folder") from None
        try:
            self._end, damaged = self._index()
            if damaged:
                told = set_aside(path, [line for _, line in damaged])
                file = put_in_place(path, file, _but(path, {number for number, _ in damaged}))
                log.warning("%s; an answer that was in it is paid for again if it is asked for again", told)
                self._place.clear()
                self._end, _ = self._index()
            os.ftruncate(file, self._end)  # nobody has seen a line that was cut by a crash
        except BaseException:
            os.close(file)
            raise
        self._file: int | None = file

    def __len__(self) -> int:
        return len(self._place)

    def find(self, key: str) -> Reply | None:
        """The reply to a call that was paid for, with the token counts of that time."""
        name = bytes.fromhex(key)
        place = self._place.get(name)
        if name in self._unwritten:
            line = self._unwritten[name]
        elif place is None or self._file is None:
            return None
        else:
            line = self._line(place)
        record = json.loads(line)
        counts = {name: record.get(name, 0) for name in ("prompt_tokens", "completion_tokens")}
        return replace(decode(record["reply"]), **counts)

    def _line(self, place: int) -> bytes:
        assert self._file is not None, "its caller looked"
        parts: list[bytes] = []
        while not (parts and parts[-1].endswith(b"\n")):
            part = os.pread(self._file, READ_BYTES, place)
            if not part:
                raise OSError(f"{self.path} is shorter than before: no other process may write it")
            parts.append(part[: part.find(b"\n") + 1] or part)
            place += len(part)
        return b"".join(parts)

    def ready(self) -> bool:
        """Whether the next reply can be written: no line waits for room on the disk."""
        try:
            self._write()
        except OSError:
            return False
        return True

    def append(self, key: str, model: str, call: Call, reply: Reply, **outcome: Any) -> None:
        """Write a line, or keep it until there is room on the disk: its answer is paid for and must reach its caller.

        outcome: `parsed` (JSON value or None), `error` (why it could not be parsed, or ""), `dollars`, `latency_s` and
        `at` (seconds since the epoch).
        """
        if self._file is None:
            return
        p = call.parameters
        line = {
            "key": key,
            "model": model,
            "verb": call.verb,
            "task": call.task,
            "turns": self._turns(key, call),
            "candidates": call.candidates,
            "parameters": {name: getattr(p, name) for name in p.__slots__},
            "sample": call.sample,
            **({"options": {name: getattr(call, name) for name in sorted(call.options)}} if call.options else {}),
            "reply": encode(reply),
            "prompt_tokens": reply.prompt_tokens,
            "completion_tokens": reply.completion_tokens,
            **outcome,
        }
        # A reply may contain half a surrogate pair: escapes keep the line valid UTF-8, and exact.
        written = json.dumps(line, ensure_ascii=True, sort_keys=True).encode() + b"\n"
        self._unwritten[bytes.fromhex(key)] = written
        try:
            self._write()
        except OSError as error:
            log.error("cannot write %s: %s; no call is sent until this works", self.path, error.strerror)

    def _turns(self, key: str, call: Call) -> list[Any]:
        """The turns of a call; if an earlier line has its instructions, that line's key instead."""
        turns: list[Any] = [list(turn) for turn in call.turns]
        if call.turns and call.turns[0][0] == "system":
            text = call.turns[0][1]
            if text in self._instructions:
                turns[0][1] = {"as_in": self._instructions[text]}
            elif len(self._instructions) < MOST_INSTRUCTIONS:
                self._instructions[text] = key
        return turns

    def close(self) -> None:
        """Close the file, so that another process can write it."""
        if self._file is None:
            return
        if not self.ready():
            log.error(
                "%s: %d answers that were paid for are lost, because the disk is full", self.path, len(self._unwritten)
            )
        os.fsync(self._file)
        os.close(self._file)
        self._file = None

    def _write(self) -> None:
        """Write waiting lines. Raises OSError."""
        for name, line in list(self._unwritten.items()):
            assert self._file is not None, "nothing is appended to a closed one"
            done = 0
            try:
                while done < len(line):
                    done += os.write(self._file, line[done:])
                if self._fsync:
                    os.fsync(self._file)
            except OSError:
                os.ftruncate(self._file, self._end)  # no half line may remain in the middle
                raise
            del self._unwritten[name]
            self._place[name] = self._end
            self._end += len(line)

    def _index(self) -> tuple[int, list[tuple[int, bytes]]]:
        """Find every line; returns where the last complete one ends, and the damaged ones with their numbers."""
        end, damaged = 0, list[tuple[int, bytes]]()
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    break
                try:
                    self._place[bytes.fromhex(parse(line, self.path, number)["key"])] = end
                except UsageError:
                    damaged.append((number, line))
                end += len(line)
        return end, damaged


def _but(path: Path, numbers: set[int]) -> Iterator[bytes]:
    """The lines of a file except those with these numbers and a cut one."""
    with path.open("rb") as file:
        yield from (line for number, line in enumerate(file, 1) if number not in numbers and line.endswith(b"\n"))


def parse(line: bytes, path: Path, number: int) -> dict[str, Any]:
    """One line. Raises UsageError if it is damaged."""
    try:
        record = json.loads(line)
        bytes.fromhex(record["key"]), record["reply"].keys()
    except (ValueError, TypeError, KeyError, AttributeError):
        raise UsageError(
            f"{path}, line {number} is damaged: remove it; its answer is paid for again if it is asked for again"
        ) from None
    assert isinstance(record, dict)
    return record


def encode(reply: Reply) -> dict[str, Any]:
    """A reply as JSON."""
    if reply.vector is not None:
        return {"vector": base64.b64encode(reply.vector.astype("<f4").tobytes()).decode()}
    if reply.scores:
        return {"scores": list(reply.scores)}
    tokens = {"tokens": [[token.text, token.logprob, token.top] for token in reply.tokens]} if reply.tokens else {}
    return {"text": reply.text, **tokens, **({"cut": True} if reply.cut else {})}


def decode(record: dict[str, Any]) -> Reply:
    """The inverse of `encode`, without token counts."""
    if "vector" in record:
        return Reply(vector=np.frombuffer(base64.b64decode(record["vector"]), "<f4"))
    tokens = [Token(text, logprob, tuple((t, p) for t, p in top)) for text, logprob, top in record.get("tokens", ())]
    scores = tuple(record.get("scores", ()))
    return Reply(record.get("text", ""), scores, tokens=tuple(tokens), cut=record.get("cut", False))
