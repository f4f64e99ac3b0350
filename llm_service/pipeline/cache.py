"""Known answers: a dictionary in memory, then Redis, and one call for equal questions in flight."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

from llm_service.pipeline.clock import Clock
from llm_service.records import Answer, Source, Status

T = TypeVar("T")
log = logging.getLogger(__name__)

ENTRY_BYTES = 300
"""Bytes of an entry besides its payload: key, record, table; measured, rounded up."""
REMEMBERED = (Status.OK, Status.MALFORMED)
"""Statuses of answers that were paid for, and would be the same again."""


class Memory:
    """Answers within a limit of megabytes for payloads and bookkeeping: the least recently used is evicted first.

    Reading takes microseconds, and is safe from other threads while the event loop writes.
    """

    def __init__(self, megabytes: float) -> None:
        self._bound = int(megabytes * 2**20)
        self._answers: OrderedDict[bytes, Answer] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, key: bytes) -> Answer | None:
        """The answer, with a cost of 0."""
        answer = self._answers.get(key)
        if answer is not None:
            with contextlib.suppress(KeyError):  # another thread has evicted it meanwhile; it is still right
                self._answers.move_to_end(key)
        return answer

    def put(self, key: bytes, answer: Answer) -> None:
        """Store an answer that was paid for; others are not stored."""
        if answer.status not in REMEMBERED:
            return
        known = self._answers.pop(key, None)
        self.bytes += _size(answer) - (_size(known) if known else 0)
        self._answers[key] = Answer(answer.status, answer.payload, answer.reason, Source.MEMORY)
        while self.bytes > self._bound and self._answers:
            _, oldest = self._answers.popitem(last=False)
            self.bytes -= _size(oldest)


def _size(answer: Answer) -> int:
    return ENTRY_BYTES + len(answer.payload) + len(answer.reason)


class Shared:
    """The same answers in Redis, for other processes and later runs. An unavailable, slow or full Redis is a miss.

    Args:
        redis: a `redis.asyncio.Redis`.
        seconds: time to live of an entry; when its memory is full, Redis evicts entries with a time to live.
    """

    RETRY_S = 1.0
    """Seconds without Redis after an error: a cache must not slow down what it should speed up."""
    PATIENCE_S = 2.0
    """Time limit of an operation, seconds."""

    def __init__(self, redis: Any, seconds: float, clock: Clock) -> None:
        self._redis, self._seconds, self._clock = redis, max(1, int(seconds)), clock
        self._away_until = float("-inf")
        self._wanted: list[bytes] = []  # keys of the next MGET
        self._next: asyncio.Task[dict[bytes, bytes | None]] | None = None  # the MGET that can still be joined
        self._reading: set[asyncio.Task[Any]] = set()
        self._unwritten: dict[bytes, bytes] = {}
        self._writing: asyncio.Task[None] | None = None
        self.errors = 0

    async def get(self, keys: Sequence[bytes], seconds: float = PATIENCE_S) -> list[Answer | None]:
        """One answer or None for each key, within the time limit. Simultaneous callers share an MGET."""
        if self._next is None:
            self._next = asyncio.ensure_future(self._read())
            self._reading.add(self._next)
            self._next.add_done_callback(self._reading.discard)
        self._wanted += keys
        read = self._next
        await self._clock.wait({read}, seconds)
        found = read.result() if read.done() else {}
        return [_decode(found.get(key)) for key in keys]

    def put(self, key: bytes, answer: Answer) -> None:
        """Store an answer that was paid for; it is written in the background, many at once."""
        if answer.status not in REMEMBERED:
            return
        self._unwritten[key] = _encode(answer)
        if self._writing is None or self._writing.done():
            self._writing = asyncio.ensure_future(self._write())

    async def flush(self) -> None:
        """Wait until all stored answers are written, or given up."""
        if self._writing is not None:
            await self._writing

    async def _read(self) -> dict[bytes, bytes | None]:
        await asyncio.sleep(0)  # let all simultaneous callers ask
        wanted, self._wanted, self._next = list(dict.fromkeys(self._wanted)), [], None
        values = await self._try(lambda: self._redis.mget([_name(key) for key in wanted]))
        return dict(zip(wanted, values or (), strict=False))

    async def _write(self) -> None:
        while self._unwritten:
            entries, self._unwritten = self._unwritten, {}
            pipeline = self._redis.pipeline(transaction=False)
            for key, value in entries.items():
                pipeline.set(_name(key), value, ex=self._seconds)
            await self._try(pipeline.execute)

    async def _try(self, operation: Callable[[], Awaitable[T]]) -> T | None:
        if self._clock.now() < self._away_until:
            return None
        work = asyncio.ensure_future(operation())
        try:
            await self._clock.wait({work}, self.PATIENCE_S)
            if not work.done():
                raise TimeoutError
            return work.result()
        except Exception as error:  # whatever a client raises for a failing server: it is only a cache
            log.debug("Redis: %s", type(error).__name__)
            self.errors += 1
            self._away_until = self._clock.now() + self.RETRY_S
            return None
        finally:
            work.cancel()


def _name(key: bytes) -> bytes:
    return b"cairn:answer:" + key


def _encode(answer: Answer) -> bytes:
    return bytes([answer.status]) + (answer.payload or answer.reason.encode("utf-8", "replace"))


def _decode(value: bytes | None) -> Answer | None:
    if not value or value[0] not in REMEMBERED:
        return None
    if value[0] == Status.OK:
        return Answer(Status.OK, value[1:], source=Source.REDIS)
    return Answer(Status.MALFORMED, reason=value[1:].decode("utf-8", "replace"), source=Source.REDIS)


class Flight(Generic[T]):
    """Work by key: a caller that asks for a key in progress gets the same future.

    The work continues if the waiting callers give up: it is paid for, and its answer is kept for the next caller.
    """

    def __init__(self) -> None:
        self._tasks: dict[bytes, asyncio.Task[T]] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, key: bytes) -> bool:
        return key in self._tasks

    def join(self, key: bytes, work: Callable[[], Awaitable[T]]) -> tuple[asyncio.Task[T], bool]:
        """The task of this key, and whether this call started it. Await it through `asyncio.shield` or `wait`."""
        known = self._tasks.get(key)
        if known is not None:
            return known, False
        task = asyncio.ensure_future(work())
        assert isinstance(task, asyncio.Task)
        self._tasks[key] = task
        task.add_done_callback(lambda done: self._landed(key, done))
        return task, True

    def _landed(self, key: bytes, task: asyncio.Task[T]) -> None:
        del self._tasks[key]
        if not task.cancelled():
            task.exception()  # waiting callers see the error; otherwise asyncio warns if no caller waits

    async def close(self) -> None:
        """Cancel what is in flight."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
