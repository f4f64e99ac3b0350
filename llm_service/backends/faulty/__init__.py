"""A fake model that fails according to a script, for testing everything that must survive an unreliable provider.

    script=["429:2", "half*3", "ok"]     the first call must come back in 2 s, three replies are cut, then all calls
                                         succeed: each entry is for the next call, `*N` repeats it, and the last one
                                         repeats forever

    ok  ok:TEXT          the last user turn, or TEXT             slow:SECONDS    the same, after a while
    429  429:WAIT  500   that status, with Retry-After: WAIT (seconds or a date)
    quota  unauthorized  too_long                                 with OpenAI's messages
    hang                 no answer                                dead            the connection is cut
    half                 a reply without its second half          huge            a reply of 16 MB
    garbage              text that is not JSON                    garbage:BODY    exactly this body
    filtered             stopped by a content filter

The same script drives this backend, which answers in this process under any clock, and a real server on loopback that
speaks the OpenAI protocol (`llm_service/backends/faulty/server.py`):

    python -m llm_service.backends.faulty --port 0 --script 429:2 ok
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, Field

from llm_service.backends import Backend
from llm_service.backends.openai.protocol import count, document, plain, refusal, tail
from llm_service.config import Part
from llm_service.errors import BackendError, Garbled, Refused, TimedOut, Unreachable, UsageError
from llm_service.pipeline.clock import Clock
from llm_service.records import Call, Option, Reply, Verb, digest
from llm_service.world import World

DIMENSIONS = 16
"""Dimension of its embeddings."""
HUGE_BYTES = 16_000_000
WORDS = {
    "quota": (429, "insufficient_quota", "You exceeded your current quota."),
    "unauthorized": (401, "invalid_api_key", "Incorrect API key provided."),
    "too_long": (400, "context_length_exceeded", "This model's maximum context length is 1024 tokens."),
}
PLAIN = {"ok", "hang", "half", "garbage", "huge", "dead", "filtered", *WORDS}


class Config(Part):
    """What the model does, and how long it takes."""

    script: list[Annotated[str, BeforeValidator(str)]] = Field(default=["ok"], min_length=1)
    """What each call does, in order; a bare status such as 429 may be a number."""
    latency_s: float = Field(default=0.0, ge=0)
    """Time of every batch, seconds."""
    per_item_s: float = Field(default=0.0, ge=0)
    """Additional time for each call in a batch, seconds."""
    max_batch: int = Field(default=64, ge=1)
    """Most calls in one batch."""
    concurrency: int = Field(default=1, ge=1)
    """Number of batches at once."""
    timeout_s: float = Field(default=60.0, gt=0)
    """Time after which a hanging call is given up, seconds."""
    dollars_per_million_tokens: float = Field(default=0.0, ge=0)
    """Price of prompt and completion tokens; above 0 it counts as a paid backend."""


@dataclass(frozen=True)
class Step:
    """One entry of a script."""

    action: str
    argument: str = ""

    @property
    def status(self) -> int | None:
        """The HTTP status of a refusal."""
        if self.action in WORDS:
            return WORDS[self.action][0]
        return int(self.action) if self.action.isdigit() else None

    @property
    def headers(self) -> dict[str, str]:
        """Further headers of a refusal."""
        return {"retry-after": self.argument} if self.action.isdigit() and self.argument else {}

    @property
    def body(self) -> str:
        """The text of a refusal, or of garbage."""
        if self.action == "garbage":
            return self.argument or "<html>garbage</html>"
        _, code, message = WORDS.get(self.action, (0, None, "Scripted."))
        return json.dumps({"error": {"message": message, "type": "scripted", "code": code}})


def steps(script: Sequence[str]) -> Iterator[Step]:
    """The endless steps of a script, one for each call. Raises UsageError if an entry is not in the grammar."""
    parsed = [_parse(entry) for entry in script]
    if not parsed:
        raise UsageError("the script is empty: it needs at least one entry, such as ok")

    def walk() -> Iterator[Step]:
        for step, times in parsed:
            yield from (step for _ in range(times))
        while True:
            yield parsed[-1][0]

    return walk()


def _parse(entry: str) -> tuple[Step, int]:
    match = re.fullmatch(r"([a-z_]+|[3-5]\d\d)(?::(.*?))?(?:\*([0-9]{1,9}))?", entry, re.DOTALL)
    action, argument, times = match.groups() if match else ("", None, None)
    known = action in PLAIN or action == "slow" or action.isdigit()
    if not known or (argument is not None and action not in ("ok", "slow", "garbage") and not action.isdigit()):
        raise UsageError(
            f"the script's entry {entry!r} is not known: write ok, ok:TEXT, 429:2, 500*3, half, slow:0.5, ..."
        )
    if action == "slow" and not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6})?", argument or ""):
        raise UsageError(f"the script's entry {entry!r} needs seconds, such as slow:0.5")
    return Step(action, argument or ""), int(times or 1)


# ---- the model: an echo, with probabilities computed from the text ---------------------------------------------------


def tokens(text: str) -> list[str]:
    """Pieces of at most six letters, with the space before them; together they are the text."""
    return re.findall(r"\s?\w{1,6}|\W", text)


def logprob(before: str, token: str) -> float:
    """Log-probability of a token, in [-5, -1); a function of it and of the last 64 characters before it."""
    return -1.0 - 4.0 * int(digest(before[-64:], token)[:8], 16) / 2**32


def logprobs(text: str) -> list[float]:
    """Log-probability of every token of a text."""
    result, at = [], 0
    for token in tokens(text):
        result.append(logprob(text[:at], token))
        at += len(token)
    return result


def embedding(text: str) -> np.ndarray[Any, np.dtype[np.float32]]:
    """float32 [16], of unit length; a function of the text."""
    seed = int(digest(text), 16)
    vector = np.random.default_rng(seed).standard_normal(DIMENSIONS)
    return (vector / np.linalg.norm(vector)).astype(np.float32)


def spoken(text: str, stop: Sequence[str], max_tokens: int) -> tuple[str, bool]:
    """A reply as it is sent, and whether it is complete."""
    for word in stop:
        text = text.partition(word)[0] if word else text
    pieces = tokens(text)
    return "".join(pieces[:max_tokens]), len(pieces) <= max_tokens


class Faulty(Backend):
    """Answers in this process. `calls` counts every call, so that repeated calls are visible."""

    model = "faulty"
    verbs: frozenset[Verb] = frozenset({"generate", "score", "embed"})
    options: frozenset[Option] = frozenset({"raw"})

    def __init__(self, config: Config, clock: Clock | None = None) -> None:
        self._config, self._clock = config, clock or Clock()
        self._steps = steps(config.script)
        self.max_batch, self.concurrency = config.max_batch, config.concurrency
        self.paid = config.dollars_per_million_tokens > 0
        self.calls: list[Call] = []

    async def answer(self, calls: Sequence[Call]) -> list[Reply | BackendError]:
        """See `Backend`. Each call takes one step of the script; the batch takes as long as its slowest."""
        self.calls.extend(calls)
        taken = [next(self._steps) for _ in calls]
        wait = self._config.latency_s + self._config.per_item_s * len(calls)
        slowest = max((float(step.argument) for step in taken if step.action == "slow"), default=0.0)
        if any(step.action == "hang" for step in taken):
            slowest = self._config.timeout_s
        if wait + slowest > 0:
            await self._clock.sleep(wait + slowest)
        return [_outcome(step, call) for step, call in zip(taken, calls, strict=True)]

    def estimate(self, call: Call) -> tuple[int, int]:
        prompt = sum(count(text) + 8 for _, text in call.turns)
        if call.verb == "score":
            return sum(prompt + count(candidate) for candidate in call.candidates), 0
        return prompt, call.parameters.max_tokens if call.verb == "generate" else 0

    def price(self, prompt_tokens: int, completion_tokens: int) -> float:
        return (prompt_tokens + completion_tokens) * self._config.dollars_per_million_tokens / 1e6


def _outcome(step: Step, call: Call) -> Reply | BackendError:
    if step.status is not None:
        return refusal(step.status, step.headers, step.body, "the script")
    match step.action:
        case "hang":
            return TimedOut("the script did not answer")
        case "dead":
            return Unreachable("the script cut the connection")
        case "half" | "huge":
            return Garbled(f"the script sent a reply that is {step.action}")
        case "filtered":
            return Refused("the script's content filter stopped the reply")
        case "garbage":
            try:
                document(step.body.encode(), "the script")
            except BackendError as error:
                return error
            return Garbled("the script sent a reply without an answer")
        case _:
            return _reply(call, step.argument if step.action == "ok" else "")


def _reply(call: Call, text: str) -> Reply:
    prompt = plain(call.turns)
    if call.verb == "embed":
        return Reply(vector=embedding(prompt), prompt_tokens=len(tokens(prompt)))
    if call.verb == "generate":
        said, whole = spoken(text or call.turns[-1][1], call.parameters.stop, call.parameters.max_tokens)
        read, written = len(tokens(prompt)), len(tokens(said))
        return Reply(said, prompt_tokens=read, completion_tokens=written, cut=not whole)
    scores, read = [], 0
    for candidate in call.candidates:
        pieces = tokens(prompt + candidate)
        total, used = tail(pieces, logprobs(prompt + candidate), candidate)
        scores.append(total / max(used, 1) if call.parameters.normalise == "tokens" else total)
        read += len(pieces)
    return Reply(scores=tuple(scores), prompt_tokens=read)


def make(config: Config, world: World) -> Faulty:
    """See `llm_service.backends`. Raises UsageError if the script is not in its grammar."""
    return Faulty(config)
