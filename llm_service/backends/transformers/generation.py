"""Sampling noise, stopping criteria and what callers hear, for `generate` of a model in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from llm_service.records import Call, Token

WINDOW = 4
"""Number of tokens before a token that decide how it is spelled: spaces and letters of several bytes."""


class Noise:
    """Adds Gumbel noise from the call's key to each row, so that its most probable token is a sample (Gumbel's trick).

    argmax(logits / T + g) with g standard Gumbel is distributed as softmax(logits / T).
    """

    def __init__(self, calls: Sequence[Call]) -> None:
        self._temperature = calls[0].parameters.temperature
        self._generators = [torch.Generator().manual_seed(int(call.key("")[:15], 16)) for call in calls]

    def __call__(self, ids: Any, logits: Any) -> Any:
        uniform = torch.stack([torch.rand(logits.shape[1], generator=g) for g in self._generators])
        gumbel = -torch.log(-torch.log(uniform.clamp(1e-20, 1 - 1e-7)))
        return logits.float() / self._temperature + gumbel.to(logits.device)


class End:
    """Ends a row at an end token or when its text contains a stop text, and remembers where.

    ending: whether the service ends; then all rows end at once.
    """

    def __init__(
        self,
        tokenizer: Any,
        network: Any,
        begin: int,
        rows: int,
        stop: tuple[str, ...],
        ending: Callable[[], bool] = lambda: False,
    ) -> None:
        ends = network.generation_config.eos_token_id
        self._ends = set(ends) if isinstance(ends, list) else {ends}
        self._tokenizer, self._begin, self._stop, self._ending = tokenizer, begin, stop, ending
        self._lengths: list[int | None] = [None] * rows

    def __call__(self, ids: Any, logits: Any, **_: Any) -> Any:
        for row, length in enumerate(self._lengths):
            if length is None:
                count = ids.shape[1] - self._begin
                stopped = self._stop and any(stop in self.text(ids[row], count) for stop in self._stop)
                if stopped or int(ids[row, -1]) in self._ends:
                    self._lengths[row] = count
        over = self._ending()
        return torch.tensor([over or length is not None for length in self._lengths], device=ids.device)

    def ended(self, row: int) -> bool:
        """Whether the row has ended by itself."""
        return self._lengths[row] is not None

    def count(self, row: int, length: int) -> int:
        """Number of generated tokens in a row of this length, including the end token."""
        known = self._lengths[row]
        return length - self._begin if known is None else known

    def text(self, ids: Any, count: int) -> str:
        return str(self._tokenizer.decode(self.generated(ids, count), skip_special_tokens=True))

    def generated(self, ids: Any, count: int) -> list[int]:
        """The first generated tokens of a row."""
        tokens: list[int] = ids[self._begin : self._begin + count].tolist()
        return tokens

    def is_end(self, token: int) -> bool:
        return token in self._ends


class Heard:
    """Log-probabilities of generated tokens where a call asks for them, and replies told while they grow.

    It is two hooks of `generate`: `before`, the first logits processor, sees the model's own logits; the object itself,
    a stopping criterion after `end` that never stops a row, sees which tokens were chosen.
    """

    def __init__(self, calls: Sequence[Call], tokenizer: Any, end: End) -> None:
        self._calls, self._tokenizer, self._end = calls, tokenizer, end
        self.tokens: list[list[Token]] = [[] for _ in calls]
        self._over = [False] * len(calls)
        self._logits: Any = None

    def before(self, ids: Any, logits: Any) -> Any:
        self._logits = logits
        return logits

    def __call__(self, ids: Any, logits: Any, **_: Any) -> Any:
        for row, call in enumerate(self._calls):
            if not self._over[row] and (call.top is not None or call.heard):
                self._hear(row, call, ids)
        return torch.zeros(len(self._calls), dtype=torch.bool, device=ids.device)

    def _hear(self, row: int, call: Call, ids: Any) -> None:
        self._over[row] = self._end.ended(row)
        *before, chosen = self._end.generated(ids[row], self._end.count(row, ids.shape[1]))
        if call.top is not None and not self._end.is_end(chosen):
            logprobs = self._logits[row].float().log_softmax(-1)
            self.tokens[row].append(token(self._tokenizer, before, chosen, logprobs, call.top))
        if call.heard:
            text = self._end.text(ids[row], len(before) + 1)
            certain = cut(text, call.parameters.stop)[: len(text) - uncertain(text, call.parameters.stop)]
            call.heard(certain, within(self.tokens[row], len(certain)))


def token(tokenizer: Any, before: Sequence[int], chosen: int, logprobs: Any, top: int) -> Token:
    """A token with its log-probability and the most probable ones. logprobs: [vocabulary], after the tokens before."""
    values, others = logprobs.topk(min(top, len(logprobs)))
    ranked = zip(others.tolist(), values.tolist(), strict=True)
    best = tuple((spelled(tokenizer, before, other), value) for other, value in ranked)
    return Token(spelled(tokenizer, before, chosen), float(logprobs[chosen]), best)


def spelled(tokenizer: Any, before: Sequence[int], chosen: int) -> str:
    """What a token adds to the text of the tokens before it; half a letter is U+FFFD."""
    window = list(before[-WINDOW:])
    head = str(tokenizer.decode(window, skip_special_tokens=True)) if window else ""
    whole = str(tokenizer.decode([*window, chosen], skip_special_tokens=True))
    alone = str(tokenizer.decode([chosen], skip_special_tokens=False))
    return (whole.removeprefix(head) if whole.startswith(head) else "") or alone


def uncertain(text: str, stop: tuple[str, ...]) -> int:
    """Number of last characters that may still change or be cut: half a letter, the beginning of a stop text."""
    begun = [n for word in stop for n in range(1, len(word)) if text.endswith(word[:n])]
    return max([*begun, len(text) - len(text.rstrip("\ufffd"))])


def within(tokens: Sequence[Token], length: int) -> tuple[Token, ...]:
    """The tokens that begin before this many characters."""
    at, kept = 0, []
    for one in tokens:
        if at >= length:
            break
        kept.append(one)
        at += len(one.text)
    return tuple(kept)


def cut(text: str, stop: tuple[str, ...]) -> str:
    """The text before the first stop text."""
    return text[: min((at for at in map(text.find, stop) if at >= 0), default=len(text))]
