"""A clock whose hands jump: virtual time passes as soon as every task of the event loop waits.

For code that waits in this process only. Tasks that wait for a socket, a thread or a process look idle, and time would
run ahead of them: use `FakeClock(auto=False)` there and turn the hands with `advance`.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools

from llm_service.pipeline.clock import Clock

IDLE_TURNS = 5
"""Turns of the event loop with nothing to run before time may pass: waking a waiter takes a few."""


class FakeClock(Clock):
    """Starts at second 0. `slept` lists every sleep that was asked for, in order."""

    def __init__(self, auto: bool = True, wall: float = 1_700_000_000.0) -> None:
        self.slept: list[float] = []
        self._auto, self._wall, self._now = auto, wall, 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = itertools.count()
        self._turning: asyncio.Task[None] | None = None

    def now(self) -> float:
        return self._now

    def wall(self) -> float:
        return self._wall + self._now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        wake = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + max(seconds, 0.0), next(self._count), wake))
        if self._auto and (self._turning is None or self._turning.done()):
            self._turning = asyncio.ensure_future(self._turn())
        await wake

    def pass_(self, seconds: float) -> None:
        """Let time pass while nobody is woken."""
        self._now += seconds

    def shift_wall(self, seconds: float) -> None:
        """Set the calendar, as an administrator may; the monotonic clock does not move."""
        self._wall += seconds

    async def advance(self, seconds: float) -> None:
        """Let time pass and wake those whose time comes, in order."""
        until = self._now + seconds
        while self._sleepers and self._sleepers[0][0] <= until:
            self._wake_next()
            await _idle()
        self._now = until

    def _wake_next(self) -> None:
        at, _, wake = heapq.heappop(self._sleepers)
        if not wake.done():
            self._now = max(self._now, at)
            wake.set_result(None)

    async def _turn(self) -> None:
        while True:
            await _idle()
            if not self._sleepers:
                return
            self._wake_next()


async def _idle() -> None:
    """Wait until nothing else in this event loop can run."""
    loop = asyncio.get_running_loop()
    idle = 0
    while idle < IDLE_TURNS:
        await asyncio.sleep(0)
        idle = 0 if loop._ready else idle + 1  # type: ignore[attr-defined]
