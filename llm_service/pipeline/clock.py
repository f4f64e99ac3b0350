"""Time as an argument: everything that waits, retries or expires asks a clock, so that tests can turn its hands."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any


class Clock:
    """The real one. Tests pass another with its own `now`, `wall` and `sleep`."""

    def now(self) -> float:
        """Seconds since some fixed moment; never goes back."""
        return time.monotonic()

    def wall(self) -> float:
        """Seconds since the epoch, for what is written down."""
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def wait(self, work: Iterable[asyncio.Future[Any]], seconds: float) -> None:
        """Wait until all of it is done, at most so long. It is never cancelled, also if this is."""
        timer = asyncio.ensure_future(self.sleep(max(0.0, seconds)))
        done = asyncio.ensure_future(asyncio.wait(set(work)))
        try:
            await asyncio.wait({timer, done}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            done.cancel()
