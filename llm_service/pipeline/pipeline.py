"""The service: one pipeline from a question to its answer, for every caller and both lanes.

    ask ──> memory ──> Redis ──> in flight? ──> task: calls ──> `calls.Calls` ──> combine ──> memory, Redis ──> answer

Items are answered independently: one that fails has a status and a reason, the others have answers. If a caller stops
waiting, the work continues, because it is paid for, and the answer is there when it is asked for again.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from llm_service import tasks
from llm_service.backends import Backend
from llm_service.durable.consumer import Consumer
from llm_service.durable.queue import Queue
from llm_service.errors import Away, Busy, Expired, Malformed, ServiceError, UsageError, place
from llm_service.pipeline.cache import Flight, Memory, Shared
from llm_service.pipeline.calls import Calls, Spent, Waiter
from llm_service.pipeline.clock import Clock
from llm_service.pipeline.journal import Journal
from llm_service.pipeline.ledger import Ledger
from llm_service.pipeline.limits import Rate
from llm_service.pipeline.questions import Questions, payload, read
from llm_service.records import Answer, Ask, Call, Reply, Source, Status, canonical
from llm_service.settings import LLMConfig
from llm_service.world import World

log = logging.getLogger(__name__)

FRESH_S = 30.0
"""Seconds for which a success proves health; after that, health does a piece of real work."""
LATENCIES = 1000
"""Number of recent answers for the latency quantiles."""


@dataclass(frozen=True)
class Estimate:
    """The cost of a set of questions, before any is sent."""

    calls: int  # calls to send, without repair turns and retries; known answers are free
    prompt_tokens: int
    completion_tokens: int  # at most
    dollars: float  # at most


class Service:
    """Belongs to one event loop; `peek` and `stats` may be called from any thread.

    Args:
        backend: answers `generate` and `score`.
        embedder: answers `embed`; None lets the backend do it.
        world: the environment's description, for prompts.
        queue: the durable lane; None refuses `submit`.
        shared: the second cache; None: only the first.
    """

    def __init__(
        self,
        config: LLMConfig,
        backend: Backend,
        embedder: Backend | None,
        world: World,
        journal: Journal,
        ledger: Ledger,
        queue: Queue | None = None,
        shared: Shared | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.config, self.backend, self.world = config, backend, world
        self.journal, self.ledger, self.queue = journal, ledger, queue
        self.embedder = embedder or backend
        self._clock = clock or Clock()
        rate = Rate(config.limits, self._clock)
        paying = functools.partial(Calls, config=config, journal=journal, ledger=ledger, rate=rate, clock=self._clock)
        self._calls = paying(backend)
        self._embeddings = self._calls if embedder is None else paying(embedder)
        self._questions = Questions(backend, self.embedder, world)
        self._memory = Memory(config.memory_mb)
        self._shared = shared
        self._flight: Flight[Answer] = Flight()
        self._counts: Counter[str] = Counter()
        self._latencies: deque[float] = deque(maxlen=LATENCIES)
        self._probed = (float("-inf"), True, "")
        self._probes: Flight[None] = Flight()
        self.queue_stats: dict[str, float] = {}
        """Recent state of the durable lane."""
        self.consumers: list[Consumer] = []
        """Consumers of the durable lane that use this service."""
        self.askers: list[Callable[[], Awaitable[None]]] = []
        """Stops consumers; called first."""
        self.closers: list[Callable[[], Awaitable[None]]] = []
        """Close connections and our own Redis; called last, in this order."""

    def keys(self, ask: Ask) -> list[str]:
        """Content hash of each item: the key of its answer, and of its job in the durable lane."""
        return [key.hex() for key in self._questions.keys(ask)]

    # ---- asking -----------------------------------------------------------------------------------------------------

    def peek(self, ask: Ask) -> list[Answer] | None:
        """All answers from memory, None if one is missing. Any thread may call it. Raises UsageError as `ask` does."""
        answers: list[Answer] = []
        get = self._memory.get
        for key in self._questions.keys(ask):
            answer = get(key)
            if answer is None:
                return None
            answers.append(answer)
        self._counts["memory"] += len(answers)
        return answers

    async def ask(self, ask: Ask) -> list[Answer]:
        """One answer for each item, in order; at the latest at the deadline.

        Raises:
            UsageError: unknown task, or candidates that do not fit the items.
        """
        began = self._clock.now()
        keys = self._questions.keys(ask)
        answers: dict[int, Answer] = {}
        for i, key in enumerate(keys):
            known = self._memory.get(key)
            if known is not None:
                answers[i] = known
        missing = [i for i in range(len(keys)) if i not in answers]
        if missing and self._shared is not None:
            found = await self._shared.get([keys[i] for i in missing], ask.deadline)
            for i, shared in zip(missing, found, strict=True):
                if shared is not None:
                    self._memory.put(keys[i], shared)
                    answers[i] = shared
            missing = [i for i in missing if i not in answers]
        if missing:
            answers |= await self._work(ask, keys, missing, began)
        self._latencies.append(self._clock.now() - began)
        for answer in answers.values():
            self._counts[answer.status.name.lower() if not answer.ok else answer.source.name.lower()] += 1
        return [answers[i] for i in range(len(keys))]

    async def reply(self, call: Call, caller: str = "", deadline: float = 60.0) -> Reply:
        """The model's own reply to one call of `generate`, from the journal if it was paid for before.

        Raises:
            Expired: there is none after `deadline` seconds; the work on it continues.
            ServiceError: there will be none.
        """
        began, spent = self._clock.now(), Spent()
        waiter = Waiter("interactive", caller, began + deadline)
        work = asyncio.ensure_future(self._calls.reply(call, _as_it_is, waiter, spent))
        try:
            await self._clock.wait({work}, deadline)
            if not work.done():
                raise Expired(f"no answer in {deadline:.1f} s; the service keeps working on it: ask again")
            if work.cancelled():
                raise Away("the service is ending: ask its successor")
            reply = work.result()
        except ServiceError as error:
            self._counts[error.status.name.lower()] += 1
            raise
        finally:
            work.cancel()  # ends the wait for the reply, not the work on it
        self._latencies.append(self._clock.now() - began)
        self._counts[spent.source.name.lower()] += 1
        return reply

    async def _work(self, ask: Ask, keys: list[bytes], missing: list[int], began: float) -> dict[int, Answer]:
        """Answer the items that are not in a cache."""
        waiter = Waiter(ask.lane, ask.caller, began + ask.deadline)
        answers: dict[int, Answer] = {}
        # A caller that joined a flight may have more time than the one that began it: it tries once more, for itself.
        for last in (False, True):
            leads, work = self._join(ask, keys, [i for i in missing if i not in answers], waiter, answers)
            if work:
                await self._clock.wait(work.values(), waiter.until - self._clock.now())
            for i, task in work.items():
                if not task.done():
                    reason = f"no answer in {ask.deadline:.1f} s; the service keeps working on it: ask again"
                    answers[i] = Answer(Status.EXPIRED, reason=reason)
                elif task.cancelled():
                    answers[i] = _refusal(Away("the service is ending: ask its successor"))
                elif i in leads:
                    answers[i] = task.result()
                elif last or task.result().status is not Status.AWAY:
                    answers[i] = _followed(task.result())
        return answers

    def _join(
        self, ask: Ask, keys: list[bytes], items: list[int], waiter: Waiter, refused: dict[int, Answer]
    ) -> tuple[set[int], dict[int, asyncio.Task[Answer]]]:
        """Start or join the work on items: returns the items that it started, and the task of each."""
        leads: set[int] = set()
        work: dict[int, asyncio.Task[Answer]] = {}
        for i in items:
            if keys[i] not in self._flight and len(self._flight) >= self.config.limits.waiting:
                refused[i] = _refusal(Busy(f"{len(self._flight)} questions are already in flight: ask again later"))
                continue
            work[i], first = self._flight.join(keys[i], functools.partial(self._item, ask, i, keys[i], waiter))
            if first:
                leads.add(i)
        return leads, work

    async def _item(self, ask: Ask, i: int, key: bytes, waiter: Waiter) -> Answer:
        """One item, from its content to its answer."""
        spent, model = Spent(), self.backend.model
        try:
            payload = await self._payload(ask, i, waiter, spent)
            answer = Answer(Status.OK, payload, "", spent.source, spent.tokens, spent.dollars)
        except ServiceError as error:
            answer = _refusal(error, spent)
        except UsageError as error:
            answer = Answer(Status.REFUSED, reason=str(error))
        except Exception as defect:  # a defect of a task: refuse this item; the others and the service continue
            log.error("task %s raised %s", ask.task, place(defect))
            answer = Answer(
                Status.REFUSED, reason=f"a defect of task {ask.task!r}: {type(defect).__name__}; see the log"
            )
        if self.backend.model == model:  # otherwise there are new weights, and the key belongs to the old ones
            self._memory.put(key, answer)
            if self._shared is not None:
                self._shared.put(key, answer)
        return answer

    async def _payload(self, ask: Ask, i: int, waiter: Waiter, spent: Spent) -> bytes:
        calls, inputs = self._questions.calls(ask, i)
        if not ask.task:
            line = self._embeddings if ask.verb == "embed" else self._calls
            return payload(await line.reply(calls[0], _as_it_is, waiter, spent), calls[0])
        module = tasks.task(ask.task)
        parsers = [functools.partial(module.parse, inputs=inputs, index=n, world=self.world) for n in range(len(calls))]
        values = [self._calls.value(c, parse, waiter, spent) for c, parse in zip(calls, parsers, strict=True)]
        combined = module.combine(list(await asyncio.gather(*values)), inputs)
        return canonical(combined).encode("utf-8", "surrogatepass")

    # ---- the durable lane -------------------------------------------------------------------------------------------

    async def submit(self, ask: Ask) -> tuple[list[str], list[Status]]:
        """Accept items that may be answered late but must not be lost: returns their keys and statuses.

        Raises:
            UsageError: there is no durable lane here, or the request is wrong.
        """
        keys = self.keys(ask)
        for content in ask.contents if ask.task else ():
            read(
                tasks.task(ask.task), content
            )  # refuse items that can never be answered now, rather than bury them later
        return keys, await self._durable().submit(ask, keys)

    async def fetch(self, keys: Sequence[str], wait_s: float = 0.0) -> list[Answer]:
        """The answers of submitted items; waits until none is pending, or at most some seconds.

        Raises:
            UsageError: there is no durable lane here.
        """
        queue = self._durable()
        return await (queue.wait(list(keys), wait_s) if wait_s > 0 else queue.fetch(list(keys)))

    def _durable(self) -> Queue:
        if self.queue is None:
            raise UsageError("this service has no durable lane: it was started without Redis")
        return self.queue

    # ---- monitoring -------------------------------------------------------------------------------------------------

    async def estimate(self, ask: Ask) -> Estimate:
        """The cost of `ask`. Nothing is sent. Raises UsageError like `ask`."""
        keys = self._questions.keys(ask)
        unique = {key: i for i, key in reversed(list(enumerate(keys)))}
        unknown = [key for key in unique if self._memory.get(key) is None]
        if unknown and self._shared is not None:
            found = await self._shared.get(unknown)
            unknown = [key for key, answer in zip(unknown, found, strict=True) if answer is None]
        backend = self.embedder if ask.verb == "embed" else self.backend
        sent: dict[str, Call] = {}  # by key, because items may share a call
        for key in unknown:
            calls = {call.key(backend.model): call for call in self._questions.calls(ask, unique[key])[0]}
            sent |= {name: call for name, call in calls.items() if self.journal.find(name) is None}
        tokens = [backend.estimate(call) for call in sent.values()]
        prompt, completion = (sum(counts) for counts in zip(*tokens, strict=True)) if tokens else (0, 0)
        dollars = sum(backend.price(*counts) for counts in tokens)
        return Estimate(len(sent), prompt, completion, dollars)

    async def health(self) -> tuple[bool, str]:
        """Whether questions get answers, from a recent success or a piece of real work; and the reason."""
        now = self._clock.now()
        if self._calls.breaker.state == "closed" and now - self._calls.last_success < FRESH_S:
            return True, f"answered {now - self._calls.last_success:.0f} s ago"
        if now - self._probed[0] > self.config.probe_s:
            probe, _ = self._probes.join(b"", self._probe)  # one probe for all callers
            await asyncio.shield(probe)
        return self._probed[1], self._probed[2]

    async def _probe(self) -> None:
        ok, reason = True, f"{self.backend.model} works"
        try:
            paid = await asyncio.wait_for(self.backend.probe(), self.config.batch.timeout_s)
            if paid is not None:  # no timeout here: a call that was sent must be settled in the ledger
                await self._calls.probe(paid)
        except (ServiceError, TimeoutError) as error:
            ok, reason = False, str(error) or "the probe got no answer in time"
        self._probed = (self._clock.now(), ok, reason)

    def stats(self) -> dict[str, float]:
        """Counters and gauges by name; `docs/llm_service.md` explains each."""
        batcher, ledger, lines = self._calls.batcher, self.ledger, {self._calls, self._embeddings}
        stats = {f"answers_{name}": float(count) for name, count in self._counts.copy().items()}
        stats |= {f"jobs_{name}": value for name, value in self.queue_stats.items()}
        return stats | {
            "waiting": float(batcher.waiting + self._embeddings.batcher.waiting),
            "in_flight": float(len(self._flight)),
            "calls": float(batcher.calls),
            "batches": float(batcher.batches),
            "batch_fill": batcher.calls / max(batcher.batches, 1),
            "retries": float(self._calls.retries),
            "breaker_open": float(self._calls.breaker.state != "closed"),
            "reply_tokens": float(sum(line.tokens for line in lines)),
            "reply_dollars": sum(line.dollars for line in lines),
            "tokens": float(ledger.tokens),
            "dollars": float(ledger.dollars),
            "memory_answers": float(len(self._memory)),
            "memory_bytes": float(self._memory.bytes),
            "journal_lines": float(len(self.journal)),
            "redis_errors": float(self._shared.errors if self._shared else 0),
            "jobs_finished": float(sum(consumer.finished for consumer in self.consumers)),
            "jobs_buried": float(sum(consumer.buried for consumer in self.consumers)),
            "jobs_paused": float(any(consumer.paused for consumer in self.consumers)),
            "budget_share": ledger.share,
            **_quantiles("latency", self._latencies),
            **_quantiles("queue", batcher.waits),
        }

    async def close(self) -> None:
        """Let paid replies arrive, within `server.drain_s`, and release everything."""
        try:
            for end in self.askers:
                await end()
            lines = {self._calls, self._embeddings}
            await asyncio.gather(*[line.close(self.config.server.drain_s) for line in lines])
            await self._flight.close()
            await self._probes.close()
            if self._shared is not None:
                await self._shared.flush()
            for close in self.closers:
                await close()
        finally:
            self.journal.close()
            self.ledger.close()


def _quantiles(name: str, seconds: deque[float]) -> dict[str, float]:
    """Median, 95th and 99th percentile of recent measurements; any thread may call this."""
    ordered = sorted(seconds.copy())
    ranks = {percent: ordered[len(ordered) * percent // 100] if ordered else 0.0 for percent in (50, 95, 99)}
    return {f"{name}_p{percent}_s": value for percent, value in ranks.items()}


def _as_it_is(reply: Reply) -> Any:
    """The parser of raw prompts: accepts any reply."""
    return reply.text or list(reply.scores) or None


def _refusal(error: ServiceError, spent: Spent | None = None) -> Answer:
    spent = spent or Spent()
    status = Status.MALFORMED if isinstance(error, Malformed) else error.status
    return Answer(status, reason=str(error), source=spent.source, tokens=spent.tokens, dollars=spent.dollars)


def _followed(answer: Answer) -> Answer:
    """The answer for a caller that joined a flight: the same, paid for by another caller."""
    return Answer(answer.status, answer.payload, answer.reason, Source.FLIGHT if answer.ok else answer.source)
