"""The processes of the LLM service: the service itself, and replicas of its model.

They import no more than the service needs: with the rest of a run's code they would start two seconds later, and a run
waits for them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from llm_service.errors import BackendError, Garbled, Unreachable
from llm_service.records import Call, Option, Reply, Verb
from llm_service.server import assembly
from llm_service.server.process import Server
from llm_service.settings import LLMConfig


class Warnings(logging.Handler):
    """Keeps warnings in `lines`."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


class LanguageRole:
    """A service with its server, on an event loop in its own thread.

    config: the dumped `LLMConfig`.
    places: arguments of `ray.remote` for each of its replicas.
    """

    def __init__(self, config: dict[str, Any], folder: str, places: Sequence[dict[str, Any]] = ()) -> None:
        self._config, self._folder, self._places = LLMConfig(**config), Path(folder), places
        self._warnings = Warnings()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="llm-service", daemon=True).start()
        self._server = self._run(self._start())

    async def _start(self) -> Server:
        config, logger = self._config, logging.getLogger("llm_service")
        backend = Replicas(config, self._places) if config.replicas else None
        logger.addHandler(self._warnings)
        try:
            service = await assembly.start(config, self._folder, backend)
            server = Server(service, config.server, self._folder, config.name)
            await server.start()
        finally:
            logger.removeHandler(self._warnings)
        return server

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def ready(self) -> str:
        """The address, once the constructor has finished."""
        return str(self._server.address)

    def warnings(self) -> list[str]:
        """Warnings of the start, because nobody sees the log of this process."""
        return self._warnings.lines

    def heartbeat(self) -> dict[str, Any]:
        """A sign of life from the event loop."""

        async def alive() -> dict[str, Any]:
            return {"phase": "serve", "pid": os.getpid(), "stats": self._server.stats()}

        return dict(self._run(alive()))

    def numbers(self) -> dict[str, float]:
        """Its metrics, named as in `llm_service.metrics.LLM`; any thread may call this."""
        return dict(self._server.stats())

    def drain(self) -> bool:
        """Finish work in progress, and close."""
        done = self._run(self._server.drain())
        self._loop.call_soon_threadsafe(self._loop.stop)
        return bool(done)


class Replica:
    """A process that holds the model."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._loop = asyncio.new_event_loop()
        self._backend = assembly.make_backend(LLMConfig(**config))

    def about(self) -> tuple[str, frozenset[Verb], frozenset[Option], int, float | None]:
        backend = self._backend
        return backend.model, backend.verbs, backend.options, backend.max_batch, backend.bucket_ratio

    def answer(self, calls: Sequence[Call]) -> list[Reply | BackendError]:
        return self._loop.run_until_complete(self._backend.answer(calls))

    def probe(self) -> Call | None:
        return self._loop.run_until_complete(self._backend.probe())


class Replicas:
    """A backend that spreads batches over replicas on Ray. Ray restarts dead replicas; their batches are retried.

    places: arguments of `ray.remote` for each replica.
    """

    paid = False

    def __init__(self, config: LLMConfig, places: Sequence[dict[str, Any]]) -> None:
        import ray  # of the worker process in which this runs

        remote: Any = ray.remote(max_restarts=-1, max_task_retries=0)(Replica)
        self._died: type[Exception] = ray.exceptions.RayError
        self._raised: type[Exception] = ray.exceptions.RayTaskError
        self._handles = [remote.options(**place).remote(config.model_dump()) for place in places]
        about = ray.get(self._handles[0].about.remote())
        self.model, self.verbs, self.options, self.max_batch, self.bucket_ratio = about
        self.concurrency = config.replicas
        self._idle: asyncio.Queue[Any] = asyncio.Queue()
        for handle in self._handles:
            self._idle.put_nowait(handle)

    async def answer(self, calls: Sequence[Call]) -> list[Reply | BackendError]:
        # Who listens is in this process: a replica's replies arrive whole.
        return list(await self._on_a_replica("answer", [replace(call, heard=None) for call in calls]))

    async def _on_a_replica(self, method: str, *args: Any) -> Any:
        handle = await self._idle.get()
        try:
            return await getattr(handle, method).remote(*args)
        except self._raised as error:
            cause: Any = getattr(error, "cause", None)
            if isinstance(cause, BackendError):
                raise cause from None
            raise Garbled(f"a replica of the model raised {type(cause).__name__}") from None
        except self._died as error:
            raise Unreachable(f"a replica of the model died: {type(error).__name__}; Ray starts it again") from None
        finally:
            self._idle.put_nowait(handle)

    def estimate(self, call: Call) -> tuple[int, int]:
        return call.characters // 3 + 8 * len(call.turns), call.parameters.max_tokens

    def price(self, prompt_tokens: int, completion_tokens: int) -> float:
        return 0.0

    async def probe(self) -> Call | None:
        call: Call | None = await self._on_a_replica("probe")
        return call

    async def close(self) -> None:
        """The replicas belong to this process, and end with it."""
