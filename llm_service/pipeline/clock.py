"""Time as an argument: everything that waits, retries or expires uses a clock, so that tests can control time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any


class Clock:
    """The real clock. Tests pass another with its own `now`, `wall` and `sleep`."""

    def now(self) -> float:
        """Seconds since some fixed moment; never decreases."""
        return time.monotonic()

    def wall(self) -> float:
        """Seconds since the epoch, for files."""
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def wait(self, work: Iterable[asyncio.Future[Any]], seconds: float) -> None:
        """Wait until all tasks are done, at most this long. They are never cancelled, even if this call is."""
        timer = asyncio.ensure_future(self.sleep(max(0.0, seconds)))
        done = asyncio.ensure_future(asyncio.wait(set(work)))
        try:
            await asyncio.wait({timer, done}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            done.cancel()
