"""The paths of the OpenAI-compatible API, and what the service answers.

    POST /v1/chat/completions, /v1/completions, /v1/embeddings     GET /v1/models, /v1/models/ID, /healthz

Requests take the service's own way: admission and limits as for gRPC, then journal, budget, batches and retries. What
a backend tells while a reply grows is sent as it comes; other replies are one chunk of a stream. If a client hangs up,
its work runs to its end, because it is paid for.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from llm_service.errors import ServiceError, UsageError, place
from llm_service.records import Ask, Call, Heard, Reply, Token
from llm_service.server.guard import ServerConfig
from llm_service.server.servicer import Servicer
from llm_service.web.http import HttpServer, Refused, Request, Response, log
from llm_service.web.replies import Shape, embeddings, refusal, refused
from llm_service.web.requests import Chat, Completion, Embedding, read

if TYPE_CHECKING:
    from llm_service.pipeline.pipeline import Service

CALLER = "openai"
"""The caller's name where a request gives no `user`."""


class Endpoints:
    """An HTTP server for a service. Belongs to its event loop.

    Args:
        servicer: admits requests, and waits for their work at the end.
        backend: the backend's name, by which clients may ask for its model.
    """

    def __init__(self, service: Service, servicer: Servicer, config: ServerConfig, token: str, backend: str) -> None:
        self._service, self._servicer, self._config = service, servicer, config
        self._backend, self._began = backend, int(time.time())
        self._http = HttpServer(self._answer, token, config.max_message_mb << 20)

    async def start(self) -> str:
        """Listen. Returns the base URL. Raises UsageError if it cannot."""
        config, (host, _, port) = self._config, self._config.openai.rpartition(":")
        if not (host and port.isascii() and port.isdigit()):
            raise UsageError(f"server.openai: {config.openai} is not HOST:PORT, such as 127.0.0.1:8000")
        try:
            number = await self._http.start(host.strip("[]"), int(port), self._tls())
        except (OSError, OverflowError) as error:
            cause = f"{error}; is another server there, or are the TLS files not a PEM pair?"
            raise UsageError(f"server.openai: cannot listen at {config.openai}: {cause}") from None
        return f"{'https' if config.tls_certificate else 'http'}://{host}:{number}/v1"

    async def close(self, seconds: float) -> None:
        await self._http.close(seconds)

    def _tls(self) -> ssl.SSLContext | None:
        config = self._config
        if not config.tls_certificate:
            return None
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(config.tls_certificate, config.tls_key)
        if config.tls_client_ca:
            tls.load_verify_locations(config.tls_client_ca)
            tls.verify_mode = ssl.CERT_REQUIRED
        return tls

    async def _answer(self, request: Request) -> Response:
        posts = {
            "/v1/chat/completions": self._chat,
            "/v1/completions": self._completion,
            "/v1/embeddings": self._embed,
        }
        try:
            if request.path in posts and request.method == "POST":
                return await posts[request.path](request.body)
            if request.method == "GET" and request.path == "/healthz":
                return await self._health()
            if request.method == "GET" and request.path == "/v1/models":
                return Response({"object": "list", "data": list(self._models().values())})
            if request.method == "GET" and request.path.startswith("/v1/models/"):
                return Response(self._model(unquote(request.path.removeprefix("/v1/models/"))))
        except ServiceError as error:
            raise refusal(error) from None
        except UsageError as error:
            raise Refused(400, str(error)) from None
        if request.path in (*posts, "/v1/models", "/healthz"):
            raise Refused(405, f"{request.path} does not take this method", code="method_not_allowed")
        raise Refused(404, "there is nothing at this path", code="not_found")

    # ---- models and health ------------------------------------------------------------------------------------------

    def _names(self) -> dict[str, tuple[str, ...]]:
        """The names of the language model and of the embedder: exact, and one that stays when weights change."""
        embedder = self._service.embedder.model
        return {"generate": (self._service.backend.model, self._backend), "embed": (embedder, "embedding")}

    def _models(self) -> dict[str, dict[str, Any]]:
        names = [name for some in self._names().values() for name in some]
        return {name: {"id": name, "object": "model", "created": self._began, "owned_by": "cairn"} for name in names}

    def _model(self, name: str, verb: str = "") -> dict[str, Any]:
        """A model by its name. Raises Refused if there is none, or it does not have the verb."""
        known = self._names()[verb] if verb else tuple(self._models())
        if name not in known:
            said = f"there is no such model here: use {' or '.join(known)}"
            raise Refused(404, said, param="model", code="model_not_found")
        return self._models()[name]

    async def _health(self) -> Response:
        ok, reason = (False, "the service is ending") if self._servicer.ending else await self._service.health()
        if not ok:
            raise Refused(503, reason, "server_error", code="unhealthy")
        return Response({"status": "ok", "reason": reason})

    # ---- texts and vectors ------------------------------------------------------------------------------------------

    async def _chat(self, body: bytes) -> Response:
        asked = read(Chat, body)
        calls = asked.calls()
        return await self._generate(asked, calls, Shape(True, asked.model, [""] * len(calls), asked.logprobs))

    async def _completion(self, body: bytes) -> Response:
        asked = read(Completion, body)
        calls = asked.calls()
        repeated = [call.turns[0][1] if asked.echo else "" for call in calls]
        return await self._generate(asked, calls, Shape(False, asked.model, repeated, asked.logprobs is not None))

    async def _generate(self, asked: Chat | Completion, calls: Sequence[Call], shape: Shape) -> Response:
        self._model(asked.model, "generate")
        self._limit(len(calls), asked.texts)
        caller = asked.user[:64] or CALLER
        if not asked.stream:
            return Response(shape.whole(await self._servicer.admitted(caller, lambda: self._replies(calls, caller))))
        events = self._events(calls, caller, shape, asked.stream_options.include_usage)
        first = await anext(events)  # what is refused before anything is sent has its own status

        async def all_events() -> AsyncGenerator[str, None]:
            async with contextlib.aclosing(events):
                yield first
                async for event in events:
                    yield event

        return Response(events=all_events())

    async def _replies(self, calls: Sequence[Call], caller: str) -> list[Reply]:
        deadline = self._config.max_deadline_s
        return await asyncio.gather(*[self._service.reply(call, caller, deadline) for call in calls])

    async def _events(
        self, calls: Sequence[Call], caller: str, shape: Shape, include_usage: bool
    ) -> AsyncGenerator[str, None]:
        """The data of a stream's events: chunks of each choice as it grows, its last one, counts, [DONE]."""
        growing = Growing(len(calls))
        listening = [replace(call, heard=growing.heard(i)) for i, call in enumerate(calls)]
        work = asyncio.ensure_future(self._servicer.admitted(caller, lambda: self._replies(listening, caller)))
        work.add_done_callback(lambda done: growing.changed.set())
        sent = False
        try:
            while not work.done():
                await growing.changed.wait()
                growing.changed.clear()
                for i, text, tokens, at in growing.news():
                    yield json.dumps(shape.chunk(i, text, tokens, at))
                    sent = True
            replies = work.result()
        except Exception as error:
            trouble = _trouble(error)
            if not sent:
                raise trouble from None
            yield json.dumps(trouble.content)  # the status is sent already
            return
        finally:
            work.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may be left to see it
        for i, reply in enumerate(replies):
            text, tokens, at = growing.rest(i, reply)
            yield json.dumps(shape.chunk(i, text, tokens, at, reply))
        if include_usage:
            yield json.dumps(shape.counted(replies))
        yield "[DONE]"

    async def _embed(self, body: bytes) -> Response:
        asked = read(Embedding, body)
        self._model(asked.model, "embed")
        self._limit(len(asked.input), asked.input)
        caller = asked.user[:64] or CALLER
        ask = Ask("embed", tuple(asked.input), caller=caller, deadline=self._config.max_deadline_s)
        answers = await self._servicer.admitted(caller, lambda: self._service.ask(ask))
        for i, answer in enumerate(answers):
            if not answer.ok:
                raise refused(answer.status, f"text {i} has no vector: {answer.reason}")
        vectors, packed = [answer.vector for answer in answers], asked.encoding_format == "base64"
        return Response(embeddings(asked.model, vectors, packed, sum(answer.tokens for answer in answers)))

    def _limit(self, items: int, texts: Sequence[str]) -> None:
        config, longest = self._config, max(map(len, texts))
        if items > config.max_items:
            raise Refused(400, f"the request asks for {items} replies, the limit is {config.max_items}", param="n")
        if longest > config.max_characters:
            said = f"a text has {longest} characters, the limit is {config.max_characters}"
            raise Refused(400, said, code="context_length_exceeded")
        self._servicer.counts["requests"] += 1
        self._servicer.counts["items"] += items


class Growing:
    """The replies of one request while they grow: the latest state of each, and how much of it was sent."""

    def __init__(self, count: int) -> None:
        self.changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._latest: dict[int, tuple[str, tuple[Token, ...]]] = {}
        self._sent = [("", 0)] * count

    def heard(self, i: int) -> Heard:
        """What tells reply i; any thread may call it."""

        def tell(text: str, tokens: tuple[Token, ...]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
                self._loop.call_soon_threadsafe(self._tell, i, text, tokens)

        return tell

    def news(self) -> list[tuple[int, str, tuple[Token, ...], int]]:
        """Replies that have become longer: which, the new text, its tokens, and where it begins."""
        latest, self._latest = self._latest, {}
        return [(i, *self._next(i, text, tokens)) for i, (text, tokens) in latest.items() if self._longer(i, text)]

    def rest(self, i: int, reply: Reply) -> tuple[str, tuple[Token, ...], int]:
        """What was not sent of a reply that is known."""
        return self._next(i, reply.text, reply.tokens)

    def _tell(self, i: int, text: str, tokens: tuple[Token, ...]) -> None:
        self._latest[i] = text, tokens
        self.changed.set()

    def _longer(self, i: int, text: str) -> bool:
        sent, _ = self._sent[i]
        return len(text) > len(sent) and text.startswith(sent)  # a retry begins anew: nothing is sent twice

    def _next(self, i: int, text: str, tokens: tuple[Token, ...]) -> tuple[str, tuple[Token, ...], int]:
        sent, count = self._sent[i]
        self._sent[i] = text, len(tokens)
        return text[len(sent) :], tokens[count:], len(sent)


def _trouble(error: Exception) -> Refused:
    if isinstance(error, Refused):
        return error
    if isinstance(error, ServiceError):
        return refusal(error)
    log.error("%s", place(error))
    return Refused(500, f"the service failed: {type(error).__name__}", "server_error")
