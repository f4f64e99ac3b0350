"""Answers by rules: a stand-in for a language model that is always available, with known error rates.

It reads a prompt's source (`Call.task`, `Call.inputs`), not the prompt; a raw prompt gets a sentence of the
environment's corpus. What it knows of goals is a file of its own where there is one (`manual.py`), and otherwise what
the environment publishes. It is as good as its rules (`sense.py`), but errs at the rates of its configuration.

Goals that it suggests, and of which `errors` are mistakes, an equal part of each kind:

    senseless    the environment's words without meaning: "chop zombie"
    early        its needs are not met: something is missing, or nothing of it is in view
    done         reached already, or pointless now: a second table, sleep when one is not sleepy
    vague        a right goal in other words, "hit the cow", which only a sentence encoder can match

Other answers:

    wrong        plausible but false: the worse of two, a goal that is not in view
    malformed    text outside the task's grammar; goals too
    false_yes    a false fact of the environment that it believes; false_no: a true one that it does not believe
    dissent      a fact that people disagree on, answered as a minority of them does

Errors are a function of (seed, question): an equal question gets an equal answer in any process and any batch, and
with higher rates it errs wherever it did with lower ones. A false belief depends only on the question's words, whatever
is around them, and has the same confidence as a right one.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Self

from pydantic import Field, model_validator

from llm_service.backends import Backend
from llm_service.backends.scripted.chance import Chance
from llm_service.backends.scripted.manual import text
from llm_service.backends.scripted.script import ANSWERED, SUGGESTED, Script
from llm_service.config import Part
from llm_service.errors import BackendError, Unsupported
from llm_service.records import Call, Option, Reply, Verb, canonical, digest
from llm_service.tasks._template import without_plan
from llm_service.world import World

RATES = ("wrong", "malformed", *SUGGESTED)
BELIEFS = ("false_yes", "false_no", "dissent")
RULES = "4"
"""Part of the model's name. It changes with the rules, so that replies by older rules are not reused."""


class Config(Part):
    """Options of the scripted model."""

    seed: int = 0
    """Seed of its errors."""
    errors: float = Field(default=0.08, ge=0.0, le=1.0)
    """Share of suggested goals that are mistakes: a quarter each `senseless`, `early`, `done` and `vague`, unless these
    have a rate of their own."""
    senseless: float | None = Field(default=None, ge=0.0, le=1.0)
    """Share of goals without meaning, and of other answers; unset: a quarter of `errors`."""
    early: float | None = Field(default=None, ge=0.0, le=1.0)
    """Share of goals whose needs are not met; unset: a quarter of `errors`."""
    done: float | None = Field(default=None, ge=0.0, le=1.0)
    """Share of goals that are reached already, or pointless now; unset: a quarter of `errors`. Where there is no such
    goal, the right one stays."""
    vague: float | None = Field(default=None, ge=0.0, le=1.0)
    """Share of goals that are right, but in words that only a sentence encoder can match; unset: a quarter of
    `errors`."""
    wrong: float = Field(default=0.03, ge=0.0, le=1.0)
    """Share of answers, other than suggested goals, that are plausible but false."""
    malformed: float = Field(default=0.02, ge=0.0, le=1.0)
    """Share of replies that parsers should reject."""
    false_yes: float = Field(default=0.0, ge=0.0, le=1.0)
    """Share of the environment's false facts that it believes, in addition to `wrong`."""
    false_no: float = Field(default=0.0, ge=0.0, le=1.0)
    """Share of the environment's true facts that it does not believe, in addition to `wrong`."""
    dissent: float = Field(default=0.0, ge=0.0, le=1.0)
    """How much it errs where people disagree, if the environment says where; 1: like one person drawn per question."""
    latency_s: float = Field(default=0.0, ge=0.0, allow_inf_nan=False)
    """Seconds that a batch takes, whatever its size."""
    latency_per_item_s: float = Field(default=0.0, ge=0.0, allow_inf_nan=False)
    """Additional seconds for each call of a batch."""
    max_batch: int = Field(default=64, ge=1)
    """Most calls in one batch."""
    concurrency: int = Field(default=8, ge=1)
    """Number of batches that it answers at once."""
    dollars_per_million_prompt_tokens: float = Field(default=0.0, ge=0.0, allow_inf_nan=False)
    """Price, as if it were a hosted model."""
    dollars_per_million_completion_tokens: float = Field(default=0.0, ge=0.0, allow_inf_nan=False)
    """Price, as if it were a hosted model."""

    def rates(self) -> dict[str, float]:
        """The rate of each kind of mistake."""
        goals = {kind: getattr(self, kind) for kind in SUGGESTED}
        goals = {kind: self.errors / len(SUGGESTED) if rate is None else rate for kind, rate in goals.items()}
        return {"wrong": self.wrong, "malformed": self.malformed} | goals

    @model_validator(mode="after")
    def _shares(self) -> Self:
        rates = self.rates()
        for kinds, of in ((SUGGESTED, "goals"), (ANSWERED, "answers")):
            if sum(rates[kind] for kind in kinds) > 1 + 1e-9:
                raise ValueError(f"{', '.join(kinds)} are shares of the same {of}: together at most 1")
        return self


class Scripted(Backend):
    """A `Backend` that needs only the environment's description."""

    verbs: frozenset[Verb] = frozenset({"generate", "score"})
    options: frozenset[Option] = frozenset({"raw"})

    def __init__(self, config: Config, world: World) -> None:
        self._script, self._config = Script(world), config
        beliefs = {name: float(getattr(config, name)) for name in BELIEFS}
        rates = config.rates()
        # Beliefs that it does not have are no part of its name.
        said = canonical({"seed": config.seed} | rates | {name: rate for name, rate in beliefs.items() if rate > 0})
        self.model = f"scripted-{digest(said, RULES, world.rules(), text(self._script.known))[:12]}"
        self.max_batch, self.concurrency = config.max_batch, config.concurrency
        self.paid = config.dollars_per_million_prompt_tokens + config.dollars_per_million_completion_tokens > 0
        self._rates = rates | beliefs

    async def answer(self, calls: Sequence[Call]) -> list[Reply | BackendError]:
        seconds = self._config.latency_s + self._config.latency_per_item_s * len(calls)
        if seconds > 0:
            await asyncio.sleep(seconds)
        replies: list[Reply | BackendError] = []
        for call in calls:
            replies.append(self._reply(call))
            await asyncio.sleep(0)  # a large batch must not block the event loop
        return replies

    def _reply(self, call: Call) -> Reply | BackendError:
        # Not by `self.model`: the same questions should go wrong first, whatever the rates.
        # Nor by the plan that a prompt shows: the model's rules have the world, and ignore how prompts tell of it.
        chance = Chance(self._config.seed, without_plan(call).key("scripted"), self._rates)
        prompt = sum(tokens(text) for _, text in call.turns)
        if call.verb == "score":
            scores = self._script.score(call, chance)
            lengths = [tokens(text) for text in call.candidates]
            if call.parameters.normalise == "tokens":
                scores = [score / length for score, length in zip(scores, lengths, strict=True)]
            return Reply(scores=tuple(scores), prompt_tokens=prompt, completion_tokens=sum(lengths))
        if call.verb == "generate":
            whole = self._script.reply(call, chance)
            text = _ended(whole, call)
            cut = len(text) == 4 * call.parameters.max_tokens < len(whole)
            return Reply(text=text, prompt_tokens=prompt, completion_tokens=tokens(text), cut=cut)
        return Unsupported(f"the scripted backend does not {call.verb}: choose another with llm=NAME")

    def estimate(self, call: Call) -> tuple[int, int]:
        prompt = sum(tokens(text) for _, text in call.turns)
        if call.verb == "score":
            return prompt, sum(map(tokens, call.candidates))
        return prompt, call.parameters.max_tokens

    def price(self, prompt_tokens: int, completion_tokens: int) -> float:
        config = self._config
        prompts = prompt_tokens * config.dollars_per_million_prompt_tokens
        return (prompts + completion_tokens * config.dollars_per_million_completion_tokens) / 1e6

    async def probe(self) -> None:
        """One answer, without its latency."""
        self._reply(Call("generate", (("user", "What do you see?"),)))


def make(config: Config, world: World) -> Scripted:
    """The backend. Raises UsageError if a pattern of the world names a slot without words."""
    return Scripted(config, world)


def tokens(text: str) -> int:
    """About as many tokens as usual for English: one for four characters."""
    return math.ceil(len(text) / 4)


def _ended(text: str, call: Call) -> str:
    """A reply cut where a model would end it: before a stop text, or at the maximum length."""
    for stop in call.parameters.stop:
        text = text.split(stop, 1)[0] if stop else text
    return text[: 4 * call.parameters.max_tokens]
