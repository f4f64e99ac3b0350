"""When to retry, and when to stop calling a backend for a while.

Three bounds work together. One call: attempts, wall time and the caller's deadline, with full jitter between tries
(M. Brooker, "Exponential Backoff And Jitter", 2015). All calls: a budget of retries as a share of traffic, so that many
failures cannot multiply the load that caused them. The backend: a circuit breaker that stops all calls after several
failures in a row and lets one probe through from time to time.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable
from typing import Literal, TypeVar

from pydantic import Field

from llm_service.config import Part
from llm_service.errors import Away, BackendError, Permanent, QuotaExhausted, Transient, Unauthorized
from llm_service.pipeline.clock import Clock

T = TypeVar("T")


class RetryConfig(Part):
    """How often and how long a failing backend is tried."""

    attempts: int = Field(default=6, ge=1)
    """Maximum tries of one call, including the first."""
    seconds: float = Field(default=60.0, ge=0)
    """Maximum time from the first try to the start of the last, seconds."""
    base_s: float = Field(default=0.5, gt=0)
    """The wait after failure n (from 0) is uniform between 0 and `base_s` * 2^n."""
    cap_s: float = Field(default=20.0, gt=0)
    """Longest such wait, without the wait that the server asks for, seconds."""
    share: float = Field(default=0.2, ge=0, le=1)
    """Retries as a share of first tries, in the long run."""
    burst: float = Field(default=10.0, ge=0)
    """Maximum number of saved retries."""
    failures: int = Field(default=5, ge=1)
    """Failed batches in a row that open the circuit breaker."""
    open_s: float = Field(default=10.0, gt=0)
    """Seconds until the first probe; doubled after each failed probe."""
    open_cap_s: float = Field(default=120.0, gt=0)
    """Maximum seconds between probes."""


class RetryBudget:
    """A token bucket: first tries earn `share`, a retry costs 1. So always retries <= burst + share * first tries."""

    def __init__(self, config: RetryConfig) -> None:
        self._share, self._burst = config.share, config.burst
        self._saved = config.burst

    def earn(self) -> None:
        """Count the first try of a call."""
        self._saved = min(self._burst, self._saved + self._share)

    def spend(self) -> bool:
        """Whether one more retry is allowed; if so, it is deducted."""
        if self._saved < 1:
            return False
        self._saved -= 1
        return True


class Breaker:
    """A circuit breaker. Closed: calls pass. Open: none does. Half-open, after a time: one probe at a time.

    closed --`failures` in a row, or no credit, or a bad key--> open --time--> half-open --probe succeeds--> closed
                                                                 ^--- time doubled -------- probe fails
    """

    def __init__(self, config: RetryConfig, clock: Clock) -> None:
        self._config, self._clock = config, clock
        self._failures = 0
        self._opened = 0  # number of times in a row
        self._until: float | None = None  # when the next probe may be sent; None: closed
        self._probe_since: float | None = None
        self._reason = ""

    @property
    def state(self) -> Literal["closed", "open", "half-open"]:
        if self._until is None:
            return "closed"
        return "open" if self._clock.now() < self._until else "half-open"

    def admit(self) -> None:
        """Call this before a batch is sent, and afterwards `succeeded` or `failed`.

        Raises:
            Away: the batch may not be sent.
        """
        if self._until is None:
            return
        now = self._clock.now()
        if now < self._until:
            raise Away(f"the model gets no calls for {self._until - now:.1f} s more, because {self._reason}")
        # A probe that never reports (its task was cancelled) must not block the backend forever.
        if self._probe_since is not None and now < self._probe_since + self._config.open_cap_s:
            raise Away(f"the model is being probed after a failure: {self._reason}")
        self._probe_since = now

    def succeeded(self) -> None:
        """A batch was answered."""
        if self._counts():
            self._failures = self._opened = 0
            self._until = self._probe_since = None

    def failed(self, error: BackendError) -> None:
        """A whole batch failed. Errors about the question rather than the backend do not count."""
        if not self._counts():
            return
        probing, self._probe_since = self._probe_since is not None, None
        fatal = isinstance(error, QuotaExhausted | Unauthorized)
        if isinstance(error, Permanent) and not fatal:
            return
        self._failures += 1
        if fatal or probing or self._failures >= self._config.failures:
            wait = min(self._config.open_cap_s, self._config.open_s * 2.0 ** min(self._opened, 60))
            self._opened += 1
            self._until = self._clock.now() + wait
            self._reason = str(error)

    def _counts(self) -> bool:
        """Whether a result is current: results of batches that were sent before the breaker opened are late."""
        return self._until is None or (self._probe_since is not None and self.state == "half-open")


async def retried(
    attempt: Callable[[], Awaitable[T]],
    config: RetryConfig,
    budget: RetryBudget,
    clock: Clock,
    random: Callable[[], float],
    deadline: float,
) -> T:
    """The result of the first attempt that succeeds.

    A running attempt is never cancelled, because it may already be paid for: its own timeout ends it. The caller counts
    the first try with `budget.earn()`.

    Args:
        random: uniform in [0, 1).
        deadline: no attempt starts after it; in `clock.now()` seconds.

    Raises:
        Transient: the last one, if attempts, time or the budget are used up, or if the server asks for a longer wait
            than there is time.
        ServiceError: any other error of an attempt, immediately.
    """
    began = clock.now()
    end = min(began + config.seconds, deadline)
    tries = 0
    while True:
        try:
            tries += 1
            return await attempt()
        except Transient as error:
            now = clock.now()
            asked = error.retry_after or 0.0
            # Jitter is added to the server's wait, or all callers would return at the same moment.
            wait = asked + random() * min(config.cap_s, config.base_s * 2.0 ** min(tries - 1, 60))
            if tries >= config.attempts:
                why = "no attempts are left"
            elif now + wait > end:
                why = f"the server asks for {asked:.1f} s" if asked else "no time is left"
            elif not budget.spend():
                why = "too large a share of the traffic is retries"
            else:
                await clock.sleep(wait)
                continue
            raise _given_up(error, f"tried {tries} times in {max(0.0, now - began):.1f} s; {why}") from None


def _given_up(error: Transient, history: str) -> Transient:
    """The same error with its history in the message; a copy, because one error may belong to many calls."""
    told = copy.copy(error)
    told.args = (f"{error} ({history})",)
    told.__cause__ = error.__cause__
    return told
