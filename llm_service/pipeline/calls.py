"""From a call to a reply that is paid for once: journal, flight, retries, batch, budget, rate, parser, journal.

    call ──> journal? ──> in flight? ──> [retry: batcher ──> reserve money ──> rate ──> backend ──> settle]
         ──> parse (one repair turn if the reply is outside the grammar) ──> journal ──> value

Money is reserved when it is a call's turn to be sent, and settled when its reply arrives: a cap holds whatever happens
in between, and waiting calls reserve nothing.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from llm_service.backends import Backend
from llm_service.errors import Away, BackendError, Malformed, ServiceError, Unsupported, place
from llm_service.pipeline.batcher import Batcher
from llm_service.pipeline.cache import Flight
from llm_service.pipeline.clock import Clock
from llm_service.pipeline.journal import Journal
from llm_service.pipeline.ledger import Ledger
from llm_service.pipeline.limits import Rate
from llm_service.pipeline.retry import Breaker, RetryBudget, retried
from llm_service.records import Call, Lane, Option, Reply, Source
from llm_service.settings import LLMConfig

Parse = Callable[[Reply], Any]
"""A reply's JSON value; raises `Malformed`."""
CANNOT: dict[Option, str] = {
    "top": "gives no log-probabilities of tokens",
    "raw": "answers chats only and cannot continue a text: send the text as a chat message",
    "echo": "gives no log-probabilities of a prompt",
}
"""What a backend without an option is refused with."""


@dataclass(frozen=True, slots=True)
class Paid:
    """A reply, and its cost this time."""

    reply: Reply
    source: Source
    tokens: int = 0
    dollars: float = 0.0


@dataclass(frozen=True, slots=True)
class Waiter:
    """The caller, and until when it is worth trying."""

    lane: Lane
    caller: str
    until: float  # clock.now() seconds


@dataclass(slots=True)
class Spent:
    """What the calls of one item cost."""

    source: Source = Source.JOURNAL
    tokens: int = 0
    dollars: float = 0.0

    def add(self, paid: Paid) -> None:
        self.tokens += paid.tokens
        self.dollars += paid.dollars
        if paid.source is not Source.JOURNAL:  # the answer's source is the most expensive one of its calls
            self.source = paid.source if self.source is not Source.BACKEND else self.source


class Calls:
    """Sends and pays for the calls of one backend. Belongs to one event loop.

    Args:
        ledger: records costs, except of free calls, of which there may be thousands a second.
        rate: shared by all backends of a service.
    """

    def __init__(
        self, backend: Backend, config: LLMConfig, journal: Journal, ledger: Ledger, rate: Rate, clock: Clock
    ) -> None:
        self.backend, self.breaker = backend, Breaker(config.retry, clock)
        self.batcher = Batcher(backend, config.batch, self.breaker, clock)
        self._journal, self._rate, self._clock = journal, rate, clock
        self._ledger = ledger if config.limits.meters(backend.paid) else None
        self._retry, self._budget = config.retry, RetryBudget(config.retry)
        self._record = {"generate", "score"} if config.record == "all" else set()
        if backend.paid:
            self._record = {"generate", "score", "embed"}  # calls that cost money are always written to the journal
        self._flight: Flight[Paid] = Flight()
        self.last_success = float("-inf")
        self.retries = self.tokens = 0
        self.dollars = 0.0  # of all replies since it began, as tokens are: metered by a cap or not

    async def value(self, call: Call, parse: Parse, waiter: Waiter, spent: Spent) -> Any:
        """The parsed value of a call; a reply outside the grammar gets one repair turn.

        Raises:
            ServiceError: of any kind.
        """
        reply = await self.reply(call, parse, waiter, spent)
        try:
            return parse(reply)
        except Malformed as unlike:
            again = replace(call, turns=(*call.turns, ("assistant", reply.text[:4000]), ("user", repair(unlike))))
            return parse(await self.reply(again, parse, waiter, spent))

    async def reply(self, call: Call, parse: Parse, waiter: Waiter, spent: Spent) -> Reply:
        """The reply to a call, from the journal if it was paid for before."""
        if call.verb not in self.backend.verbs:
            raise Unsupported(
                f"the {self.backend.model} backend cannot {call.verb}: it can {', '.join(sorted(self.backend.verbs))}; "
                "choose another with llm=NAME"
            )
        supported: frozenset[Option] = getattr(self.backend, "options", frozenset())  # backends need not name them
        if missing := sorted(call.options - supported):
            raise Unsupported(f"the {self.backend.model} backend {CANNOT[missing[0]]}")
        key = call.key(self.backend.model)
        known = self._journal.find(key)
        if known is not None:
            return known
        task, first = self._flight.join(bytes.fromhex(key), lambda: self._pay(key, call, parse, waiter))
        paid = await asyncio.shield(task)
        spent.add(paid if first else Paid(paid.reply, Source.FLIGHT))
        return paid.reply

    async def probe(self, call: Call) -> None:
        """Send a call once to check whether the model answers: within the caps, but not from the journal.

        Raises:
            ServiceError: it was not sent, or not answered.
        """
        await self._send(call, Waiter("interactive", "", self._clock.now()))
        self.last_success = self._clock.now()

    async def close(self, grace_s: float) -> None:
        """Send nothing more; calls in flight may end within the grace, and are written to the journal."""
        await self.batcher.close(grace_s)
        await self._flight.close()
        await self.backend.close()

    async def _pay(self, key: str, call: Call, parse: Parse, waiter: Waiter) -> Paid:
        self._budget.earn()
        began = self._clock.now()
        tries = 0
        price, model = self.backend.price, self.backend.model

        async def attempt() -> Reply:
            nonlocal tries
            self.retries += tries > 0
            tries += 1
            return await self._send(call, waiter)

        reply = await retried(attempt, self._retry, self._budget, self._clock, random.random, deadline=waiter.until)
        dollars = price(reply.prompt_tokens, reply.completion_tokens)
        self.tokens, self.dollars = self.tokens + reply.prompt_tokens + reply.completion_tokens, self.dollars + dollars
        self.last_success = self._clock.now()
        if self.backend.model != model:  # a trainer has replaced the weights meanwhile, and the new ones answered
            key, model = call.key(self.backend.model), self.backend.model
        if call.verb in self._record:
            parsed, error = None, ""
            try:
                parsed = parse(reply)
            except Malformed as unlike:
                error = str(unlike)
            except (
                Exception
            ) as defect:  # a defect of a task: first write the paid reply to the journal, then report it to the caller
                error = place(defect)
            took, at = round(self._clock.now() - began, 4), round(self._clock.wall(), 3)
            self._journal.append(
                key, model, call, reply, parsed=parsed, error=error, dollars=dollars, latency_s=took, at=at
            )
        return Paid(reply, Source.BACKEND, reply.prompt_tokens + reply.completion_tokens, dollars)

    async def _send(self, call: Call, waiter: Waiter) -> Reply:
        """One try. Each is paid for separately: a reply that was cut on its way may have been billed."""
        prompt, completion = self.backend.estimate(call)
        ledger, price = self._ledger, self.backend.price
        entry: int | None = None

        async def admit() -> None:
            nonlocal entry
            if not self._journal.ready():
                raise Away(f"{self._journal.path} cannot be written: no call is sent until there is room on the disk")
            entry = ledger.reserve(prompt + completion, price(prompt, completion)) if ledger else None
            await self._rate.admit(prompt + completion)

        try:
            reply = await self.batcher.submit(call, waiter.lane, waiter.caller, admit)
        except ServiceError as error:
            # Calls that may have been billed count as spent. So do open reservations, at the next start.
            if ledger and entry is not None and not (isinstance(error, BackendError) and error.maybe_billed):
                ledger.release(entry)
            raise
        if ledger and entry is not None:
            dollars = price(reply.prompt_tokens, reply.completion_tokens)
            ledger.settle(entry, reply.prompt_tokens + reply.completion_tokens, dollars)
        return reply


def repair(unlike: Malformed) -> str:
    """The turn that asks a model to repeat its answer in the right form."""
    return f"That reply could not be read: {unlike}. Answer again, in exactly the form that was asked for."
