"""Where numbers go.

controller ── rows ──> metrics.jsonl ──> sinks: Prometheus, and those of `run.sinks`
           └─ current values, results, the end ──> sinks
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cluster.metrics.sinks import Sink
from learner.files import Attempt, replace_file
from llm_service.lines import set_aside


class Metrics:
    """Appends rows to metrics.jsonl and hands them to the sinks.

    `warning` says how many of the file's lines were damaged, "" if none was.

    Args:
        path: metrics.jsonl.
        after: the policy version that a resumed run continues from, see `rewind`. None keeps all rows.
        attempt: the attempt that writes. Once a newer attempt has rewound the file, rows of an older one are lost.
    """

    def __init__(self, path: Path, after: int | None = None, attempt: Attempt | None = None) -> None:
        self._path, self._attempt = path, attempt
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 - open as long as the run
        self.sinks: list[Sink] = []
        self.warning = ""
        if after is not None:
            self.rewind(after)

    def rewind(self, after: int) -> None:
        """Drop rows of versions after `after`, which are learned again, and set damaged rows aside.

        Raises:
            Superseded: a newer attempt has begun.
        """
        self._file.close()
        with open(self._path, "rb") as file:
            rows = [(row, _version(row)) for row in file if row.endswith(b"\n")]  # a crash may have cut the last row
        if damaged := [row for row, version in rows if version is None]:
            self.warning = set_aside(self._path, damaged)
        kept = b"".join(row for row, version in rows if version is not None and version <= after)
        replace_file(self._path, kept, self._attempt)
        self._file = open(self._path, "ab", buffering=0)  # noqa: SIM115

    def write(self, row: dict[str, Any]) -> None:
        """Append one row; it is completely on disk when this returns."""
        clean = {key: round(value, 6) if isinstance(value, float) else value for key, value in row.items()}
        rest = json.dumps(clean).encode() + b"\n"
        while rest:  # without a buffer: closing the file must not retry what a full disk has refused
            rest = rest[self._file.write(rest) :]
        os.fsync(self._file.fileno())
        self._pass_on(row)

    def show(self, **numbers: float) -> None:
        """Pass current values to the sinks, without a row."""
        self._pass_on({"kind": "now"} | numbers)

    def results(self, stage: str, env_steps: int, found: Mapping[str, Any]) -> None:
        """Pass the table of a finished stage to the sinks, without a row: the stage has it in a file.

        found: its values, by dotted keys.
        """
        table = {f"results/{stage}/{key.replace('.', '/')}": value for key, value in found.items()}
        self._pass_on({"kind": "results", "env_steps": env_steps} | table)

    def end(self, hurried: Callable[[], bool]) -> None:
        """The run has ended by itself, or as asked: sinks may take their time to tell, until it is `hurried`."""
        for sink in self.sinks:
            getattr(sink, "end", lambda _: None)(hurried)

    def close(self, state: str = "done") -> None:
        """Write no more, and close those sinks that can be closed. `state`: done, stopped or crashed."""
        self._pass_on({"kind": "end", "state": state})
        for sink in self.sinks:
            getattr(sink, "close", lambda: None)()
        self._file.close()

    def _pass_on(self, row: dict[str, Any]) -> None:
        for sink in self.sinks:
            sink(row)


def _version(row: bytes) -> float | None:
    """The version of a row, None if it is damaged."""
    try:
        version = json.loads(row)["version"]
    except (ValueError, TypeError, KeyError):
        return None
    return version if isinstance(version, int | float) else None
