"""Reading replies of OpenAI-compatible servers: the error that an HTTP response means, and the content of a reply.

Pure functions over status, headers and text, so that every branch can be tested without a network. Messages repeat
nothing from a server except error codes that look like identifiers: its texts may contain the prompt or the key.
"""

from __future__ import annotations

import email.utils
import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from llm_service.errors import (
    BackendError,
    ContextTooLong,
    Garbled,
    Overloaded,
    QuotaExhausted,
    RateLimited,
    Refused,
    Unauthorized,
    Unsupported,
)
from llm_service.records import Token, Turn

QUOTA_CODES = {"insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "insufficient_balance"}
QUOTA_WORDS = (
    *QUOTA_CODES,
    "exceeded your current quota",
    "billing hard limit",
    "insufficient balance",
    "credit balance",
)
CONTEXT_CODES = {"context_length_exceeded", "exceed_context_size_error"}
CONTEXT_WORDS = (
    *CONTEXT_CODES,
    "maximum context length",
    "maximum model length",
    "max_model_len",
    "context length is only",
    "context size",
    "context window",
    "exceeds the context length",
    "prompt is too long",
)
"""Phrases of OpenAI, vLLM, llama.cpp, Ollama and proxies, in lower case."""


def refusal(
    status: int, headers: Mapping[str, str], text: str, server: str, key: str = "llm.api_key_env"
) -> BackendError:
    """The error for a response with an HTTP status of 300 or more.

    Args:
        headers: names in any case if the mapping ignores case, otherwise in lower case.
        text: the body, in any form.
        server: its name, for the message.
        key: where the key comes from, for the message.
    """
    codes = _codes(text)
    said = text[:10_000].lower()
    wait = retry_after(headers)
    known = sorted(code for code in codes if re.fullmatch(r"[a-z][a-z_]{2,40}", code))
    where = f"{server} answers {status}" + (f" ({', '.join(known)})" if known else "")
    # Some servers send the same words and a wait for a limit per minute: then it is not the quota.
    spent = status in (403, 429) and wait is None and any(words in said for words in QUOTA_WORDS)
    if status == 402 or codes & QUOTA_CODES or spent:
        return QuotaExhausted(f"{where}: the account has no credit left; top it up, or raise its limit")
    if status in (401, 403):
        return Unauthorized(f"{where}: the key is missing or wrong, or may not use this model; check {key}")
    if status == 429:
        return RateLimited(f"{where}: too many requests", wait)
    if status in (400, 413, 422, 500) and (codes & CONTEXT_CODES or any(words in said for words in CONTEXT_WORDS)):
        return ContextTooLong(f"{where}: prompt and reply do not fit the model's context; ask for less")
    if status in (408, 409, 425) or status >= 500:
        return Overloaded(f"{where}: it cannot answer now", wait)
    if 300 <= status < 400:
        return Refused(f"{where}: it redirects, which is not followed; correct llm.base_url")
    hint = "; check llm.model and llm.base_url" if status == 404 else "; check llm.model and llm.body"
    return Refused(f"{where}: it does not accept this request{hint}")


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a server asks to wait: `retry-after-ms`, or `retry-after` in seconds or as a date; None if neither.

    A date counts from the server's own `date` header if there is one, so a wrong clock does not matter.
    """
    for name, scale in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) / scale
        except (KeyError, ValueError):
            continue
        if math.isfinite(seconds):
            return max(0.0, seconds)
    try:
        until = email.utils.parsedate_to_datetime(headers["retry-after"])
        sent = headers.get("date")
        now = email.utils.parsedate_to_datetime(sent) if sent else datetime.now(UTC)
        return max(0.0, (until - now).total_seconds())
    except (KeyError, ValueError, TypeError):
        return None


def document(body: bytes | bytearray, server: str, key: str = "llm.api_key_env") -> dict[str, Any]:
    """The JSON object of a successful response.

    Raises:
        Garbled: it is not a JSON object, or contains NaN or infinity.
        BackendError: it is an error, which some proxies send with status 200.
    """
    try:
        record = json.loads(body, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise Garbled(f"{server} sent {len(body)} bytes that are not JSON") from None
    if not isinstance(record, dict):
        raise Garbled(f"{server} sent JSON that is not an object")
    error = record.get("error")
    if error and "choices" not in record:
        code = error.get("code") if isinstance(error, dict) else None
        status = code if isinstance(code, int) and 400 <= code < 600 else 500
        raise refusal(status, {}, json.dumps(record), server, key)
    return record


def pick(record: Any, *path: str | int, kind: type | tuple[type, ...]) -> Any:
    """The value at a path in a reply. Raises Garbled if it is missing or has another type."""
    value = record
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            raise Garbled(f"the reply has no {'.'.join(map(str, path))}") from None
    if not isinstance(value, kind) or isinstance(value, bool):
        raise Garbled(f"the reply's {'.'.join(map(str, path))} has the wrong type")
    return value


def number(value: Any) -> float:
    """A finite number from a reply. Raises Garbled if it is not one."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not -1e9 < value < 1e9:
        raise Garbled("the reply has no number where one is expected")
    return float(value)


def usage(record: dict[str, Any], name: str, estimate: int) -> int:
    """A token count; the estimate if the server does not give one."""
    counts = record.get("usage")
    said = counts.get(name) if isinstance(counts, dict) else None
    return said if type(said) is int and 0 <= said < 2**40 else estimate


def tokens(choice: dict[str, Any], server: str) -> tuple[Token, ...]:
    """The tokens of a choice of a chat or a completion, with log-probabilities.

    Raises:
        Unsupported: there are none.
        Garbled: they are not as the protocol has them.
    """
    told = choice.get("logprobs")
    if not isinstance(told, dict):
        raise Unsupported(f"{server} returns no log-probabilities")
    if "content" in told:
        listed = pick(told, "content", kind=list)
        return tuple(Token(*_named(t), tuple(_named(o) for o in pick(t, "top_logprobs", kind=list))) for t in listed)
    names, values = pick(told, "tokens", kind=list), pick(told, "token_logprobs", kind=list)
    best = told.get("top_logprobs") or [None] * len(names)
    if not isinstance(best, list) or not len(names) == len(values) == len(best):
        raise Garbled(f"{server} sent lists of tokens and of log-probabilities that differ in length")
    return tuple(
        Token(pick(name, kind=str), None if value is None else number(value), _ranked(top))
        for name, value, top in zip(names, values, best, strict=True)
    )


def _named(token: Any) -> tuple[str, float]:
    return pick(token, "token", kind=str), number(pick(token, "logprob", kind=(int, float)))


def _ranked(top: Any) -> tuple[tuple[str, float], ...]:
    named = [(name, number(value)) for name, value in top.items()] if isinstance(top, dict) else []
    return tuple(sorted(named, key=lambda pair: -pair[1]))


def tail(tokens: Sequence[str], logprobs: Sequence[Any], candidate: str) -> tuple[float, int]:
    """Sum of the log-probabilities of the last tokens, which contain the candidate's characters, and their number.

    Counting starts at the end, so tokens that a server adds before the prompt do not matter. A token with the end of
    the prompt and the beginning of the candidate counts as the candidate's.

    Raises:
        Unsupported: the tokens do not end in the candidate: the server does not echo.
        Garbled: a probability is missing.
    """
    if len(tokens) != len(logprobs):
        raise Garbled(f"the reply has {len(tokens)} tokens and {len(logprobs)} log-probabilities")
    text, used = "", 0
    while len(text) < len(candidate) and used < len(tokens):
        used += 1
        text = tokens[-used] + text
    if not text.endswith(candidate):
        raise Unsupported("the server does not echo the prompt as it was sent, so candidates cannot be scored")
    return sum(number(logprob) for logprob in logprobs[len(logprobs) - used :]), used


def first_tokens(ranked: Sequence[tuple[str, float]], candidates: Sequence[str]) -> tuple[float, ...]:
    """Log-probability of the first token of each candidate, from the most probable first tokens of a reply.

    The first token is the longest listed one that the candidate begins with; variants with a leading space are summed.
    A candidate without any gets the lowest listed log-probability, an upper bound.

    Raises:
        Unsupported: two candidates have the same first token, or none of them is listed.
    """
    variants: dict[str, float] = {}
    for token, logprob in ranked:
        if word := token.strip():
            variants[word] = float(np.logaddexp(variants.get(word, -np.inf), min(logprob, 0.0)))
    starts = [candidate.lstrip() for candidate in candidates]
    found = [max((w for w in variants if start.startswith(w)), key=len, default=None) for start in starts]
    if not any(found):
        raise Unsupported(f"none of the candidates begins with one of the {len(ranked)} most probable tokens")
    if any(word and sum(start.startswith(word) for start in starts) > 1 for word in found):
        raise Unsupported(
            "two candidates begin with the same token, and a chat server returns only the first token's probability: "
            "use candidates with different first letters, or llm.api=completions"
        )
    return tuple(variants[word] if word else min(variants.values()) for word in found)


def plain(turns: Sequence[Turn]) -> str:
    """A conversation as one text, for completions: a single turn unchanged, several turns with their roles."""
    if len(turns) == 1:
        return turns[0][1]
    return "".join(f"{role.capitalize()}: {text}\n\n" for role, text in turns) + "Assistant:"


def count(text: str) -> int:
    """Number of tokens of a text, an upper estimate: a third of its characters, more for characters beyond ASCII."""
    return math.ceil(len(text) / 3) + len(text.encode("utf-8", "surrogatepass")) - len(text)


def _codes(text: str) -> set[str]:
    """Values of `code` and `type` in an error's JSON, in lower case."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return set()
    record = record[0] if isinstance(record, list) and record else record
    error = record.get("error", record) if isinstance(record, dict) else None
    values = [error.get("code"), error.get("type")] if isinstance(error, dict) else []
    return {value.lower() for value in values if isinstance(value, str)}


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is not JSON")
