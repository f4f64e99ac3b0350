"""One flag for every way a run is asked to stop: a STOP file, SIGTERM, SIGINT, SIGUSR2, or the wall clock.

The flag is checked between two updates: the run saves and exits with code 3. A second signal ends it at once.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from types import FrameType
from typing import Any

from learner.files import Attempt

STOPPED = 3  # exit code of a run that was asked to stop; an interrupted run has another, `INTERRUPTED`

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2)


class Stop:
    """Context manager that listens while a run is active.

    file: the STOP file; a stale one is deleted at the start. max_wall_seconds: stop after this long; None: never.
    attempt: the attempt at the run. At the end the file is deleted, unless a newer attempt has begun.
    """

    def __init__(self, file: Path, max_wall_seconds: float | None, attempt: Attempt | None = None) -> None:
        self._file, self._attempt = file, attempt
        self._deadline = None if max_wall_seconds is None else time.monotonic() + max_wall_seconds
        self._signal = ""
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Stop:
        self._file.unlink(missing_ok=True)
        self._previous = {number: signal.signal(number, self._handle) for number in SIGNALS}
        return self

    def listen(self) -> None:
        """Install the handlers again, because Ray installs its own when it starts."""
        for number in SIGNALS:
            signal.signal(number, self._handle)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        if self._attempt is None or self._attempt.is_newest:  # otherwise it may stop the newer one
            self._file.unlink(missing_ok=True)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._signal:
            os._exit(STOPPED)
        self._signal = signal.Signals(number).name

    @property
    def signalled(self) -> bool:
        """Whether a signal asks: whoever sent it may not wait for long."""
        return bool(self._signal)

    @property
    def reason(self) -> str:
        """Why the run should stop; empty while it should not."""
        if self._signal:
            return self._signal
        if self._file.exists():
            return "STOP file"
        if self._deadline is not None and time.monotonic() > self._deadline:
            return "max_wall_seconds"
        return ""
