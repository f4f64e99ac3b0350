"""HTTP/1.1 on asyncio's streams, as little of it as an API needs.

    head ──> token ──> length ──> body ──> `answer` ──> JSON, or server-sent events

A request without the token is refused before its body is received. Each connection is a task of its own, with limits on
size and time in both directions, so a slow client delays nobody and holds no more than its buffers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from llm_service.errors import place
from llm_service.server import guard

log = logging.getLogger("llm_service")

MOST_HEAD_BYTES = 32 << 10
"""Longest request line and headers together."""
MOST_CONNECTIONS = 512
"""Connections at once, idle ones included."""
IDLE_S, BODY_S, WRITE_S, LINGER_S = 20.0, 60.0, 30.0, 2.0
"""Longest wait for a head; time for a body; time that a client may leave its buffers full; time to read a refusal."""
BUFFER_BYTES = 64 << 10
"""Bytes of a reply that wait for a slow client."""


class Refused(Exception):
    """A request that gets no answer. `kind` and `code` are of OpenAI's errors; `param` is the field that is wrong."""

    def __init__(self, status: int, sentence: str, kind: str = "invalid_request_error", **more: Any) -> None:
        super().__init__(sentence)
        self.status, self.kind = status, kind
        self.param: str | None = more.get("param")
        self.code: str | None = more.get("code")
        self.headers: Mapping[str, str] = more.get("headers", {})

    @property
    def content(self) -> dict[str, Any]:
        """The body of the refusal."""
        return {"error": {"message": str(self), "type": self.kind, "param": self.param, "code": self.code}}


@dataclass(frozen=True)
class Request:
    """What arrived, with the token."""

    method: str
    path: str  # without its query
    headers: dict[str, str]  # names in lower case
    body: bytes


@dataclass(frozen=True)
class Response:
    """A JSON object, or server-sent events: the data of each."""

    content: dict[str, Any] = field(default_factory=dict)
    events: AsyncGenerator[str, None] | None = None


class HttpServer:
    """Belongs to one event loop.

    Args:
        answer: makes the response to an admitted request; raises `Refused`.
        token: what callers must send as `Authorization: Bearer TOKEN`.
        most_body_bytes: longest body.
    """

    def __init__(self, answer: Callable[[Request], Awaitable[Response]], token: str, most_body_bytes: int) -> None:
        self._answer, self._token, self._most_body_bytes = answer, token, most_body_bytes
        self._server: asyncio.Server | None = None
        self._busy: dict[asyncio.Task[None], bool] = {}  # of each connection, whether it has a request in progress
        self._ending = False

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None) -> int:
        """Listen, port 0: any free one. Returns the port. Raises OSError if it cannot."""
        handshake = {"ssl_handshake_timeout": IDLE_S} if tls else {}
        listening = asyncio.start_server(self._connected, host, port, limit=MOST_HEAD_BYTES, ssl=tls, **handshake)
        self._server = await listening
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self, seconds: float) -> None:
        """Accept nothing more; replies that are ready may be sent within the time."""
        self._ending = True
        if self._server is None:
            return
        self._server.close()
        for task, busy in self._busy.items():
            if not busy:
                task.cancel()
        if self._busy:
            await asyncio.wait(set(self._busy), timeout=seconds)
        for task in self._busy:
            task.cancel()
        if self._busy:
            await asyncio.wait(set(self._busy))

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "asyncio starts one for each connection"
        full = len(self._busy) >= MOST_CONNECTIONS
        self._busy[task] = False
        writer.transport.set_write_buffer_limits(high=BUFFER_BYTES)
        try:
            if full:
                await _send(writer, busy(f"{MOST_CONNECTIONS} connections are already open"), close=True)
                return
            while not self._ending and await self._one(reader, writer, task):
                self._busy[task] = False
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.CancelledError):
            writer.transport.abort()  # the client is gone or too slow, or the server ends
        except Exception as defect:
            log.error("%s", place(defect))
            writer.transport.abort()
        finally:
            del self._busy[task]
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, task: asyncio.Task[None]) -> bool:
        """Answer one request; whether the connection stays open."""
        received = False
        try:
            head = await _head(reader)
            if head is None:
                return False
            self._busy[task] = True
            method, path, headers = head
            if not guard.matches(self._token, headers.items()):
                said = "the token is missing or wrong: send it as Authorization: Bearer TOKEN"
                asked = {"WWW-Authenticate": "Bearer"}
                raise Refused(HTTPStatus.UNAUTHORIZED, said, code="invalid_api_key", headers=asked)
            length = _length(headers, self._most_body_bytes)
            if length and headers.get("expect", "").lower() == "100-continue":
                writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            async with asyncio.timeout(BODY_S):
                body = await reader.readexactly(length)
            received = True
            response = await self._respond(Request(method, path, headers, body))
        except Refused as refusal:
            await _send(writer, refusal, close=not received)
            if not received:
                await _linger(reader, writer)
            return received
        if response.events is None:
            await _write(writer, _reply(HTTPStatus.OK, response.content))
            return True
        async with contextlib.aclosing(response.events) as events:
            await _stream(writer, events)
        return True

    async def _respond(self, request: Request) -> Response:
        try:
            return await self._answer(request)
        except Refused:
            raise
        except Exception as defect:  # the caller gets only the kind: the message may contain a prompt
            log.error("%s", place(defect))
            said = f"the service failed: {type(defect).__name__}"
            raise Refused(HTTPStatus.INTERNAL_SERVER_ERROR, said, "server_error") from None


def busy(sentence: str) -> Refused:
    """Too many at once."""
    more: dict[str, Any] = {"code": "rate_limit_exceeded", "headers": {"Retry-After": "1"}}
    return Refused(HTTPStatus.TOO_MANY_REQUESTS, f"{sentence}: ask again a little later", "rate_limit_error", **more)


async def _head(reader: asyncio.StreamReader) -> tuple[str, str, dict[str, str]] | None:
    """Method, path and headers of the next request; None if there is none.

    Raises:
        Refused: it is not HTTP/1.1 as we read it.
    """
    try:
        async with asyncio.timeout(IDLE_S):
            head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, TimeoutError):
        return None
    except asyncio.LimitOverrunError:
        said = f"request line and headers have more than {MOST_HEAD_BYTES} bytes"
        raise Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, said) from None
    first, *lines = head.decode("latin-1")[:-4].split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or words[2] != "HTTP/1.1":
        raise Refused(HTTPStatus.BAD_REQUEST, "the first line is not METHOD PATH HTTP/1.1")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        # A header that is read in two ways is where a proxy and a server may disagree on where a request ends.
        if not colon or not name or name != name.strip() or name.lower() in headers:
            raise Refused(HTTPStatus.BAD_REQUEST, "a header is malformed or appears twice")
        headers[name.lower()] = value.strip()
    return words[0], words[1].partition("?")[0], headers


def _length(headers: Mapping[str, str], most: int) -> int:
    """Bytes of the body. Raises Refused if that is not stated or too many."""
    if "transfer-encoding" in headers:
        raise Refused(HTTPStatus.LENGTH_REQUIRED, "a request must state its Content-Length")
    said = headers.get("content-length", "0")
    if not (said.isascii() and said.isdigit()):
        raise Refused(HTTPStatus.BAD_REQUEST, "Content-Length is not a number")
    if len(said) > 12 or int(said) > most:
        raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body has at most {most} bytes")
    return int(said)


def _reply(
    status: int, content: dict[str, Any], headers: Mapping[str, str] | None = None, close: bool = False
) -> bytes:
    # Escapes keep it valid UTF-8: a reply may hold half a surrogate pair.
    body = json.dumps(content, allow_nan=False).encode("ascii")
    lines = [f"HTTP/1.1 {int(status)} {HTTPStatus(status).phrase}", "Content-Type: application/json"]
    lines += [f"Content-Length: {len(body)}", "Cache-Control: no-store"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    lines += ["Connection: close"] if close else []
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body


async def _linger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Discard what the client still sends: if a socket is closed with unread data, its reply may be lost."""
    if writer.can_write_eof():
        writer.write_eof()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LINGER_S):
            while await reader.read(MOST_HEAD_BYTES):
                pass


async def _send(writer: asyncio.StreamWriter, refusal: Refused, close: bool) -> None:
    await _write(writer, _reply(refusal.status, refusal.content, refusal.headers, close))


async def _stream(writer: asyncio.StreamWriter, events: AsyncGenerator[str, None]) -> None:
    head = ("HTTP/1.1 200 OK", "Content-Type: text/event-stream", "Cache-Control: no-store")
    writer.write("\r\n".join([*head, "Transfer-Encoding: chunked", "", ""]).encode("ascii"))
    async for event in events:
        data = f"data: {event}\n\n".encode("ascii")
        await _write(writer, b"%x\r\n%b\r\n" % (len(data), data))
    await _write(writer, b"0\r\n\r\n")


async def _write(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    async with asyncio.timeout(WRITE_S):
        await writer.drain()
