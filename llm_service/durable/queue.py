"""Jobs that outlive processes: asked now, answered when a model can, each with exactly one stored answer.

    submit ──> waiting ──> taken ──> answers   (finish: exactly one answer for each key)
                  ^          │  └──> dead      (bury: with the reason)
                  └──────────┘ released, or its consumer went silent for `claim_idle_s`

A job's key is its identity: equal keys are always one job. A queue belongs to one model, endpoint and environment, so
services on one Redis share only jobs that they would answer alike. Delivery is at least once, so a question may be put
to the model twice; its answer is stored once. Every step is one Lua script or one command, so it is atomic. It may also
be sent twice, because a client repeats it after a cut connection.

Six keys of Redis with a common prefix, `{jobs:SERVICE}:waiting` for one; none has a time to live, so none is evicted:

    waiting   stream    all jobs without an answer, one consumer group; fields key, job
    dead      stream    jobs given up: reason, at, deliveries, then the original fields
    answers   hash      key -> answer as JSON
    pending   hash      key -> its entry in waiting
    buried    hash      key -> its entry in dead, and the reason
    expiry    sorted    key -> when its answer may be deleted (only with `keep_s`)

When memory is full, new jobs are refused. Accepted jobs can still end: ending a job first frees its memory, and Redis
lets a script continue once it has begun to write. So answers of waiting jobs may exceed the limit.
`redis_server` says what Redis itself can lose.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from pydantic import Field, TypeAdapter

from llm_service.config import Part
from llm_service.durable.scripts import BURY, FETCH, FINISH, GROUP, SUBMIT
from llm_service.errors import Unreachable
from llm_service.pipeline.clock import Clock
from llm_service.records import Answer, Ask, Parameters, Source, Status, Verb

if TYPE_CHECKING:
    from redis.asyncio import Redis

RELEASED = "released"  # owner of returned jobs
_FETCH = 500  # keys per lookup; other commands wait meanwhile
_POLL_S = (0.02, 0.5)  # first and longest pause between two checks of `wait`


class DurableConfig(Part):
    """Jobs that are answered later and survive restarts."""

    name: str = Field(default="jobs", pattern=r"^[\w.-]{1,64}$")
    """Prefix of the keys in Redis; services with equal names, models, endpoints and environments share their jobs."""
    length: int = Field(default=100_000, ge=1)
    """Maximum number of jobs without an answer; more are refused as busy."""
    claim_idle_s: float = Field(default=30.0, gt=0)
    """Seconds of silence after which a consumer counts as dead, and others get its jobs."""
    deliveries: int = Field(default=5, ge=2)
    """How often a job is delivered, the last time alone, before it is given up: it may kill its consumers."""
    batch: int = Field(default=64, ge=1)
    """Maximum number of jobs that a consumer holds."""
    block_s: float = Field(default=1.0, gt=0, le=5)
    """Seconds that a consumer waits for new jobs before it checks for released ones."""
    keep_s: float | None = Field(default=None, gt=0)
    """Seconds that answers are kept; null: forever. A job that is asked again after that is a new one."""


@dataclass(frozen=True, slots=True)
class Job:
    """One item of an ask, as it is stored; `entry` and `deliveries` are its current state."""

    key: str
    verb: Verb
    task: str
    content: str
    candidates: tuple[str, ...]
    parameters: Parameters | None
    sample: int
    caller: str
    submitted: float  # seconds since the epoch
    entry: str = ""  # id in the stream
    deliveries: int = 0  # how often it was taken, including this time


_JOB = TypeAdapter(Job)
_CODE = re.compile(r"\b(OOM|MISCONF|READONLY|NOPERM|NOAUTH|WRONGTYPE)\b")


class Queue:
    """The jobs of one name and one service in one Redis.

    Args:
        service: hash of the answering model, endpoint and environment.

    All methods raise `Unreachable` if Redis cannot be reached or refuses to work, after the retries of its client. The
    operation then happened or not, separately for each job, and it is safe to repeat the call.
    """

    def __init__(self, redis: Redis, config: DurableConfig, clock: Clock, service: str) -> None:
        self._redis: Any = redis  # its stubs do not say whether a reply must be awaited
        self._config, self._clock = config, clock
        names = ("waiting", "answers", "pending", "buried", "dead", "expiry")
        self._keys = {name: f"{{{config.name}:{service}}}:{name}" for name in names}
        self._stream = self._keys["waiting"]

    async def submit(self, ask: Ask, keys: Sequence[str]) -> list[Status]:
        """Accept the items of an ask, separately.

        Args:
            keys: one per item: the identity of its question.

        Returns:
            For each item PENDING (accepted now or before), OK (its answer can be fetched), DEAD (given up before: see
            `fetch`), BUSY (too many jobs wait, or memory is full) or REFUSED (its text is not valid Unicode).
        """
        sets = ask.candidates if len(ask.candidates) == len(keys) else (ask.candidates or ((),)) * len(keys)
        result = [Status.REFUSED] * len(keys)
        named = self._named("waiting", "answers", "pending", "buried")
        sent = []
        async with self._reached(), self._redis.pipeline(transaction=False) as pipe:
            for i, (key, content, candidates) in enumerate(zip(keys, ask.contents, sets, strict=True)):
                shared = (ask.parameters, ask.sample, ask.caller, self._clock.wall())
                job = Job(key, ask.verb, ask.task, content, candidates, *shared)
                try:
                    stored = json.dumps(asdict(job), ensure_ascii=False).encode()
                except UnicodeEncodeError:
                    continue
                pipe.eval(SUBMIT, len(named), *named, key, stored, self._config.length)
                sent.append(i)
            for i, status in zip(sent, await pipe.execute(), strict=True):
                result[i] = Status(status)
        return result

    async def fetch(self, keys: Sequence[str]) -> list[Answer]:
        """The state of each key: its stored answer, PENDING, DEAD with the reason, or MISSING."""
        named = self._named("answers", "buried", "pending")
        async with self._reached(), self._redis.pipeline(transaction=False) as pipe:
            for start in range(0, len(keys), _FETCH):
                pipe.eval(FETCH, len(named), *named, *keys[start : start + _FETCH])
            return [_outcome(*row) for rows in await pipe.execute() for row in rows]

    async def wait(self, keys: Sequence[str], timeout: float) -> list[Answer]:
        """Like `fetch`, but waits until none is PENDING, at most `timeout` seconds."""
        end = self._clock.now() + timeout
        pause, longest = _POLL_S
        answers = dict(zip(keys, await self.fetch(keys), strict=True))
        while pending := [key for key, answer in answers.items() if answer.status is Status.PENDING]:
            left = end - self._clock.now()
            if left <= 0:
                break
            await self._clock.sleep(min(pause, left))
            pause = min(pause * 1.5, longest)
            answers.update(zip(pending, await self.fetch(pending), strict=True))
        return [answers[key] for key in keys]

    async def take(self, consumer: str, count: int, block_s: float) -> list[Job]:
        """Jobs for a consumer: released ones and those of silent consumers, otherwise new ones.

        A job that was taken before may have killed its consumer. So jobs are grouped with others that were taken as
        often, in batches of count / 4, count / 16, ... down to 1: a deadly job is finally alone.

        Args:
            consumer: name of the consumer; it must `refresh` the jobs that it holds.
            count: maximum number of jobs.
            block_s: seconds to wait for a new job; at most 5.

        Returns:
            Jobs, oldest first. Entries that cannot be read are buried and not returned.
        """
        async with self._reached():
            entries = await self._claim(consumer, count)
            if not entries:
                entries = await self._read(consumer, count, block_s)
            jobs = []
            for entry, fields, deliveries in entries:
                try:
                    job = _JOB.validate_python(json.loads(fields[b"job"]))
                    if job.key.encode() != fields[b"key"]:
                        raise ValueError("its keys differ")
                except (KeyError, ValueError, RecursionError) as error:
                    why = "it lacks a field" if isinstance(error, KeyError) else type(error).__name__
                    key = fields.get(b"key", b"")
                    await self._bury(key, entry, f"the job cannot be read ({why})", deliveries)
                else:
                    jobs.append(replace(job, entry=entry, deliveries=deliveries))
        return jobs

    async def refresh(self, consumer: str, jobs: Iterable[Job]) -> None:
        """Report that `consumer` still works on these jobs, so that no other takes them."""
        if entries := [job.entry for job in jobs]:
            async with self._reached():
                await self._redis.xclaim(self._stream, GROUP, consumer, 0, entries, idle=0, justid=True)

    async def finish(self, job: Job, answer: Answer) -> bool:
        """Store the answer and end the job, even if it was buried meanwhile.

        Returns:
            False if it already had an answer, which is kept.
        """
        fields = asdict(answer) | {"payload": base64.b64encode(answer.payload).decode()}
        now = self._clock.wall()
        keep = "" if self._config.keep_s is None else repr(now + self._config.keep_s)
        named = self._named("waiting", "answers", "pending", "buried", "dead", "expiry")
        async with self._reached():
            arguments = (job.key, job.entry, json.dumps(fields), repr(now), keep)
            return bool(await self._redis.eval(FINISH, len(named), *named, *arguments))

    async def bury(self, job: Job, reason: str) -> bool:
        """Give up a job: it becomes a dead letter with the reason, one sentence.

        Returns:
            False if it had already ended.
        """
        async with self._reached():
            return await self._bury(job.key.encode(), job.entry, reason, job.deliveries)

    async def release(self, jobs: Iterable[Job]) -> None:
        """Return jobs unanswered, so that others can take them at once; this delivery does not count."""
        await self._hand_back(jobs, int(self._config.claim_idle_s * 1000) + 1)

    async def leave(self, jobs: Iterable[Job]) -> None:
        """Return jobs for another service, offered again after `claim_idle_s`; this delivery does not count."""
        await self._hand_back(jobs, 0)

    async def stats(self) -> dict[str, float]:
        """waiting, taken (not answered yet), dead, answers: counts; oldest: seconds that the oldest job has waited."""
        async with self._reached(), self._redis.pipeline(transaction=False) as pipe:
            pipe.exists(self._stream)
            pipe.xlen(self._stream)
            pipe.xrange(self._stream, count=1)
            pipe.time()
            pipe.xlen(self._keys["dead"])
            pipe.hlen(self._keys["answers"])
            there, total, first, (seconds, micros), dead, answers = await pipe.execute()
            taken = (await self._redis.xpending(self._stream, GROUP))["pending"] if there else 0
        oldest = seconds + micros / 1e6 - int(first[0][0].split(b"-")[0]) / 1e3 if first else 0.0
        numbers = {"waiting": max(0, total - taken), "taken": taken, "oldest": max(0.0, oldest)}
        return {name: float(value) for name, value in (numbers | {"dead": dead, "answers": answers}).items()}

    async def _hand_back(self, jobs: Iterable[Job], idle_ms: int) -> None:
        async with self._reached(), self._redis.pipeline(transaction=False) as pipe:
            for job in jobs:
                as_before = {"idle": idle_ms, "retrycount": job.deliveries - 1}
                pipe.xclaim(self._stream, GROUP, RELEASED, 0, [job.entry], justid=True, **as_before)
            await pipe.execute()

    def _named(self, *names: str) -> list[str]:
        return [self._keys[name] for name in names]

    async def _bury(self, key: bytes, entry: str, reason: str, deliveries: int) -> bool:
        named = self._named("waiting", "answers", "pending", "buried", "dead")
        arguments = (key, entry, reason.encode(errors="replace"), repr(self._clock.wall()), deliveries)
        return bool(await self._redis.eval(BURY, len(named), *named, *arguments))

    async def _claim(self, consumer: str, count: int) -> list[tuple[str, dict[bytes, bytes], int]]:
        """Entries of silent consumers as (entry, fields, deliveries)."""
        from redis.exceptions import ResponseError

        idle = int(self._config.claim_idle_s * 1000)
        try:
            found = await self._redis.xpending_range(self._stream, GROUP, "-", "+", count, idle=idle)
        except ResponseError as error:
            if not str(error).startswith("NOGROUP"):
                raise
            await self._make_group()  # nothing was submitted yet, or Redis restarted empty
            return []
        if not found:
            return []
        fewest = min(row["times_delivered"] for row in found)
        ids = [row["message_id"] for row in found if row["times_delivered"] == fewest]
        last = fewest + 1 >= self._config.deliveries
        ids = ids[: 1 if last else max(1, count // 4**fewest)]
        claimed = await self._redis.xclaim(
            self._stream, GROUP, consumer, idle, ids
        )  # fewer if other consumers were faster
        return [(entry.decode(), fields, fewest + 1) for entry, fields in claimed if entry is not None]

    async def _make_group(self) -> None:
        from redis.exceptions import ResponseError

        try:
            await self._redis.xgroup_create(self._stream, GROUP, "0", mkstream=True)
        except ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):  # another consumer was faster
                raise

    async def _read(self, consumer: str, count: int, block_s: float) -> list[tuple[str, dict[bytes, bytes], int]]:
        """New entries as (entry, fields, deliveries)."""
        block = max(1, int(block_s * 1000))
        reply = await self._redis.xreadgroup(GROUP, consumer, {self._stream: ">"}, count=count, block=block)
        streams = reply.values() if isinstance(reply, dict) else [entries for _, entries in reply or ()]
        return [(entry.decode(), fields, 1) for entries in streams for entry, fields in entries]

    @asynccontextmanager
    async def _reached(self) -> AsyncIterator[None]:
        from redis.exceptions import RedisError

        try:
            yield
        except RedisError as error:
            raise Unreachable(
                f"the job queue {self._config.name!r} cannot be used ({cause(error)}): see to Redis"
            ) from None


def cause(error: Exception) -> str:
    """What Redis says, in a word: its text may quote the command with its prompt, so only known words are shown."""
    code = _CODE.search(str(error))
    return code[0] if code else type(error).__name__


def _outcome(answer: bytes | None, grave: bytes | None, pending: bytes | None) -> Answer:
    """The state of one key from the three hashes."""
    if answer is not None:
        fields = json.loads(answer)
        enums = {"status": Status(fields["status"]), "source": Source(fields["source"])}
        return Answer(**fields | enums | {"payload": base64.b64decode(fields["payload"])})
    if grave is not None:
        return Answer(Status.DEAD, reason=grave.partition(b" ")[2].decode("utf-8", "replace"))
    if pending is not None:
        return Answer(Status.PENDING, reason="accepted, not answered yet")
    return Answer(Status.MISSING, reason="no job has this key")
