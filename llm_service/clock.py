"""Time as an argument: everything that waits, retries or expires asks a clock, so that tests can turn its hands."""

from __future__ import annotations

import asyncio
import time


class Clock:
    """The real one. Tests pass another with the same three methods."""

    def now(self) -> float:
        """Seconds since some fixed moment; never goes back."""
        return time.monotonic()

    def wall(self) -> float:
        """Seconds since the epoch, for what is written down."""
        return time.time()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)
