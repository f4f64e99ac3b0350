"""Answers by rules from the environment's description: a backend that is always available, with known error rates.

It reads a prompt's source (`Call.task`, `Call.inputs`), not the prompt; a raw prompt gets a sentence of the
environment's corpus. It is as good as its rules (`sense.py`), but errs at the rates of its configuration:

    wrong        plausible but false: a goal that is not in view, the worse of two
    mistimed     a goal that is reached already or lacks a prerequisite
    senseless    the environment's words without meaning: "open the ball"
    malformed    text outside the task's grammar
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
from llm_service.backends.scripted.script import Chance, Script
from llm_service.config import Part
from llm_service.errors import BackendError, Unsupported
from llm_service.records import Call, Option, Reply, Verb, digest
from llm_service.world import World

RATES = ("wrong", "mistimed", "senseless", "malformed")
BELIEFS = ("false_yes", "false_no", "dissent")
RULES = "2"
"""Part of the model's name. It changes with the rules, so that replies by older rules are not reused."""


class Config(Part):
    """Options of the scripted model."""

    seed: int = 0
    """Seed of its errors."""
    wrong: float = Field(default=0.03, ge=0.0, le=1.0)
    """Share of answers, and of goals, that are plausible but false."""
    mistimed: float = Field(default=0.02, ge=0.0, le=1.0)
    """Share of goals whose prerequisites are not met, or that are already reached."""
    senseless: float = Field(default=0.02, ge=0.0, le=1.0)
    """Share of goals and answers without meaning."""
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

    @model_validator(mode="after")
    def _shares(self) -> Self:
        if self.wrong + self.mistimed + self.senseless > 1:
            raise ValueError("wrong, mistimed and senseless are shares of the same answers: together at most 1")
        return self


class Scripted(Backend):
    """A `Backend` that needs only the environment's description."""

    verbs: frozenset[Verb] = frozenset({"generate", "score"})
    options: frozenset[Option] = frozenset({"raw"})

    def __init__(self, config: Config, world: World) -> None:
        beliefs = {name for name in BELIEFS if getattr(config, name) > 0}  # without any, the name stays as before
        said = config.model_dump_json(include={"seed", *RATES, *beliefs})
        self.model = f"scripted-{digest(said, RULES, world.rules())[:12]}"
        self.max_batch, self.concurrency = config.max_batch, config.concurrency
        self.paid = config.dollars_per_million_prompt_tokens + config.dollars_per_million_completion_tokens > 0
        self._config = config
        self._rates = {name: float(getattr(config, name)) for name in (*RATES, *BELIEFS)}
        self._script = Script(world)

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
        chance = Chance(self._config.seed, call.key("scripted"), self._rates)
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
