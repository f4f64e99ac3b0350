"""Errors between a question and its answer: one class for each case that is handled differently.

Messages are one sentence that says what, where and what to do, and never contain a prompt or a secret.
"""

from __future__ import annotations

import traceback

from llm_service.records import Status


class ServiceError(Exception):
    """Anything that ends an item without an answer."""

    status = Status.REFUSED


class BackendError(ServiceError):
    """A backend could not answer."""

    maybe_billed = False
    """Whether the provider may have charged for it anyway: then it counts as spent."""


class Transient(BackendError):
    """Another try may succeed, within the limits of time and budget."""

    status = Status.AWAY
    retry_after: float | None = None
    """Seconds that the backend asked to wait, if it did."""


class RateLimited(Transient):
    """Too many requests (429)."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Overloaded(RateLimited):
    """The server cannot answer now (5xx, 408)."""


class Unreachable(Transient):
    """No connection, or a cut one."""


class TimedOut(Transient):
    """Connected, but no answer in time."""

    maybe_billed = True


class Garbled(Transient):
    """The reply is cut, violates the protocol, or is too large."""

    maybe_billed = True


class Permanent(BackendError):
    """Another try would fail the same way."""


class QuotaExhausted(Permanent):
    """Out of credit: also a 429, but waiting does not help. The breaker opens at once."""

    status = Status.AWAY


class Unauthorized(Permanent):
    """The key is missing, wrong, or may not use this model (401, 403). The breaker opens at once."""

    status = Status.AWAY  # not caused by a question: durable jobs wait until it is fixed


class Refused(Permanent):
    """The server does not accept this request (other 4xx)."""


class ContextTooLong(Refused):
    """The prompt and the reply do not fit the model's context."""


class Unsupported(Permanent):
    """The backend does not support this verb or option."""


class NotRecorded(Permanent):
    """The replay backend has no answer to this prompt."""

    status = Status.MISSING


class Away(ServiceError):
    """The circuit breaker is open: the backend has failed too often and gets no calls for a while."""

    status = Status.AWAY


class OutOfBudget(ServiceError):
    """A hard cap on tokens or money would be exceeded."""

    status = Status.BUDGET


class Busy(ServiceError):
    """A bounded queue is full."""

    status = Status.BUSY


class Expired(ServiceError):
    """The caller's deadline passed."""

    status = Status.EXPIRED


class Malformed(ServiceError):
    """A reply is outside the task's grammar. The message says what was expected: it becomes the repair turn."""

    status = Status.MALFORMED


INTERRUPTED = 5
"""Exit code of an interrupted run: nobody asked it to end, so a queue should try it again."""


class UsageError(Exception):
    """The user asked for something impossible: one sentence on stderr, nothing started or written."""

    exit_code = 2


class AwayTooLong(UsageError):
    """The model is unavailable for longer than a run waits; the run can be resumed once the model is back."""

    exit_code = INTERRUPTED


class BudgetExhausted(UsageError):
    """A hard cap on tokens or money ended a run; the run can be resumed after the cap is raised."""

    exit_code = 4


def place(error: BaseException) -> str:
    """Kind and place of a defect, for the log; its message is left out because it may contain a prompt."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {last.filename}:{last.lineno}"
