"""Any server with an OpenAI-compatible API: OpenAI's own, Azure's, vLLM, SGLang, llama.cpp, Ollama, a proxy.

    generate   chat completions, or plain completions with `api: completions`
    score      completions: the server echoes prompt and candidate with log-probabilities, and the values of the
               candidate's tokens are summed; chat: only the candidate's first token, if the first tokens differ
    embed      one request for a whole batch

`llm_service.pipeline` does the retries: here a call is one request, and the key of a call is its Idempotency-Key.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import SplitResult

import numpy as np

from llm_service.backends import Backend
from llm_service.backends.openai.config import Config, address, endpoint, origin, secret, secrets
from llm_service.backends.openai.protocol import (
    count,
    document,
    first_tokens,
    number,
    pick,
    plain,
    refusal,
    tail,
    tokens,
    usage,
)
from llm_service.config import this_machine
from llm_service.errors import (
    BackendError,
    ContextTooLong,
    Garbled,
    Refused,
    TimedOut,
    Unauthorized,
    Unreachable,
    Unsupported,
    UsageError,
)
from llm_service.records import Call, Option, Parameters, Reply, Verb, canonical, digest
from llm_service.world import World

OPENAI = "https://api.openai.com/v1"
TURN_TOKENS = 8
"""Tokens that a chat template adds to a turn; an upper estimate."""
TOP = 20
"""Number of most probable first tokens that a chat server can return."""


class OpenAI(Backend):
    """One server and model. Belongs to one event loop."""

    def __init__(self, config: Config, url: SplitResult, key: str | None) -> None:
        import openai

        self._config = config
        self._server = url.netloc
        self._local = this_machine(url.hostname or "")
        self._hosted = endpoint(url) == OPENAI
        self._key_from = origin(config, key is not None)
        # Everything that changes answers is part of the name, because the name is part of every key.
        extra = {"api": config.api, "body": config.body, "embedding_model": config.embedding_model}
        usual = {"api": "chat", "body": {}, "embedding_model": ""}
        self.model = config.model if self._hosted else f"{config.model}@{endpoint(url)}"
        self.model += "" if extra == usual else f"+{digest(canonical(extra))[:8]}"
        self.verbs: frozenset[Verb] = frozenset(
            ("generate", "score", "embed") if config.embedding_model else ("generate", "score")
        )
        chat = config.api == "chat"
        self.options: frozenset[Option] = frozenset({"top"} if chat else {"top", "raw", "echo"})
        self.max_batch = config.max_batch
        self.concurrency = max(1, config.concurrency // config.max_batch)
        prices = (config.dollars_per_million_prompt_tokens, config.dollars_per_million_completion_tokens)
        self.paid = not self._local or any(prices)
        self._prices = (prices[0] or 0.0, prices[1] or 0.0)  # an unknown price counts as 0
        self._headers: dict[str, Any] = {} if key else {"Authorization": openai.Omit()}
        self._client: Any = openai.AsyncOpenAI(
            api_key=key or "none",
            base_url=url.geturl(),
            max_retries=0,
            default_headers=config.headers,
            default_query=config.query,
            http_client=openai.DefaultAsyncHttpxClient(
                timeout=openai.Timeout(config.timeout_s, connect=min(config.timeout_s, 10.0)),
                follow_redirects=False,  # the key and the prompts go only to the configured server
                trust_env=not self._local,  # no proxy for loopback
                event_hooks={"response": [self._raise_for_status]},
            ),
        )

    async def answer(self, calls: Sequence[Call]) -> list[Reply | BackendError]:
        """See `Backend`. Generate and score calls are sent at once, one request each."""
        if calls[0].verb == "embed":
            return await self._embed(calls)
        one = self._generate if calls[0].verb == "generate" else self._score
        return list(await asyncio.gather(*(_caught(one, call) for call in calls)))

    def estimate(self, call: Call) -> tuple[int, int]:
        prompt = sum(count(text) + TURN_TOKENS for _, text in call.turns)
        if call.verb == "embed":
            return prompt, 0
        if call.verb == "generate":
            return prompt, call.parameters.max_tokens
        if self._config.api == "chat":
            return prompt, 1
        return sum(prompt + count(candidate) for candidate in call.candidates), 0

    def price(self, prompt_tokens: int, completion_tokens: int) -> float:
        return (prompt_tokens * self._prices[0] + completion_tokens * self._prices[1]) / 1e6

    async def probe(self) -> Call | None:
        """List the models, which is free; if the server has no list, one token must be paid for."""
        try:
            await self._request(self._client.models, "list", {}, None)
        except Refused:
            return Call("generate", (("user", "."),), parameters=Parameters(max_tokens=1))
        return None

    async def close(self) -> None:
        await self._client.close()

    # ---- verbs ------------------------------------------------------------------------------------------------------

    async def _generate(self, call: Call) -> Reply:
        p, prompt = call.parameters, self.estimate(call)[0]
        if self._config.context is not None and prompt + p.max_tokens > self._config.context:
            raise ContextTooLong(
                f"the prompt of about {prompt} tokens and a reply of {p.max_tokens} do not fit llm.context="
                f"{self._config.context}"
            )
        fields: dict[str, Any] = {"temperature": p.temperature, self._longest: p.max_tokens, "stop": p.stop or None}
        if p.temperature > 0:  # equal questions with different sample numbers must get different samples
            fields["seed"] = int(digest(str(p.seed), str(call.sample))[:7], 16)
        if call.top is not None and self._config.api == "chat":
            fields |= {"logprobs": True, "top_logprobs": call.top}
        elif call.top is not None:
            fields |= {"logprobs": call.top, "echo": call.echo}
        record = await self._complete(call, fields)
        choice = pick(record, "choices", 0, kind=dict)
        if choice.get("finish_reason") == "content_filter":
            raise Refused(f"{self._server}'s content filter stopped the reply")
        if self._config.api == "completions":
            text = pick(choice, "text", kind=str).removeprefix(plain(call.turns) if call.echo else "")
        else:
            message = pick(choice, "message", kind=dict)
            if message.get("refusal") and not message.get("content"):
                raise Refused(f"{self._server}'s model refuses to answer")
            text = pick(message, "content", kind=(str, type(None))) or ""
        text = text.encode("utf-8", "replace").decode()  # JSON can hold half a surrogate pair, UTF-8 cannot
        written = usage(record, "completion_tokens", min(count(text), p.max_tokens))
        read, cut = usage(record, "prompt_tokens", prompt), choice.get("finish_reason") == "length"
        told = () if call.top is None else tokens(choice, self._server)
        return Reply(text, prompt_tokens=read, completion_tokens=written, tokens=told, cut=cut)

    async def _score(self, call: Call) -> Reply:
        if self._config.api == "chat":
            return await self._score_first_tokens(call)
        prompt = plain(call.turns)
        fields = {"max_tokens": 0, "echo": True, "logprobs": 1, "temperature": 0.0}
        record = await self._complete(call, fields, [prompt + candidate for candidate in call.candidates])
        choices = _in_order(pick(record, "choices", kind=list), len(call.candidates))
        scores = []
        for choice, candidate in zip(choices, call.candidates, strict=True):
            if not isinstance(choice.get("logprobs"), dict):
                raise Unsupported(f"{self._server} returns no log-probabilities of the prompt, so it cannot score")
            listed = [pick(token, kind=str) for token in pick(choice, "logprobs", "tokens", kind=list)]
            total, used = tail(listed, pick(choice, "logprobs", "token_logprobs", kind=list), candidate)
            scores.append(total / max(used, 1) if call.parameters.normalise == "tokens" else total)
        return self._scored(call, record, scores)

    async def _score_first_tokens(self, call: Call) -> Reply:
        fields = {"temperature": 0.0, self._longest: 1, "logprobs": True, "top_logprobs": TOP}
        record = await self._complete(call, fields)
        choice = pick(record, "choices", 0, kind=dict)
        told = choice.get("logprobs")
        if not (isinstance(told, dict) and told.get("content")):
            raise Unsupported(f"{self._server} returns no log-probabilities, so it cannot score")
        listed = pick(told, "content", 0, "top_logprobs", kind=list)
        ranked = [(pick(t, "token", kind=str), number(pick(t, "logprob", kind=(int, float)))) for t in listed]
        return self._scored(call, record, first_tokens(ranked, call.candidates))

    def _scored(self, call: Call, record: dict[str, Any], scores: Sequence[float]) -> Reply:
        prompt, completion = self.estimate(call)
        return Reply(
            scores=tuple(scores),
            prompt_tokens=usage(record, "prompt_tokens", prompt),
            completion_tokens=usage(record, "completion_tokens", completion),
        )

    async def _embed(self, calls: Sequence[Call]) -> list[Reply | BackendError]:
        fields = {
            "model": self._config.embedding_model,
            "input": [plain(call.turns) for call in calls],
            "encoding_format": "float",
        }
        key = digest(*(call.key(self.model) for call in calls))
        try:
            record = await self._request(self._client.embeddings, "create", fields, key)
        except Refused as error:
            if len(calls) == 1:
                return [error]
            # One text may be the cause: the others must not suffer for it.
            return [(await self._embed([call]))[0] for call in calls]
        rows = _in_order(pick(record, "data", kind=list), len(calls))
        total = usage(record, "prompt_tokens", sum(self.estimate(call)[0] for call in calls))
        shares = [total * (i + 1) // len(calls) - total * i // len(calls) for i in range(len(calls))]
        return [
            Reply(vector=_unit(pick(row, "embedding", kind=list)), prompt_tokens=share)
            for row, share in zip(rows, shares, strict=True)
        ]

    # ---- requests ---------------------------------------------------------------------------------------------------

    @property
    def _longest(self) -> str:
        """The field for the maximum reply length: OpenAI renamed it for chat, other servers use the old name."""
        return "max_completion_tokens" if self._config.api == "chat" and self._hosted else "max_tokens"

    async def _complete(self, call: Call, fields: dict[str, Any], prompts: list[str] | None = None) -> dict[str, Any]:
        chat = self._config.api == "chat"
        resource = self._client.chat.completions if chat else self._client.completions
        asked: dict[str, Any] = {"model": self._config.model}
        if chat:
            asked["messages"] = [{"role": role, "content": text} for role, text in call.turns]
        else:
            asked["prompt"] = prompts or plain(call.turns)
        extra = {name: value for name, value in {**fields, **self._config.body}.items() if value is not None}
        return await self._request(resource, "create", {**asked, "extra_body": extra}, call.key(self.model))

    async def _request(self, resource: Any, name: str, fields: dict[str, Any], key: str | None) -> dict[str, Any]:
        """Send one request and read its reply, within the limits of time and size.

        Raises:
            BackendError: a subclass for each kind of error.
        """
        import openai

        try:
            headers, query, body_secrets = secrets(self._config)
        except UsageError as error:  # a variable was removed since the start
            raise Unauthorized(str(error)) from None
        more: dict[str, Any] = {"extra_headers": self._headers | headers, "extra_query": query}
        if key:
            more["extra_headers"] |= {"Idempotency-Key": key}
        if name == "create":  # otherwise there is no body
            more["extra_body"] = fields.get("extra_body", {}) | body_secrets
        send = getattr(resource.with_streaming_response, name)
        try:
            async with asyncio.timeout(self._config.timeout_s), send(**fields | more) as response:
                body = await self._read(response.iter_bytes())
        except openai.APIConnectionError as error:
            raise self._not_connected(error) from None
        except TimeoutError:
            raise TimedOut(self._late) from None
        except UnicodeEncodeError:
            raise Refused("the prompt holds half a surrogate pair, which cannot be sent as UTF-8") from None
        if len(body) > self._config.max_reply_bytes:
            raise Garbled(f"{self._server} sent more than {self._config.max_reply_bytes} bytes")
        return document(body, self._server, self._key_from)

    async def _raise_for_status(self, response: Any) -> None:
        """Raise the error for a reply's status as soon as its headers arrive; the client would read the whole body."""
        if not response.is_success:
            body = await self._read(response.aiter_bytes())
            text = body.decode("utf-8", "replace")
            raise refusal(response.status_code, response.headers, text, self._server, self._key_from)

    async def _read(self, pieces: AsyncIterator[bytes]) -> bytearray:
        """A reply's body, decoded as it arrives; reading stops soon after `max_reply_bytes`.

        Raises:
            Garbled, TimedOut: the body was cut, or stalled.
        """
        import httpx2

        body = bytearray()
        try:
            async for piece in pieces:  # at most 1 MiB each, whatever the compression
                body += piece
                if len(body) > self._config.max_reply_bytes:
                    break
        except httpx2.TimeoutException:
            raise TimedOut(self._late) from None
        except (httpx2.HTTPError, httpx2.StreamError, OSError):
            raise Garbled(f"{self._server} cut its reply after {len(body)} bytes") from None
        return body

    @property
    def _late(self) -> str:
        return f"{self._server} did not answer in {self._config.timeout_s:g} s"

    def _not_connected(self, error: Exception) -> BackendError:
        cause = type(error.__cause__).__name__
        failure: BackendError
        if "Timeout" in cause:
            failure = TimedOut(self._late)
        elif cause == "ConnectError":
            failure = Unreachable(f"no connection to {self._server}: is the server running, and llm.base_url right?")
        else:
            failure = Unreachable(f"{self._server} cut the connection before it answered")
        failure.maybe_billed = cause not in ("ConnectError", "ConnectTimeout", "PoolTimeout")  # then nothing was sent
        return failure


def make(config: Config, world: World) -> OpenAI:
    """See `llm_service.backends`. Raises UsageError: no model, no key, or an address that a key must not be sent to."""
    if not config.model:
        raise UsageError("llm.model is missing: name the model that the server should use")
    if (config.dollars_per_million_prompt_tokens is None) != (config.dollars_per_million_completion_tokens is None):
        raise UsageError("llm: one price is missing: set dollars_per_million_prompt_tokens and ..._completion_tokens")
    url = address(config.base_url or OPENAI)
    local = this_machine(url.hostname or "")
    others = any(secrets(config))
    key = None
    if os.environ.get(config.api_key_env) or not (local or others):
        key = secret(config.api_key_env, "llm.api_key_env")
    if url.scheme == "http" and not local and not config.allow_plain_http:
        raise UsageError(
            f"llm.base_url: http://{url.netloc} would send the key and the prompts unencrypted: use https, or set "
            "llm.allow_plain_http=true in a network that you trust"
        )
    if others:
        for name in ("openai", "httpx2"):  # below the level of warnings they log whole requests
            logging.getLogger(name).setLevel(logging.WARNING)
    return OpenAI(config, url, key)


async def _caught(one: Callable[[Call], Awaitable[Reply]], call: Call) -> Reply | BackendError:
    try:
        return await one(call)
    except BackendError as error:
        return error


def _in_order(rows: list[Any], expected: int) -> list[dict[str, Any]]:
    """Rows by their `index`: servers may send them in any order."""
    if sorted(pick(row, "index", kind=int) for row in rows) != list(range(expected)):
        raise Garbled(f"the reply has {len(rows)} entries for {expected} questions")
    return sorted(rows, key=lambda row: int(row["index"]))


def _unit(values: list[Any]) -> np.ndarray[Any, np.dtype[np.float32]]:
    try:
        vector = np.array(values, np.float64)
    except (ValueError, TypeError, OverflowError):
        raise Garbled("an embedding is not a list of numbers") from None
    length = float(np.linalg.norm(vector)) if vector.ndim == 1 else 0.0
    if not (np.isfinite(length) and length > 0):
        raise Garbled("an embedding is the zero vector")
    return (vector / length).astype(np.float32)
