"""A client of a service in another process, over gRPC.

    connect(ADDRESS or FOLDER) -> Client

The client splits requests that are too large, retries according to its policy, finds a restarted service at its new
address, and turns every failure into answers with a status, so an actor can continue its episode.

Questions are keyed by content, so asking twice is safe and costs nothing. Therefore retries are free.
"""

from __future__ import annotations

import itertools
import random
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import grpc

from llm_service.errors import Away, Busy, Expired, Refused, ServiceError, UsageError
from llm_service.interface import LLMClient
from llm_service.proto import llm_pb2, wire
from llm_service.records import Answer, Ask, Status
from llm_service.server import guard

T = TypeVar("T")
WhenAway = Literal["none", "wait", "stop"]
_ADDRESS = re.compile(r"unix:.+|\S+:\d+")


class ServiceAway(Away):
    """The service cannot be reached, and the policy is to stop then."""


class _TooLarge(Refused):
    """The request is too large; smaller ones may be accepted."""


@dataclass(frozen=True)
class Tls:
    """PEM files for trusting the service and being trusted by it; empty: the system's authorities, no certificate."""

    ca: str = ""
    certificate: str = ""
    key: str = ""


@dataclass(frozen=True)
class _Link:
    """One connection, and its address and token."""

    address: str
    token: str = field(repr=False)
    channel: Any
    rpcs: Any
    metadata: tuple[tuple[str, str], ...] = field(repr=False)


class Client(LLMClient):
    """A client of the service at an address.

    Without `tls`, an address beyond loopback uses TLS with the system's authorities: the token is always encrypted.

    Args:
        address: HOST:PORT or unix:PATH.
        token: the service's token.
        caller, deadline: as in `LLMClient`.
        tls: for TLS; also on loopback, if given.
        when_away: what to do while the service cannot be reached or is full. `none`: answer AWAY or BUSY at once;
            `wait`: try again until the deadline; `stop`: raise `ServiceAway` if it cannot be reached.
        max_items: maximum items in one request; more are split. Requests that the service finds too large are halved.
        max_message_mb: maximum size of a request and a reply, MiB.
        look: returns address and token after a failure, because a restarted service may listen elsewhere.
    """

    def __init__(
        self,
        address: str,
        token: str,
        caller: str = "",
        deadline: float = 60.0,
        tls: Tls | None = None,
        when_away: WhenAway = "none",
        max_items: int = 4096,
        max_message_mb: int = 64,
        look: Callable[[], tuple[str, str]] | None = None,
    ) -> None:
        super().__init__(caller, deadline)
        self._tls, self._when_away, self._look = tls, when_away, look
        self._max_items, self._max_bytes = max_items, max_message_mb << 20
        self._closed, self._lock = threading.Event(), threading.Lock()
        self._link = self._connected(address, token)

    def answer(self, ask: Ask) -> list[Answer]:
        def send(part: Ask, until: float) -> list[Answer]:
            message = self._call(part.verb.capitalize(), wire.request(part), until)
            return wire.read_answers(message, len(part.contents))

        return self._in_parts(ask, time.monotonic() + ask.deadline, send, _failed)

    def accept(self, ask: Ask) -> tuple[list[str], list[Status]]:
        def send(part: Ask, until: float) -> list[tuple[str, Status]]:
            message = self._call("Submit", wire.job(part), until)
            return wire.read_accepted(message, len(part.contents))

        until = time.monotonic() + ask.deadline
        pairs = self._in_parts(ask, until, send, lambda error: ("", error.status))
        return [key for key, _ in pairs], [status for _, status in pairs]

    def fetch(self, keys: Sequence[str], wait_s: float = 0.0) -> list[Answer]:
        begun = time.monotonic()
        answers: list[Answer] = []
        for start in range(0, len(keys), self._max_items):
            part = list(keys[start : start + self._max_items])
            left = max(begun + wait_s - time.monotonic(), 0.0)
            try:
                request = llm_pb2.Keys(keys=part, wait_s=left)
                message = self._call("Fetch", request, begun + wait_s + self.deadline)
                answers += wire.read_answers(message, len(part))
            except ServiceAway:
                raise
            except ServiceError as error:
                answers += [_failed(error)] * len(part)
        return answers

    def health(self) -> tuple[bool, str]:
        try:
            state = self._call("Health", llm_pb2.Empty(), time.monotonic() + self.deadline)
        except ServiceError as error:
            return False, str(error)
        return state.ok, state.reason

    def stats(self) -> dict[str, float]:
        return dict(self._call("Stats", llm_pb2.Empty(), time.monotonic() + self.deadline).values)

    def close(self) -> None:
        self._closed.set()
        super().close()
        _let_go(self._link.channel)

    def _in_parts(
        self, ask: Ask, until: float, send: Callable[[Ask, float], list[T]], failed: Callable[[ServiceError], T]
    ) -> list[T]:
        """Send an ask, halved if it is too large or has a text that cannot be encoded, until only that item fails."""
        n = len(ask.contents)
        try:
            if n <= self._max_items:
                return send(ask, until)
            trouble: ServiceError = _TooLarge("too many items")
        except ServiceAway:
            raise
        except UnicodeEncodeError:
            trouble = _TooLarge("the text contains half a surrogate pair, which is not a character: remove it")
        except ServiceError as error:
            trouble = error
        if not isinstance(trouble, _TooLarge) or n <= 1:
            return [failed(trouble)] * n
        left, right = _halves(ask)
        return self._in_parts(left, until, send, failed) + self._in_parts(right, until, send, failed)

    def _call(self, rpc: str, request: Any, until: float) -> Any:
        """Call, and retry according to the policy. Raises ServiceError or UsageError."""
        size = request.ByteSize()
        if size > self._max_bytes:
            raise _TooLarge(f"the request has {size} bytes, the limit is {self._max_bytes}")
        for attempt in itertools.count():
            link, left = self._link, until - time.monotonic()
            if self._closed.is_set():
                raise Away("this client of the service was closed")
            if left <= 0:
                raise Expired("the deadline passed before the service answered")
            try:
                call = getattr(link.rpcs, rpc).future(request, timeout=left, metadata=link.metadata)
                return call.result(left + 0.1)  # a blocking call outlasts its deadline while its bytes cannot be sent
            except grpc.FutureTimeoutError:
                call.cancel()
                raise Expired(f"the deadline passed before the LLM service at {link.address} answered") from None
            except (grpc.RpcError, grpc.FutureCancelledError):
                trouble = _trouble(call, link.address)
            except ValueError:  # gRPC raises this on a closed channel
                trouble = Away("this client of the service was closed")
            if self._closed.is_set() or not isinstance(trouble, Away | Busy | UsageError):
                raise trouble
            if self._moved(link):
                continue
            if isinstance(trouble, UsageError):
                raise trouble
            pause = min(0.05 * 2**attempt, 2.0) * random.uniform(
                0.5, 1.5
            )  # so that callers do not retry at the same moment
            if self._when_away != "wait" or time.monotonic() + pause >= until:
                raise ServiceAway(str(trouble)) if self._when_away == "stop" and isinstance(trouble, Away) else trouble
            self._closed.wait(pause)
        raise AssertionError

    def _moved(self, link: _Link) -> bool:
        """Whether the failed connection has been replaced."""
        with self._lock:
            if self._link is not link:
                return True
            if self._look is None:
                return False
            try:
                address, token = self._look()
            except UsageError:  # no server is ready there
                return False
            if (address, token) == (link.address, link.token):
                return False
            self._link = self._connected(address, token)
            _let_go(link.channel)
            return True

    def _connected(self, address: str, token: str) -> _Link:
        options = [
            ("grpc.max_receive_message_length", self._max_bytes),
            ("grpc.max_send_message_length", self._max_bytes),
            ("grpc.enable_http_proxy", 0),
            ("grpc.enable_retries", 0),  # we retry ourselves, within a policy's limits
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 2_000),
            ("grpc.max_reconnect_backoff_ms", 2_000),
            ("grpc.keepalive_time_ms", 20_000),  # a silently cut connection is noticed within 30 s
            ("grpc.keepalive_timeout_ms", 10_000),
            ("grpc.http2.ping_timeout_ms", 10_000),
            ("grpc.http2.max_pings_without_data", 0),
        ]
        if self._tls is None and guard.loopback(address):
            channel = grpc.insecure_channel(address, options)
        else:
            channel = grpc.secure_channel(address, _credentials(self._tls or Tls()), options)
        metadata = [("authorization", f"Bearer {token}")]
        if self.caller:
            metadata.append((wire.CALLER, self.caller))
        return _Link(address, token, channel, wire.stub(channel), tuple(metadata))


def connect(where: str | Path, token: str = "", token_env: str = "CAIRN_LLM_TOKEN", **options: Any) -> Client:
    """A client of the service at an address, or of the service with this folder.

    Args:
        where: HOST:PORT, unix:PATH, or a folder, whose service is found again after a restart.
        token: "" uses the token of the environment, otherwise that of the folder.
        token_env: environment variable with the token.
        options: further arguments of `Client`.

    Raises:
        UsageError: there is no such folder, no service is ready there, or there is no token.
    """
    folder = Path(where)
    if not folder.is_dir():
        if not _ADDRESS.fullmatch(str(where)):
            raise UsageError(f"there is no folder {where}, and it is not HOST:PORT either: where is the LLM service?")
        token = token or guard.chosen_token(token_env, "")
        if not token:
            raise UsageError(f"no token for the LLM service at {where}: set {token_env}, or name the service's folder")
        return Client(str(where), token, **options)

    def look() -> tuple[str, str]:
        try:
            address = (folder / "address").read_text(encoding="utf-8").strip()
        except OSError:
            raise UsageError(f"no LLM service is ready in {folder}: it has no file `address`") from None
        return address, token or guard.chosen_token(token_env, "") or guard.read_token(folder / "token")

    return Client(*look(), look=look, **options)


def _let_go(channel: Any) -> None:
    """Close a connection without waiting for unsent data: the connection may be dead."""
    threading.Thread(target=channel.close, name="llm-channel", daemon=True).start()


def _credentials(tls: Tls) -> Any:
    try:
        ca, key, certificate = (Path(p).read_bytes() if p else None for p in (tls.ca, tls.key, tls.certificate))
    except OSError as error:
        raise UsageError(f"tls: cannot read {error.filename}: {error.strerror}") from None
    return grpc.ssl_channel_credentials(ca, key, certificate)


def _halves(ask: Ask) -> tuple[Ask, Ask]:
    middle = len(ask.contents) // 2
    sets = ask.candidates
    first, second = (sets, sets) if len(sets) <= 1 else (sets[:middle], sets[middle:])
    left = replace(ask, contents=ask.contents[:middle], candidates=first)
    return left, replace(ask, contents=ask.contents[middle:], candidates=second)


def _failed(error: ServiceError) -> Answer:
    return Answer(error.status, reason=str(error))


def _trouble(error: Any, address: str) -> ServiceError | UsageError:
    """The error that a failed call means."""
    code, details = error.code(), (error.details() or "").splitlines()[:1]
    sentence = details[0] if details else "no reason given"
    codes = grpc.StatusCode
    if code is codes.DEADLINE_EXCEEDED:
        return Expired(f"the deadline passed before the LLM service at {address} answered")
    if code is codes.RESOURCE_EXHAUSTED:
        trailers = dict(error.trailing_metadata() or ())
        return Busy(sentence) if trailers.get(wire.STATUS) == str(int(Status.BUSY)) else _TooLarge(sentence)
    if code in (codes.INVALID_ARGUMENT, codes.UNIMPLEMENTED):
        return UsageError(f"the LLM service at {address} does not accept the request: {sentence}")
    if code in (codes.UNAUTHENTICATED, codes.PERMISSION_DENIED):
        return UsageError(f"the LLM service at {address} refuses this caller: {sentence}")
    return Away(f"the LLM service at {address} is unavailable: {sentence}")
