"""Questions and answers as plain frozen records, and the key under which an answer is paid for once.

    Ask (many items) ──> Call (one question to a model) ──> Reply ──> Answer (one for each item)

A caller sends an `Ask`: items that share everything except their content. A task turns an item into one or more
`Call`s; without a task, an item is one call. A call is the unit of payment: it has a key, and a key is paid for once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Verb = Literal["generate", "score", "embed"]
Lane = Literal["interactive", "durable"]
Normalisation = Literal["none", "tokens"]
Turn = tuple[str, str]
"""(role, text); the roles are `system`, `user` and `assistant`."""
Option = Literal["top", "raw", "echo"]
"""Fields of a `Call` that only some backends support: what a caller may ask of `generate` beyond a text."""


def canonical(value: Any) -> str:
    """JSON that is equal for equal values: keys sorted, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(*parts: str) -> str:
    """Content hash of texts, 128 bits as 32 hexadecimal digits (BLAKE2b)."""
    hasher = hashlib.blake2b(digest_size=16)
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        hasher.update(len(encoded).to_bytes(8, "little"))
        hasher.update(encoded)
    return hasher.hexdigest()


@dataclass(frozen=True, slots=True)
class Parameters:
    """How a model answers."""

    temperature: float = 0.0  # at least 0; 0 takes the most probable
    max_tokens: int = 256  # of the reply, at least 1
    stop: tuple[str, ...] = ()  # texts that end the reply, not included in it
    seed: int = 0  # for backends that sample
    normalise: Normalisation = "none"  # scores: the sum of log-probabilities, or their mean over tokens


@dataclass(frozen=True, slots=True)
class Token:
    """A token of a reply, or of a prompt."""

    text: str  # what it adds to the text before it; U+FFFD for a part of a letter, if letters have several tokens
    logprob: float | None  # natural logarithm, at temperature 1; None: nothing comes before it
    top: tuple[tuple[str, float], ...] = ()  # the most probable tokens at its place, best first


Heard = Callable[[str, tuple[Token, ...]], None]
"""Takes a reply as far as it is known, text and tokens; each time it is longer. Any thread may call it."""


@dataclass(frozen=True, slots=True)
class Call:
    """One question to a model."""

    verb: Verb
    turns: tuple[Turn, ...]  # the conversation; the raw prompt is one user turn
    candidates: tuple[str, ...] = ()  # what to score after the prompt
    parameters: Parameters = Parameters()
    sample: int = 0  # equal questions with different numbers are different questions
    task: str = ""  # the task that asks, "" for a raw prompt; not part of the key
    inputs: Mapping[str, Any] = field(default_factory=dict)  # the source of the turns; not part of the key
    top: int | None = None  # tokens with log-probabilities, and so many of the most probable ones at each place
    raw: bool = False  # continue the prompt's text as it is, without a chat template
    echo: bool = False  # with `top`: the prompt's tokens too; `max_tokens` may then be 0
    heard: Heard | None = field(default=None, compare=False)  # told while the reply grows; not part of the key

    @property
    def options(self) -> frozenset[Option]:
        """The options that it uses."""
        used: dict[Option, bool] = {"top": self.top is not None, "raw": self.raw, "echo": self.echo}
        return frozenset(option for option, on in used.items() if on)

    def key(self, model: str) -> str:
        """Content hash of the question to this model."""
        p = self.parameters
        asked = [p.temperature, p.max_tokens, p.stop, p.seed, p.normalise]
        options = [self.top, self.raw, self.echo] if self.options else []  # without any, the key is as it always was
        return digest(self.verb, model, canonical([self.turns, self.candidates, asked, self.sample, *options]))

    @property
    def characters(self) -> int:
        """Length of the prompt, used for length buckets."""
        return sum(len(text) for _, text in self.turns)


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's reply to one call."""

    text: str = ""  # generate
    scores: tuple[float, ...] = ()  # score: log-probability of each candidate
    vector: NDArray[np.float32] | None = None  # embed: [D], unit length
    prompt_tokens: int = 0
    completion_tokens: int = 0
    tokens: tuple[Token, ...] = ()  # generate with `top`: those of the reply; with `echo`, after those of the prompt
    cut: bool = False  # generate: it ended because it had `max_tokens`


class Status(IntEnum):
    """The outcome of an item. The numbers are sent and stored, so they never change."""

    OK = 0
    MALFORMED = 1  # the model's answer was outside the task's grammar, twice; paid for and stored
    REFUSED = 2  # this backend cannot be asked the question: too long, not supported, not authorised
    AWAY = 3  # the backend is unavailable, and retries or their time are used up
    EXPIRED = 4  # the deadline passed; the answer will be there when the question is asked again
    BUDGET = 5  # a cap on tokens or money forbids the call
    BUSY = 6  # too many questions wait already
    MISSING = 7  # fetch: no such job; replay: not recorded
    PENDING = 8  # fetch: accepted, not answered yet
    DEAD = 9  # fetch: given up; it is a dead letter with a reason


class Source(IntEnum):
    """Where an answer came from."""

    BACKEND = 0
    MEMORY = 1
    REDIS = 2
    JOURNAL = 3
    FLIGHT = 4  # an equal question was in flight already


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer that a caller gets for one item.

    payload: generate: the value as JSON; score: float64 [K], little-endian; embed: float32 [D]; empty unless OK.
    reason: one sentence, unless OK.
    tokens, dollars: the cost of this answer now; 0 if the backend was not asked.
    """

    status: Status
    payload: bytes = b""
    reason: str = ""
    source: Source = Source.BACKEND
    tokens: int = 0
    dollars: float = 0.0

    @property
    def ok(self) -> bool:
        return self.status is Status.OK

    @property
    def value(self) -> Any:
        """The task's value, or the reply's text for a raw prompt (a fresh object each time).

        Raises:
            ValueError: there is no value; the message is the reason.
        """
        if not self.ok:
            raise ValueError(f"{self.status.name.lower()}: {self.reason}")
        return json.loads(self.payload)

    @property
    def scores(self) -> NDArray[np.float64]:
        """float64 [K]: log-probability of each candidate."""
        return np.frombuffer(self.payload, "<f8")

    @property
    def vector(self) -> NDArray[np.float32]:
        """float32 [D]."""
        return np.frombuffer(self.payload, "<f4")


@dataclass(frozen=True, slots=True)
class Ask:
    """The items of one request; they share everything except their content.

    contents: for a task, its inputs as canonical JSON (from `tasks.contents`); otherwise prompts, or texts to embed.
    candidates: only for `score`: one set for all items, or one per item.
    parameters: None: the task's own, or the defaults.
    deadline: seconds from now.
    """

    verb: Verb
    contents: tuple[str, ...]
    task: str = ""
    candidates: tuple[tuple[str, ...], ...] = ()
    parameters: Parameters | None = None
    sample: int = 0
    lane: Lane = "interactive"
    caller: str = ""
    deadline: float = 60.0
