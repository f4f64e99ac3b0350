"""Caps on money and tokens, and token buckets for the rate."""

from __future__ import annotations

import asyncio

from pydantic import Field

from llm_service.config import Part
from llm_service.pipeline.clock import Clock


class LimitsConfig(Part):
    """Caps; none: no cap."""

    requests_per_minute: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Maximum number of calls in any minute."""
    tokens_per_minute: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Maximum number of tokens, prompts and longest possible replies together, in any minute."""
    tokens: int | None = Field(default=None, ge=0)
    """Hard cap for the run, across all restarts."""
    dollars: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Hard cap for the run, across all restarts."""
    tokens_per_hour: int | None = Field(default=None, ge=0)
    """Hard cap for the last 60 minutes, at any moment."""
    dollars_per_hour: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Hard cap for the last 60 minutes, at any moment."""
    waiting: int = Field(default=10_000, ge=1)
    """Maximum number of questions in flight at once; more are refused as busy."""

    def meters(self, paid: bool) -> bool:
        """Whether the ledger must record calls: they cost money, or a cap counts their tokens."""
        return paid or self.tokens is not None or self.tokens_per_hour is not None


class _Bucket:
    """Holds one second's share of `per_minute`, at least 1, and fills so that no minute has more than `per_minute`."""

    def __init__(self, per_minute: float, now: float) -> None:
        self._size = max(1.0, per_minute / 60)
        self._per_second = (per_minute - (self._size - 1)) / 60
        self._level, self._at = self._size, now

    def wait(self, amount: float, now: float) -> float:
        """Seconds until `amount` may be taken; an amount larger than the bucket goes when the bucket is full."""
        self._level = min(self._size, self._level + (now - self._at) * self._per_second)
        self._at = now
        missing = min(amount, self._size) - self._level
        return missing / self._per_second if missing > 1e-6 * self._size else 0.0  # clocks are not exact

    def take(self, amount: float) -> None:
        """Take an amount; leaves a debt if there is less."""
        self._level -= amount


class Rate:
    """Token buckets of requests and tokens, first come first served. Belongs to one event loop.

    In any minute at most `requests_per_minute` requests pass, and at most `tokens_per_minute` tokens and one request's.
    """

    def __init__(self, config: LimitsConfig, clock: Clock) -> None:
        self._clock = clock
        now = clock.now()
        self._requests = _Bucket(config.requests_per_minute, now) if config.requests_per_minute else None
        self._tokens = _Bucket(config.tokens_per_minute, now) if config.tokens_per_minute else None
        self._turn = asyncio.Lock()  # wakes callers in the order in which they asked

    async def admit(self, tokens: int) -> None:
        """Wait until one request with this many tokens may be sent."""
        wanted = [(b, n) for b, n in ((self._requests, 1.0), (self._tokens, float(tokens))) if b is not None]
        if not wanted:
            return
        async with self._turn:
            while wait := max(bucket.wait(amount, self._clock.now()) for bucket, amount in wanted):
                await self._clock.sleep(wait)
            for bucket, amount in wanted:
                bucket.take(amount)
