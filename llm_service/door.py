"""The door that callers use, the same with and without a server between them and the models.

    Door        what callers call, from any thread
    Local       a door to a service in this process
                (a door to a service elsewhere: `llm_service.client.Client`)

Whatever happens to an item on its way is its answer's status: only misuse raises.
"""

from __future__ import annotations

import asyncio
import threading
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as TookTooLong
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from llm_service import tasks
from llm_service.errors import ServiceError
from llm_service.records import Answer, Ask, Parameters, Status, Verb

if TYPE_CHECKING:
    from llm_service.pipeline.path import Service

P = ParamSpec("P")
T = TypeVar("T")

GRACE_S = 5.0
"""How much longer than its deadline a service in this process may take before it is given up."""


class Unanswered(ServiceError):
    """There is no answer, where a caller asked for the bare values."""


class Door(AbstractContextManager["Door"]):
    """What callers call, from any thread. Usable in a `with` statement.

    Args:
        caller: who asks, for limits and statistics.
        deadline: seconds that a call may take, where it does not say otherwise.
    """

    def __init__(self, caller: str = "", deadline: float = 60.0) -> None:
        self.caller, self.deadline = caller, deadline
        self._threads = ThreadPoolExecutor(256, "llm-door")  # made only as they are needed

    @abstractmethod
    def answer(self, ask: Ask) -> list[Answer]:
        """One answer for each item, in order. Raises UsageError: unknown task, bad parameters."""

    @abstractmethod
    def accept(self, ask: Ask) -> tuple[list[str], list[Status]]:
        """Submit durable work: for each item its key, "" where it was not accepted, and a status that says why."""

    @abstractmethod
    def fetch(self, keys: Sequence[str], wait_s: float = 0.0) -> list[Answer]:
        """Answers of durable work, PENDING where there is none after `wait_s` seconds."""

    @abstractmethod
    def health(self) -> tuple[bool, str]:
        """Whether the service works, and why not."""

    @abstractmethod
    def stats(self) -> dict[str, float]:
        """Counters and gauges by name. Raises ServiceError if the service is away."""

    def generate(
        self,
        contents: Sequence[str],
        task: str = "",
        parameters: Parameters | None = None,
        sample: int = 0,
        deadline: float | None = None,
    ) -> list[Answer]:
        """Answers of a model to raw prompts, or of a task to its inputs as JSON."""
        return self.answer(self._ask("generate", contents, task, (), parameters, sample, deadline))

    def score(
        self,
        prompts: Sequence[str],
        candidates: Sequence[str] | Sequence[Sequence[str]],
        parameters: Parameters | None = None,
        deadline: float | None = None,
    ) -> list[Answer]:
        """Log-probabilities of candidates after each prompt: one list of candidates for all, or a list of lists."""
        words = tuple(entry for entry in candidates if isinstance(entry, str))
        sets = (words,) if words else tuple(tuple(entry) for entry in candidates)
        return self.answer(self._ask("score", prompts, "", sets, parameters, 0, deadline))

    def embed(self, texts: Sequence[str], deadline: float | None = None) -> NDArray[np.float32]:
        """Unit-length vectors, float32 [N, D]; `answer` gives them one by one, with their statuses.

        Raises:
            Unanswered: a text has no vector.
        """
        answers = self.answer(self._ask("embed", texts, "", (), None, 0, deadline))
        for i, answer in enumerate(answers):
            if not answer.ok:
                raise Unanswered(f"text {i} has no vector: {answer.status.name.lower()}: {answer.reason}")
        if not answers:
            return np.zeros((0, 0), np.float32)
        return np.frombuffer(b"".join([a.payload for a in answers]), "<f4").reshape(len(answers), -1)

    def ask(
        self,
        task: str,
        items: Iterable[Mapping[str, Any]],
        parameters: Parameters | None = None,
        sample: int = 0,
        deadline: float | None = None,
    ) -> list[Answer]:
        """Answers of a task to its inputs. Raises UsageError: unknown task, or inputs that it does not take."""
        return self.generate(tasks.contents(task, items), task, parameters, sample, deadline)

    def submit(
        self,
        task: str,
        items: Iterable[Mapping[str, Any]],
        parameters: Parameters | None = None,
        sample: int = 0,
        deadline: float | None = None,
    ) -> tuple[list[str], list[Status]]:
        """`ask` as durable work: keys for `fetch`, and statuses, as `accept` gives them."""
        contents = tasks.contents(task, items)
        return self.accept(self._ask("generate", contents, task, (), parameters, sample, deadline))

    def later(self, method: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """A method of this door in the background: `door.later(door.generate, prompts)`."""
        return self._threads.submit(method, *args, **kwargs)

    def close(self) -> None:
        """End the door. What is under way gets AWAY answers."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _ask(
        self,
        verb: Verb,
        contents: Sequence[str],
        task: str,
        candidates: tuple[tuple[str, ...], ...],
        parameters: Parameters | None,
        sample: int,
        deadline: float | None,
    ) -> Ask:
        seconds = self.deadline if deadline is None else deadline
        return Ask(verb, tuple(contents), task, candidates, parameters, sample, "interactive", self.caller, seconds)


class Local(Door):
    """A door to a service in this process: the service runs on an event loop in a thread of its own.

    Answers in memory are given in the caller's thread, without waking the other.

    Args:
        service: the service, or what makes it when awaited on its loop, such as `path.start(config, folder)`.
    """

    def __init__(self, service: Service | Awaitable[Service], caller: str = "", deadline: float = 60.0) -> None:
        super().__init__(caller, deadline)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="llm-service", daemon=True)
        self._thread.start()
        try:
            self._service: Service = self._run(_awaited(service), None) if isinstance(service, Awaitable) else service
        except BaseException:
            self._end_loop()
            raise

    def answer(self, ask: Ask) -> list[Answer]:
        found = self._service.peek(ask)
        if found is not None:
            return found
        try:
            return self._run(self._service.ask(ask), ask.deadline)
        except _Gone as gone:
            return [Answer(gone.status, reason=str(gone))] * len(ask.contents)

    def accept(self, ask: Ask) -> tuple[list[str], list[Status]]:
        try:
            return self._run(self._service.submit(ask), ask.deadline)
        except _Gone as gone:
            return [""] * len(ask.contents), [gone.status] * len(ask.contents)

    def fetch(self, keys: Sequence[str], wait_s: float = 0.0) -> list[Answer]:
        try:
            return self._run(self._service.fetch(list(keys), wait_s), wait_s + self.deadline)
        except _Gone as gone:
            return [Answer(gone.status, reason=str(gone))] * len(keys)

    def health(self) -> tuple[bool, str]:
        try:
            return self._run(self._service.health(), self.deadline)
        except _Gone as gone:
            return False, str(gone)

    def stats(self) -> dict[str, float]:
        return self._service.stats()

    def close(self) -> None:
        if self._loop.is_closed():
            return
        super().close()
        try:
            self._run(self._service.close(), None)
        finally:
            self._end_loop()

    def _run(self, work: Coroutine[Any, Any, T], seconds: float | None) -> T:
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            work.close()
            raise _Gone(Status.AWAY, "this door to the service was closed") from None
        try:
            return future.result(None if seconds is None else seconds + GRACE_S)
        except CancelledError:
            raise _Gone(Status.AWAY, "this door to the service was closed") from None
        except TookTooLong:
            future.cancel()
            raise _Gone(Status.EXPIRED, f"the service did not answer within {seconds:g} s") from None

    def _end_loop(self) -> None:
        asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class _Gone(ServiceError):
    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status


async def _awaited(thing: Awaitable[T]) -> T:
    return await thing


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
