"""Collects calls that arrive one by one, from many callers in two lanes, into batches.

    submit(call, lane, caller) ──> queues by (caller, kind) in each lane ──> batch ──> backend ──> reply or error

While the backend is busy, calls collect in queues. When it has room, a batch goes out as soon as it is full, or no call
arrived for `wait_s`, or both its oldest call and the backend have waited a fair share of a batch's time: callers that
were just answered ask again, and otherwise they would split into two halves that take turns. All calls of a batch have
the same verb, parameters and bucket of length.

A call is admitted (journal, budget, rate) only when its turn has come. So money is reserved only for calls that are
sent, and calls that wait for a rate or a budget delay only their own kind.

Fairness: lanes take turns by weight, so a flood of labelling jobs slows an episode down by a known factor and never
stops it; inside a lane callers take turns, one call each.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Hashable, Iterator
from dataclasses import dataclass

from pydantic import Field

from llm_service.backends import Backend
from llm_service.config import Part
from llm_service.errors import Away, BackendError, Busy, Garbled, OutOfBudget, ServiceError, TimedOut, place
from llm_service.pipeline.clock import Clock
from llm_service.pipeline.retry import Breaker
from llm_service.records import Call, Lane, Reply

log = logging.getLogger(__name__)

RECENT = 1000
"""Number of recent calls whose waiting times are kept."""
Admit = Callable[[], Awaitable[None]]
"""Waits until a call may be sent; raises if it may not."""


class BatchConfig(Part):
    """How calls become batches."""

    wait_s: float = Field(default=0.002, ge=0)
    """Send a batch to an idle backend when no further call has arrived for this long, seconds."""
    patience: float = Field(default=0.25, ge=0)
    """Or when its oldest call and the backend have both waited this share of the last batch's time, >= `wait_s`."""
    size: int | None = Field(default=None, ge=1)
    """Maximum number of calls in a batch; none: the backend's own number."""
    waiting: int = Field(default=20_000, ge=1)
    """Maximum number of waiting calls; more are refused as busy."""
    durable_share: float = Field(default=0.2, gt=0, lt=1)
    """Share of batches for the durable lane while both lanes wait, in (0, 1)."""
    timeout_s: float = Field(default=120.0, gt=0)
    """Time limit of a batch, seconds."""


@dataclass(slots=True)
class _Waiting:
    call: Call
    since: float
    admit: Admit
    reply: asyncio.Future[Reply]

    def end(self, outcome: Reply | Exception) -> None:
        """Pass the result to waiting callers, if there still are any."""
        if self.reply.done():
            return
        if isinstance(outcome, Exception):
            self.reply.set_exception(outcome)
        else:
            self.reply.set_result(outcome)


async def _at_once() -> None:
    """Admits."""


class Batcher:
    """The batches of one backend. Belongs to one event loop."""

    def __init__(self, backend: Backend, config: BatchConfig, breaker: Breaker, clock: Clock) -> None:
        self._backend, self._config, self._breaker, self._clock = backend, config, breaker, clock
        self._size = min(config.size or backend.max_batch, backend.max_batch)
        self._lanes: dict[Lane, OrderedDict[Hashable, deque[_Waiting]]] = {
            "interactive": OrderedDict(),
            "durable": OrderedDict(),
        }
        self._credit = 0.0  # credit of the durable lane: it goes next when it has saved a whole batch
        self.waiting = 0
        self.batches = 0
        self.calls = 0
        self.in_flight = 0
        self._batch_s = 0.0  # time of the last batch
        self._answered = -math.inf  # when it was answered
        self.waits: deque[float] = deque(
            maxlen=RECENT
        )  # how long the latest calls waited before they were sent, seconds
        self._changed = asyncio.Event()
        self._serving: set[asyncio.Task[None]] = set()
        self._dispatcher: asyncio.Task[None] | None = None
        self._ending = False

    async def submit(self, call: Call, lane: Lane, caller: str, admit: Admit = _at_once) -> Reply:
        """Wait for the reply to one call.

        Args:
            admit: awaited right before the call is sent. After `OutOfBudget` it is tried again while calls are in
                flight, because these may cost less than was reserved for them.

        Raises:
            Busy: too many calls wait.
            BackendError, Away: from the backend or the breaker.
            Exception: from `admit`.
        """
        if self._ending:
            raise _ended()
        if self.waiting >= self._config.waiting:
            raise Busy(
                f"{self.waiting} calls already wait for the model: ask fewer at once, or raise llm.batch.waiting"
            )
        if self._dispatcher is None or self._dispatcher.done():
            self._dispatcher = asyncio.ensure_future(self._dispatch())
        waiting = _Waiting(call, self._clock.now(), admit, asyncio.get_running_loop().create_future())
        self._lanes[lane].setdefault((caller, self._kind(call)), deque()).append(waiting)
        self.waiting += 1
        self._changed.set()
        return await waiting.reply

    async def close(self, grace_s: float = 0.0) -> None:
        """Send nothing more: waiting calls fail, calls in flight may end within the grace."""
        self._ending = True
        if self._dispatcher is not None:
            self._dispatcher.cancel()
            await asyncio.gather(self._dispatcher, return_exceptions=True)
        for lane in self._lanes.values():
            for queue in lane.values():
                for waiting in queue:
                    waiting.end(_ended())
            lane.clear()
        self.waiting = 0
        if self._serving:
            await self._clock.wait(self._serving, grace_s)
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    def _kind(self, call: Call) -> Hashable:
        ratio = self._backend.bucket_ratio
        bucket = 0 if ratio is None else int(math.log(max(call.characters, 1)) / math.log(ratio))
        return (call.verb, call.parameters, bucket)

    async def _dispatch(self) -> None:
        while True:
            await self._until(lambda: self.waiting > 0 and self.in_flight < self._backend.concurrency)
            await self._gather()
            await self._send(self._take())

    async def _send(self, batch: list[_Waiting]) -> None:
        """Send admitted calls. Calls that a cap forbids wait for money that is reserved for calls in flight."""
        ready: list[_Waiting] = []
        for i, waiting in enumerate(batch):
            try:
                while not waiting.reply.done():
                    try:
                        await waiting.admit()
                        ready.append(waiting)
                        break
                    except OutOfBudget:
                        if not (ready or self.in_flight):
                            raise
                    self._start(ready)
                    ready = []
                    await self._until_fewer_than(self.in_flight)
            except asyncio.CancelledError:  # by `close`
                for unsent in (*ready, *batch[i:]):
                    unsent.end(_ended())
                raise
            except Exception as error:
                waiting.end(error)
        self._start(ready)

    def _start(self, batch: list[_Waiting]) -> None:
        if not batch:
            return
        self.in_flight += 1
        now = self._clock.now()
        self.waits.extend(now - waiting.since for waiting in batch)
        task = asyncio.ensure_future(self._serve(batch))
        self._serving.add(task)
        task.add_done_callback(self._served)

    async def _until_fewer_than(self, in_flight: int) -> None:
        await self._until(lambda: self.in_flight < in_flight)

    async def _gather(self) -> None:
        """Wait for a fuller batch, as long as calls keep arriving and patience lasts."""
        wait_s = self._config.wait_s
        oldest = min(queue[0].since for lane in self._lanes.values() for queue in lane.values())
        fair = self._config.patience * self._batch_s
        latest = max(oldest + max(wait_s, fair), self._answered + fair)
        while self.waiting < self._size:
            before, left = self.waiting, latest - self._clock.now()
            if left <= 0:
                return
            await self._until(lambda: self.waiting >= self._size, min(wait_s, left))
            if self.waiting == before:
                return

    async def _until(self, condition: Callable[[], bool], seconds: float | None = None) -> None:
        """Wait for a condition on the queues, at most some time."""
        timers = set() if seconds is None else {asyncio.ensure_future(self._clock.sleep(seconds))}
        try:
            while not condition() and not any(timer.done() for timer in timers):
                self._changed.clear()
                change = asyncio.ensure_future(self._changed.wait())
                try:
                    await asyncio.wait({change, *timers}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    change.cancel()
        finally:
            for timer in timers:
                timer.cancel()

    def _served(self, task: asyncio.Task[None]) -> None:
        self._serving.discard(task)
        self.in_flight -= 1
        self._changed.set()

    def _take(self) -> list[_Waiting]:
        """The next batch: one kind, lanes by weight, callers in turn."""
        order = self._lane_order()
        kind = next(iter(self._lanes[order[0]]))[1]  # type: ignore[index]
        batch: list[_Waiting] = []
        for lane in order:
            batch.extend(self._drain(self._lanes[lane], kind, self._size - len(batch)))
        self.waiting -= len(batch)
        return batch

    def _lane_order(self) -> list[Lane]:
        """The lane whose turn it is first; the other fills the rest of the batch."""
        interactive, durable = self._lanes["interactive"], self._lanes["durable"]
        if not (interactive and durable):
            return ["interactive", "durable"] if interactive else ["durable", "interactive"]
        self._credit += self._config.durable_share
        if self._credit < 1:
            return ["interactive", "durable"]
        self._credit -= 1
        return ["durable", "interactive"]

    @staticmethod
    def _drain(lane: OrderedDict[Hashable, deque[_Waiting]], kind: Hashable, most: int) -> Iterator[_Waiting]:
        """At most `count` calls of a kind, one from each caller in turn."""
        names = deque(name for name in lane if name[1] == kind)  # type: ignore[index]
        while names and most > 0:
            name = names.popleft()
            queue = lane[name]
            yield queue.popleft()
            most -= 1
            if queue:
                lane.move_to_end(name)
                names.append(name)
            else:
                del lane[name]

    async def _serve(self, batch: list[_Waiting]) -> None:
        calls = [waiting.call for waiting in batch]
        outcomes: list[Reply | Exception]
        try:
            self._breaker.admit()
            outcomes = [*await self._answer(calls)]
        except ServiceError as error:
            if isinstance(error, BackendError):
                self._breaker.failed(error)
            outcomes = [error] * len(batch)
        except asyncio.CancelledError:
            for waiting in batch:
                waiting.reply.cancel()
            raise
        except Exception as defect:  # a defect of a backend: its callers must get an error, and none may wait forever
            log.error("the backend raised %s", place(defect))
            failure = Garbled(f"the {type(self._backend).__name__} backend raised {type(defect).__name__}; see the log")
            self._breaker.failed(failure)
            outcomes = [failure] * len(batch)
        for waiting, outcome in zip(batch, outcomes, strict=True):
            waiting.end(outcome)

    async def _answer(self, calls: list[Call]) -> list[Reply | BackendError]:
        self.batches += 1
        self.calls += len(calls)
        began = self._clock.now()
        answer = asyncio.ensure_future(self._backend.answer(calls))
        try:
            await self._clock.wait({answer}, self._config.timeout_s)
            if not answer.done():
                raise TimedOut(f"the backend did not answer a batch of {len(calls)} in {self._config.timeout_s:.0f} s")
            replies = answer.result()
            self._answered = self._clock.now()
            self._batch_s = self._answered - began
        finally:
            answer.cancel()
        if len(replies) != len(calls):
            raise Garbled(f"the backend gave {len(replies)} replies to {len(calls)} calls")
        failures = [r for r in replies if isinstance(r, BackendError)]
        if len(failures) < len(replies):
            self._breaker.succeeded()
        else:
            self._breaker.failed(failures[0])
        return replies


def _ended() -> Away:
    return Away("the service is ending: ask its successor")
