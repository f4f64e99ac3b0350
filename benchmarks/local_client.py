"""A client of a language-model service in this process. The benchmark `llm` compares it with a client over gRPC."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Coroutine, Sequence
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as TookTooLong
from typing import Any, TypeVar

from llm_service.errors import ServiceError
from llm_service.interface import LLMClient
from llm_service.pipeline.pipeline import Service
from llm_service.records import Answer, Ask, Status

GRACE_S = 5.0
"""Seconds past its deadline after which a service in this process is given up."""

T = TypeVar("T")


class Local(LLMClient):
    """A client of a service in this process. The service runs on an event loop in its own thread.

    The caller's thread gets answers that are in memory without waking the service's thread.

    Args:
        service: the service, or an awaitable that makes it on its loop, such as `assembly.start(config, folder)`.
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
            raise _Gone(Status.AWAY, "this client to the service was closed") from None
        try:
            return future.result(None if seconds is None else seconds + GRACE_S)
        except CancelledError:
            raise _Gone(Status.AWAY, "this client to the service was closed") from None
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
