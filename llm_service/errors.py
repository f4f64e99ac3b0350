"""What can go wrong between a question and its answer: one class for each branch that is treated differently.

Messages are one sentence that says what, where and what to do, and never hold a prompt or a secret.
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
    """Whether the provider may have charged for it all the same: then it counts as spent."""


class Transient(BackendError):
    """Worth another try, within the limits of time and budget."""

    status = Status.AWAY
    retry_after: float | None = None
    """Seconds that the backend asked to wait, if it did."""


class RateLimited(Transient):
    """Too many requests (429)."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Overloaded(RateLimited):
    """The server says that it cannot now (5xx, 408)."""


class Unreachable(Transient):
    """No connection, or it was cut."""


class TimedOut(Transient):
    """Connected, but no answer in time."""

    maybe_billed = True


class Garbled(Transient):
    """The reply is cut, is not the protocol, or is larger than any honest one."""

    maybe_billed = True


class Permanent(BackendError):
    """Another try would end the same way."""


class QuotaExhausted(Permanent):
    """Out of credit: also a 429, but waiting does not help. The breaker opens at once."""

    status = Status.AWAY


class Unauthorized(Permanent):
    """The key is missing, wrong, or may not use this model (401, 403). The breaker opens at once."""

    status = Status.AWAY  # of no question's making: durable jobs wait until it is put right


class Refused(Permanent):
    """The server does not take this request (other 4xx)."""


class ContextTooLong(Refused):
    """The prompt and the reply do not fit the model's context."""


class Unsupported(Permanent):
    """The backend does not have this verb or option."""


class NotRecorded(Permanent):
    """The replay backend has no answer to this prompt."""

    status = Status.MISSING


class Away(ServiceError):
    """The breaker is open: the backend has failed too often, and is left in peace for a while."""

    status = Status.AWAY


class OutOfBudget(ServiceError):
    """A hard cap of tokens or money would be passed."""

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
"""Exit code of a run that its surroundings ended: nobody asked for it, so that a queue should try it again."""


class UsageError(Exception):
    """The user asked for something that cannot be: one sentence on stderr, nothing started or written."""

    exit_code = 2


class AwayTooLong(UsageError):
    """The model is away for longer than a run will wait; it goes on from its checkpoint once the model is back."""

    exit_code = INTERRUPTED


class BudgetExhausted(UsageError):
    """A hard cap of tokens or money ended a run; it goes on after the cap is raised."""

    exit_code = 4


def place(error: BaseException) -> str:
    """Kind and place of a defect, for the log: its message is left out, since it may hold a prompt."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {last.filename}:{last.lineno}"
