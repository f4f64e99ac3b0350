"""The journal: one JSON line for each reply that was paid for, appended before anyone sees the answer.

It is the proof of what was asked and paid, the recording that the `replay` backend answers from, and the memory of a
run: a call whose key stands here is never sent again, whatever was killed since.

A line is one `write` to a file opened for appending, so killing the process at any moment loses no finished line;
losing power may lose the last seconds, unless `fsync` is on.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from llm_service.errors import UsageError
from llm_service.records import Call, Reply

READ_BYTES = 16_384
"""Read at once; most lines are shorter."""


class Journal:
    """One writer, one file.

    Args:
        path: made if it is not there; None keeps nothing.
        fsync: wait for the disk after each line.

    Raises:
        UsageError: another process writes this file, or a line of it is damaged.
    """

    def __init__(self, path: Path | None, fsync: bool = False) -> None:
        self.path, self._fsync = path, fsync
        self._place: dict[bytes, int] = {}  # key -> where its line begins; small, since it grows with every call
        self._file: int | None = None
        if path is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._file)
            raise UsageError(f"{path} is being written by another service: give this one a folder of its own") from None
        self._end = self._index(path)
        os.ftruncate(self._file, self._end)  # a line that was cut by a crash was never seen by anyone

    def __len__(self) -> int:
        return len(self._place)

    def find(self, key: str) -> Reply | None:
        """The reply to a call that was paid for."""
        place = self._place.get(bytes.fromhex(key))
        if place is None or self._file is None:
            return None
        line = b""
        while not line.endswith(b"\n"):
            part = os.pread(self._file, READ_BYTES, place + len(line))
            line += part[: part.find(b"\n") + 1] if b"\n" in part else part
        return decode(json.loads(line)["reply"])

    def append(self, key: str, model: str, call: Call, reply: Reply, **outcome: Any) -> None:
        """Write a line.

        Args:
            outcome: `parsed` (JSON value or None), `error` (why it could not be parsed, or ""), `dollars`,
                `latency_s` and `at` (seconds since the epoch).
        """
        if self._file is None:
            return
        p = call.parameters
        line = {
            "key": key,
            "model": model,
            "verb": call.verb,
            "task": call.task,
            "turns": call.turns,
            "candidates": call.candidates,
            "parameters": {name: getattr(p, name) for name in p.__slots__},
            "sample": call.sample,
            "reply": encode(reply),
            "prompt_tokens": reply.prompt_tokens,
            "completion_tokens": reply.completion_tokens,
            **outcome,
        }
        # A reply may hold half a surrogate pair: escapes keep the line valid UTF-8, and exact.
        written = json.dumps(line, ensure_ascii=True, sort_keys=True).encode() + b"\n"
        done = 0
        while done < len(written):
            done += os.write(self._file, written[done:])
        if self._fsync:
            os.fsync(self._file)
        self._place[bytes.fromhex(key)] = self._end
        self._end += len(written)

    def close(self) -> None:
        """Let another process write."""
        if self._file is not None:
            os.fsync(self._file)
            os.close(self._file)
            self._file = None

    def _index(self, path: Path) -> int:
        """Find every line; returns where the last whole one ends."""
        end = 0
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    break
                self._place[bytes.fromhex(parse(line, path, number)["key"])] = end
                end += len(line)
        return end


def parse(line: bytes, path: Path, number: int) -> dict[str, Any]:
    """One line.

    Raises:
        UsageError: it is damaged.
    """
    try:
        record = json.loads(line)
        bytes.fromhex(record["key"]), record["reply"]
    except (ValueError, TypeError, KeyError):
        raise UsageError(
            f"{path}, line {number} is damaged: take it out, and its answer is paid for again if it is asked for again"
        ) from None
    assert isinstance(record, dict)
    return record


def encode(reply: Reply) -> dict[str, Any]:
    """A reply as JSON."""
    if reply.vector is not None:
        return {"vector": base64.b64encode(reply.vector.astype("<f4").tobytes()).decode()}
    return {"scores": list(reply.scores)} if reply.scores else {"text": reply.text}


def decode(record: dict[str, Any]) -> Reply:
    """What `encode` made; token counts are 0, since they were paid for long ago."""
    if "vector" in record:
        return Reply(vector=np.frombuffer(base64.b64decode(record["vector"]), "<f4"))
    return Reply(text=record.get("text", ""), scores=tuple(record.get("scores", ())))
