"""Answers durable jobs: takes some, asks the model, stores the answers, until it is asked to stop.

    take ──> ours? ──> ask ──┬─ OK, MALFORMED        finish: the answer is stored
      ^                      ├─ AWAY, BUSY, EXPIRED  not caused by the job: kept, and asked again after a pause
      │                      ├─ BUDGET               all jobs returned; none are taken for a while
      │                      └─ REFUSED, the rest    bury: a dead letter with the reason
      └── all settled

A job is for another service if its key differs from the key of its question here, to this model about this environment:
another version, or older weights. It is left to that service, neither answered nor given up.

One consumer holds at most `batch` jobs and takes none while it holds some, so its memory is bounded; more consumers
answer more jobs at once. A job that was delivered too often has killed its consumers, and is buried.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from llm_service.durable.queue import DurableConfig, Job, Queue
from llm_service.errors import ServiceError, Unreachable, UsageError
from llm_service.pipeline.clock import Clock
from llm_service.records import Answer, Ask, Status

log = logging.getLogger(__name__)

_DEADLINE_S = 600.0  # of one ask: no caller waits for it
_PAUSE_S = (0.2, 30.0)  # first and longest pause after a failure
_BUDGET_PAUSE_S = 60.0  # until the next check whether the budget allows more; a check costs nothing

_KEPT = {Status.AWAY, Status.BUSY, Status.EXPIRED}


class Consumer:
    """One consumer of a queue.

    Args:
        ask: answers an ask, one answer per item. Raising a `ServiceError` is the same as answering with its status for
            every item.
        keys: the key of each item of an ask in this service. A `UsageError` means that the service cannot ask it.
        name: unique name of this consumer.
        grace_s: seconds that held jobs may take after a stop.
    """

    def __init__(
        self,
        queue: Queue,
        ask: Callable[[Ask], Awaitable[list[Answer]]],
        keys: Callable[[Ask], Sequence[str]],
        name: str,
        config: DurableConfig,
        clock: Clock,
        grace_s: float = 10.0,
    ) -> None:
        self._queue, self._ask, self._keys, self._name = queue, ask, keys, name
        self._config, self._clock = config, clock
        self._grace_s = grace_s
        self.held: dict[str, Job] = {}  # jobs that are taken and not settled, by entry
        self.out_of_budget = False
        """Whether a cap forbids more calls."""
        self.paused = ""
        """Why nothing is answered at the moment, one sentence; "" if jobs are answered."""
        self.finished = 0
        self.buried = 0
        self._told = False  # whether it warned about jobs for another service

    async def run(self, stop: asyncio.Event) -> None:
        """Consume until `stop` is set; then finish held jobs within the grace, and return the rest.

        Raises:
            Exception: whatever `ask` raises except `ServiceError`. Its jobs are delivered again later, as if this
                process had died, and are buried if that continues.
        """
        pause, longest = _PAUSE_S
        while not stop.is_set():
            try:
                jobs = await self._queue.take(self._name, self._config.batch, self._config.block_s)
            except Unreachable as error:
                self.paused = str(error)
                await self._pause(pause, stop)
                pause = min(2 * pause, longest)
                continue
            pause, self.paused = _PAUSE_S[0], ""
            if jobs:
                await self._settle(jobs, stop)
            if self.out_of_budget:
                await self._pause(_BUDGET_PAUSE_S, stop)
                self.out_of_budget = False

    async def _settle(self, jobs: Sequence[Job], stop: asyncio.Event) -> None:
        """Work on jobs until each has ended or, after a stop, until the grace ends."""
        self.held = {job.entry: job for job in jobs}
        work = asyncio.create_task(self._work(stop))
        refresh = asyncio.create_task(self._refresh())
        stopped = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({work, refresh, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if stopped.done():
                await asyncio.wait({work, refresh}, timeout=self._grace_s, return_when=asyncio.FIRST_COMPLETED)
            for task in (work, refresh):
                if task.done():
                    task.result()
        finally:
            await _end(work, refresh, stopped)
        if self.held:
            await self._hand_back(self._queue.release, list(self.held.values()))

    async def _work(self, stop: asyncio.Event) -> None:
        pause, longest = _PAUSE_S
        while True:
            await self._leave([job for job in self.held.values() if not self._ours(job)])
            for job in [job for job in self.held.values() if job.deliveries > self._config.deliveries]:
                await self._bury(
                    job, f"gave up after {job.deliveries - 1} deliveries: its consumers died or stopped answering"
                )
            for group in _groups(list(self.held.values())):
                await self._ask_for(group)
                if self.out_of_budget:
                    return
            if not self.held:
                self.paused = ""
                return
            await self._pause(pause, stop)
            if stop.is_set():
                return
            pause = min(2 * pause, longest)

    def _ours(self, job: Job) -> bool:
        """Whether this service's answer would belong to the job's key."""
        try:
            return list(self._keys(_one_ask([job]))) == [job.key]
        except UsageError:  # a task that this service does not know
            return False

    async def _leave(self, jobs: Sequence[Job]) -> None:
        if not jobs:
            return
        if not self._told:
            log.warning(
                "%d jobs in the queue are for another model, environment or version: another service must take them",
                len(jobs),
            )
            self._told = True
        await self._hand_back(self._queue.leave, jobs)

    async def _ask_for(self, jobs: Sequence[Job]) -> None:
        try:
            answers = await self._ask(_one_ask(jobs))
        except ServiceError as error:
            answers = [Answer(error.status, reason=str(error))] * len(jobs)
        for job, answer in zip(jobs, answers, strict=True):
            if answer.status in (Status.OK, Status.MALFORMED):
                await self._insist(job, partial(self._queue.finish, job, answer))
                self.finished += 1
            elif answer.status is Status.BUDGET:
                self.out_of_budget, self.paused = True, answer.reason
            elif answer.status in _KEPT:
                self.paused = answer.reason
            else:
                await self._bury(job, answer.reason)

    async def _bury(self, job: Job, reason: str) -> None:
        await self._insist(job, partial(self._queue.bury, job, reason))
        self.buried += 1

    async def _insist(self, job: Job, end: Callable[[], Awaitable[bool]]) -> None:
        """End a job in Redis, however long Redis is unavailable: the held answer has been paid for."""
        pause, longest = _PAUSE_S
        while True:
            try:
                await end()
            except Unreachable as error:
                self.paused = str(error)
                await self._clock.sleep(pause)
                pause = min(2 * pause, longest)
            else:
                del self.held[job.entry]
                return

    async def _refresh(self) -> None:
        """Keep others from taking held jobs."""
        while True:
            await self._clock.sleep(self._config.claim_idle_s / 3)
            try:
                await self._queue.refresh(self._name, list(self.held.values()))
            except Unreachable as error:
                self.paused = str(error)

    async def _hand_back(self, how: Callable[[Sequence[Job]], Awaitable[None]], jobs: Sequence[Job]) -> None:
        try:
            await how(jobs)
        except Unreachable as error:  # then others take them after enough silence
            self.paused = str(error)
        for job in jobs:
            del self.held[job.entry]

    async def _pause(self, seconds: float, stop: asyncio.Event) -> None:
        """Sleep, but wake at a stop."""
        sleep = asyncio.ensure_future(self._clock.sleep(seconds))
        stopped = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({sleep, stopped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _end(sleep, stopped)


def _groups(jobs: Sequence[Job]) -> list[list[Job]]:
    """Jobs that fit in one ask: they share everything except content and candidates."""

    def shared(job: Job) -> str:
        return repr((job.verb, job.task, job.parameters, job.sample, job.caller))

    return [list(group) for _, group in groupby(sorted(jobs, key=shared), key=shared)]


def _one_ask(jobs: Sequence[Job]) -> Ask:
    """The ask of a group of jobs from `_groups`."""
    first = jobs[0]
    return Ask(
        verb=first.verb,
        contents=tuple(job.content for job in jobs),
        task=first.task,
        candidates=tuple(job.candidates for job in jobs) if first.verb == "score" else (),
        parameters=first.parameters,
        sample=first.sample,
        lane="durable",
        caller=first.caller,
        deadline=_DEADLINE_S,
    )


async def _end(*tasks: asyncio.Future[Any]) -> None:
    """Cancel until it works: `asyncio.wait_for`, which the Redis client uses, may lose one in Python 3.11."""
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=0.5)
