"""Dead letters: jobs that were given up, with the reason; they can be retried or dropped.

    dead ──> waiting    retry: the same job, with its delivery count reset
         ──> nothing    drop: if it is asked again, it is a new job

A letter is identified by its entry in the stream, since an unreadable job has no key. The list covers every queue in
one Redis, including those of models that are no longer run.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llm_service.durable.queue import cause
from llm_service.durable.scripts import DROP, RETRY
from llm_service.errors import Unreachable

if TYPE_CHECKING:
    from redis.asyncio import Redis

_PAGE = 500  # letters read per request


@dataclass(frozen=True, slots=True)
class Letter:
    """A job that was given up."""

    queue: str  # prefix of the queue's keys in Redis
    entry: str  # id in the stream; identifies the letter
    task: str  # or the verb in brackets; "" if the job cannot be read
    reason: str  # one sentence
    at: float  # seconds since the epoch
    deliveries: int


class DeadLetters:
    """The dead letters of every queue in one Redis. All methods raise `Unreachable` when it cannot be used."""

    def __init__(self, redis: Redis) -> None:
        self._redis: Any = redis

    async def read(self) -> list[Letter]:
        """All dead letters, oldest first."""
        found: list[Letter] = []
        async with self._reached():
            async for stream in self._redis.scan_iter(match="{*}:dead", _type="stream"):
                start = "-"
                while page := await self._redis.xrange(stream, start, count=_PAGE):
                    found += [_letter(stream, entry, fields) for entry, fields in page]
                    start = f"({page[-1][0].decode()}"
        return sorted(found, key=lambda letter: letter.at)

    async def retry(self, letter: Letter) -> bool:
        """Put the job back into its queue. Returns False if it is no longer a dead letter."""
        return await self._end(RETRY, letter, "waiting", "pending", "buried", "dead")

    async def drop(self, letter: Letter) -> bool:
        """Drop the job. Returns False if it is no longer a dead letter."""
        return await self._end(DROP, letter, "buried", "dead")

    async def _end(self, script: str, letter: Letter, *names: str) -> bool:
        keys = [f"{letter.queue}:{name}" for name in names]
        async with self._reached():
            return bool(await self._redis.eval(script, len(keys), *keys, letter.entry))

    @asynccontextmanager
    async def _reached(self) -> AsyncIterator[None]:
        from redis.exceptions import RedisError

        try:
            yield
        except RedisError as error:
            raise Unreachable(f"dead letters cannot be reached ({cause(error)}): see to Redis") from None


def _letter(stream: bytes, entry: bytes, fields: dict[bytes, bytes]) -> Letter:
    text = {name.decode("utf-8", "replace"): value.decode("utf-8", "replace") for name, value in fields.items()}
    try:
        job = json.loads(text["job"])
        task = str(job["task"] or f"({job['verb']})")
    except (KeyError, ValueError, TypeError, RecursionError):
        task = ""
    queue = stream.decode().removesuffix(":dead")
    at, deliveries = float(text.get("at", 0)), int(text.get("deliveries", 0))
    return Letter(queue, entry.decode(), task, text.get("reason", ""), at, deliveries)
