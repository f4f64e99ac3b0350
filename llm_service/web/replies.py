"""Replies and errors as OpenAI's API writes them: whole, or as the chunks of a stream."""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llm_service.errors import ContextTooLong, RateLimited, ServiceError, TimedOut, Unsupported
from llm_service.records import Reply, Status, Token
from llm_service.web.http import Refused, busy

LEAST = -9999.0
"""What OpenAI writes for a log-probability of minus infinity, which JSON cannot hold."""
STATUSES = {
    Status.REFUSED: 400,
    Status.MALFORMED: 502,
    Status.AWAY: 503,
    Status.EXPIRED: 504,
    Status.MISSING: 404,
    Status.DEAD: 502,
}


def refused(status: Status, sentence: str) -> Refused:
    """The refusal for an item without an answer."""
    if status is Status.BUSY:
        return busy(sentence)
    if status is Status.BUDGET:
        headers = {"x-should-retry": "false"}  # a client that tries again would wait for nothing
        return Refused(429, sentence, "insufficient_quota", code="insufficient_quota", headers=headers)
    number = STATUSES.get(status, 500)
    kind = "server_error" if number >= 500 else "invalid_request_error"
    return Refused(number, sentence, kind, code=status.name.lower())


def refusal(error: ServiceError) -> Refused:
    """The refusal for an error of the service. Its messages never contain a secret."""
    if isinstance(error, ContextTooLong):
        return Refused(400, str(error), param="messages", code="context_length_exceeded")
    if isinstance(error, Unsupported):
        return Refused(400, str(error), code="unsupported_parameter")
    if isinstance(error, RateLimited):
        wait = {"Retry-After": str(max(1, round(error.retry_after or 1)))}
        return Refused(503, str(error), "server_error", code="overloaded", headers=wait)
    if isinstance(error, TimedOut):
        return Refused(504, str(error), "server_error", code="timeout")
    return refused(error.status, str(error))


class Shape:
    """The JSON of one request's choices.

    Args:
        chat: a chat, otherwise a completion.
        model: the name that the client used.
        prompts: what is repeated before each choice; "" for most.
        logprobs: whether tokens are told.
    """

    def __init__(self, chat: bool, model: str, prompts: Sequence[str], logprobs: bool) -> None:
        self._chat, self._prompts, self._logprobs = chat, prompts, logprobs
        self._head = {
            "id": ("chatcmpl-" if chat else "cmpl-") + secrets.token_hex(12),
            "created": int(time.time()),
            "model": model,
        }

    def whole(self, replies: Sequence[Reply]) -> dict[str, Any]:
        """The reply that is not a stream."""
        choices = [self._choice(i, reply.text, reply.tokens, 0, _finish(reply)) for i, reply in enumerate(replies)]
        for choice in choices if self._chat else ():
            choice["message"] = {"role": "assistant", **choice.pop("delta"), "refusal": None}
        kind = "chat.completion" if self._chat else "text_completion"
        return {**self._head, "object": kind, "choices": choices, "usage": usage(replies)}

    def chunk(self, i: int, text: str, tokens: Sequence[Token], at: int, reply: Reply | None = None) -> dict[str, Any]:
        """The next piece of choice i, which begins at this character; `reply` if it is the last."""
        choice = self._choice(i, text, tokens, at, _finish(reply) if reply else None)
        if self._chat and not at:
            choice["delta"] = {"role": "assistant", **choice["delta"]}
        return self._chunk([choice])

    def counted(self, replies: Sequence[Reply]) -> dict[str, Any]:
        """The chunk that counts tokens."""
        return {**self._chunk([]), "usage": usage(replies)}

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        kind = "chat.completion.chunk" if self._chat else "text_completion"
        return {**self._head, "object": kind, "choices": choices}

    def _choice(self, i: int, text: str, tokens: Sequence[Token], at: int, finish: str | None) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": i, "finish_reason": finish, "logprobs": None}
        if self._chat:
            content = [_chat_token(token) for token in tokens]
            told = {"content": content, "refusal": None} if self._logprobs else None
            return {**choice, "delta": {"content": text}, "logprobs": told}
        prompt = "" if at else self._prompts[i]
        return {**choice, "text": prompt + text, "logprobs": _tokens(tokens, at) if self._logprobs else None}


def _finish(reply: Reply) -> str:
    return "length" if reply.cut else "stop"


def _number(logprob: float) -> float:
    return max(logprob, LEAST)


def _chat_token(token: Token) -> dict[str, Any]:
    assert token.logprob is not None, "only the first token of a prompt has none"
    top = [_one(text, logprob) for text, logprob in token.top]
    return {**_one(token.text, token.logprob), "top_logprobs": top}


def _one(text: str, logprob: float) -> dict[str, Any]:
    spelled = None if "\ufffd" in text else list(text.encode("utf-8", "surrogatepass"))
    return {"token": text, "logprob": _number(logprob), "bytes": spelled}


def _tokens(tokens: Sequence[Token], at: int) -> dict[str, Any]:
    places = [at]
    for token in tokens:
        places.append(places[-1] + len(token.text))
    return {
        "tokens": [token.text for token in tokens],
        "token_logprobs": [None if t.logprob is None else _number(t.logprob) for t in tokens],
        "top_logprobs": [None if t.logprob is None else {x: _number(p) for x, p in reversed(t.top)} for t in tokens],
        "text_offset": places[:-1],
    }


def usage(replies: Sequence[Reply]) -> dict[str, int]:
    """Token counts of a request. A prompt counts once for each choice, because the model reads it as often."""
    prompt, completion = sum(r.prompt_tokens for r in replies), sum(r.completion_tokens for r in replies)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def embeddings(model: str, vectors: Sequence[NDArray[np.float32]], packed: bool, tokens: int) -> dict[str, Any]:
    """The reply with vectors, float32 [D] each: as lists of numbers, or as base64 of their little-endian bytes."""

    def written(vector: NDArray[np.float32]) -> Any:
        return base64.b64encode(vector.astype("<f4").tobytes()).decode() if packed else vector.tolist()

    rows = [{"object": "embedding", "index": i, "embedding": written(v)} for i, v in enumerate(vectors)]
    counts = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": rows, "model": model, "usage": counts}
