# ruff: noqa: N802 - the names of rpcs are those of `llm.proto`
"""Handling of a request: token, limits, the service, and failures as gRPC codes.

Admitted work runs to its end even if its caller goes away: others may wait for the same answer, and it is paid for.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
from google.protobuf.message import DecodeError

from llm_service.errors import Away, Busy, Refused, ServiceError, UsageError, place
from llm_service.proto import llm_pb2, wire
from llm_service.records import Ask, Lane, Status, Verb
from llm_service.server import guard

if TYPE_CHECKING:
    from llm_service.pipeline.pipeline import Service

T = TypeVar("T")
_log = logging.getLogger("llm_service")
_CODES = {Status.BUSY: grpc.StatusCode.RESOURCE_EXHAUSTED, Status.REFUSED: grpc.StatusCode.RESOURCE_EXHAUSTED}


class Guard(grpc.aio.ServerInterceptor):
    """Admits calls with the token, up to a limit; exceptions become gRPC codes with one sentence.

    gRPC receives the whole body of a unary request before it calls the handler. On the wire a unary request is a stream
    of one message, so the handlers here take streams, and read the message only after the call is admitted. A refused
    call costs what HTTP/2 lets a caller send without permission, some 64 KiB, however large its body is.

    Args:
        token: the token that callers must send.
        max_calls: maximum number of open calls with the token.
        counts: its `busy` counts refused calls.
    """

    def __init__(self, token: str, max_calls: int, counts: Counter[str]) -> None:
        self._token, self._max_calls, self._counts = token, max_calls, counts
        self._open = 0
        self._handlers: dict[str, Any] = {}
        self._denied: Any = grpc.stream_unary_rpc_method_handler(self._deny)

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        if not guard.matches(self._token, details.invocation_metadata):
            return self._denied
        if details.method not in self._handlers:
            handler = await continuation(details)
            if handler is None:  # not one of our methods: gRPC answers
                return None
            self._handlers[details.method] = self._wrapped(handler)
        return self._handlers[details.method]

    async def _deny(self, bodies: AsyncIterator[bytes], context: Any) -> None:
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token is missing or wrong")

    def _wrapped(self, handler: Any) -> Any:
        behaviour, parse = handler.unary_unary, handler.request_deserializer

        async def guarded(bodies: AsyncIterator[bytes], context: Any) -> Any:
            trailers: tuple[tuple[str, str], ...] = ()
            self._open += 1
            try:
                if self._open > self._max_calls:
                    self._counts["busy"] += 1
                    raise Busy(f"{self._max_calls} calls are already open; ask again a little later")
                body = await anext(bodies, None)
                if body is None:  # cut on its way, or larger than `max_message_mb`, which gRPC reports to the caller
                    raise UsageError("the call came without a request")
                return await behaviour(parse(body), context)
            except UsageError as error:
                code, sentence = grpc.StatusCode.INVALID_ARGUMENT, str(error)
            except DecodeError:  # the original message may contain a piece of the body
                code, sentence = grpc.StatusCode.INVALID_ARGUMENT, "the body is not cairn.llm.v1"
            except ServiceError as error:
                code = _CODES.get(error.status, grpc.StatusCode.UNAVAILABLE)
                sentence, trailers = str(error), ((wire.STATUS, str(int(error.status))),)
            except Exception as error:  # the caller gets only the kind: the message may contain a prompt
                _log.error("%s", place(error))
                code, sentence = grpc.StatusCode.INTERNAL, f"the service failed: {type(error).__name__}"
            finally:
                self._open -= 1
            await context.abort(code, sentence, trailers)

        return grpc.stream_unary_rpc_method_handler(guarded, response_serializer=handler.response_serializer)


class Servicer:
    """The rpcs of `llm.proto`: answers from memory are returned immediately, the rest is admitted within limits."""

    def __init__(self, service: Service, config: guard.ServerConfig, backend: str) -> None:
        self._service, self._config, self._backend = service, config, backend
        self._running: set[asyncio.Task[Any]] = set()
        self._of: Counter[str] = Counter()  # requests in progress, by caller
        self.counts: Counter[str] = Counter(requests=0, items=0, busy=0, failed=0)
        self.ending = False

    async def Generate(self, request: llm_pb2.Ask, context: Any) -> llm_pb2.Answers:
        return await self._answers("generate", request, context)

    async def Score(self, request: llm_pb2.Ask, context: Any) -> llm_pb2.Answers:
        return await self._answers("score", request, context)

    async def Embed(self, request: llm_pb2.Ask, context: Any) -> llm_pb2.Answers:
        return await self._answers("embed", request, context)

    async def _answers(self, verb: Verb, request: llm_pb2.Ask, context: Any) -> llm_pb2.Answers:
        ask = self._read(verb, "interactive", request, context)
        found = self._service.peek(ask)
        if found is None:
            found = await self.admitted(ask.caller, lambda: self._service.ask(ask))
        return wire.answers(found)

    async def Submit(self, request: llm_pb2.Job, context: Any) -> llm_pb2.Accepted:
        ask = self._read(wire.verb_of(request), "durable", request.ask, context)
        keys, status = await self.admitted(ask.caller, lambda: self._service.submit(ask))
        return wire.accepted(keys, status)

    async def Fetch(self, request: llm_pb2.Keys, context: Any) -> llm_pb2.Answers:
        self._limit(len(request.keys), 0)
        keys, wait_s = list(request.keys), min(max(request.wait_s, 0.0), self._deadline(context))
        return wire.answers(await self.admitted(_caller(context), lambda: self._service.fetch(keys, wait_s)))

    async def Health(self, request: llm_pb2.Empty, context: Any) -> llm_pb2.State:
        ok, reason = (False, "the service is ending") if self.ending else await self._service.health()
        limits = self._config
        return llm_pb2.State(
            ok=ok,
            reason=reason,
            backend=self._backend,
            max_items=limits.max_items,
            max_characters=limits.max_characters,
        )

    async def Stats(self, request: llm_pb2.Empty, context: Any) -> llm_pb2.Numbers:
        return llm_pb2.Numbers(values=self.stats())

    def stats(self) -> dict[str, float]:
        """The service's numbers and the server's own."""
        own = {f"server/{name}": float(count) for name, count in self.counts.copy().items()}
        return {**self._service.stats(), **own, "server/running": float(len(self._running))}

    async def finish(self, seconds: float) -> bool:
        """Accept no more work, and wait for admitted work. Returns whether all of it ended in time."""
        self.ending = True
        if self._running:
            await asyncio.wait(self._running, timeout=seconds)
        return not self._running

    def _read(self, verb: Verb, lane: Lane, message: llm_pb2.Ask, context: Any) -> Ask:
        if self.ending:
            raise Away("the service is ending; its successor will answer")
        ask = wire.read_request(message, verb, lane, _caller(context), self._deadline(context))
        texts = [*ask.contents, *[text for entry in ask.candidates for text in entry]]
        self._limit(max([len(ask.contents), *map(len, ask.candidates)]), max(map(len, texts), default=0))
        self.counts["requests"] += 1
        self.counts["items"] += len(ask.contents)
        return ask

    def _limit(self, items: int, characters: int) -> None:
        config = self._config
        if items > config.max_items:
            raise Refused(f"the request has {items} items, the limit is {config.max_items}: send several requests")
        if characters > config.max_characters:
            raise Refused(f"a text has {characters} characters, the limit is {config.max_characters}")

    def _deadline(self, context: Any) -> float:
        """Seconds, a little less than the caller's deadline, so that finished answers still reach it."""
        remaining: float | None = context.time_remaining()
        if remaining is None:
            return self._config.max_deadline_s
        return min(max(remaining - min(0.1 * remaining, 0.2), 0.0), self._config.max_deadline_s)

    async def admitted(self, caller: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of a request's work, which runs to its end even if this wait is cancelled.

        Raises:
            Away, Busy: the server is ending, or too many requests wait.
        """
        if self.ending:
            raise Away("the service is ending; its successor will answer")
        if self._of[caller] >= self._config.per_caller or len(self._running) >= self._config.in_all:
            self.counts["busy"] += 1
            raise Busy(f"{self._of[caller]} requests of this caller already wait; ask again a little later")
        task = asyncio.ensure_future(work())
        self._of[caller] += 1
        self._running.add(task)
        task.add_done_callback(lambda task: self._ended(caller, task))
        return await asyncio.shield(task)

    def _ended(self, caller: str, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        self._of[caller] -= 1
        if not self._of[caller]:
            del self._of[caller]  # callers choose their names: remember only active ones
        if not task.cancelled() and task.exception() is not None:
            self.counts["failed"] += 1  # the caller gets the exception itself, if it is still connected


def _caller(context: Any) -> str:
    for name, value in context.invocation_metadata():
        if name == wire.CALLER and isinstance(value, str):
            return value[:64]
    return ""
