"""An OpenAI server on loopback that fails according to a script, for testing clients against real sockets.

    POST /v1/chat/completions, /v1/completions (echo and logprobs too), /v1/embeddings     take one step of the script
    GET  /v1/models                                                                         always answers
    GET  /billed     {"requests": 4, "total": 3, "calls": {KEY: TIMES}}: number of requests, and every reply that a
                     provider would have charged for, by its Idempotency-Key; cut replies are charged too

Its model is `llm_service/backends/faulty`, which explains the grammar of scripts. Refusals repeat the key and the
prompt, as some real servers do, so that tests can check that a client does not pass them on.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import struct
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llm_service.backends.faulty import HUGE_BYTES, Step, embedding, logprob, logprobs, spoken, steps, tokens
from llm_service.errors import UsageError

FIRST_WORDS = (
    "yes",
    "no",
    "Yes",
    "No",
    " yes",
    " no",
    "true",
    "false",
    "first",
    "second",
    "equal",
    "neither",
    "A",
    "B",
)
"""What a reply may begin with, beside what it does begin with."""
MOST_BODY_BYTES = 64_000_000


@dataclass(frozen=True)
class Request:
    """What arrived."""

    method: str
    path: str
    query: str
    headers: dict[str, str]  # names in lower case
    body: Any


class FaultyServer:
    """Belongs to one event loop. `seen` keeps the last thousand requests.

    Args:
        latency_s, per_item_s: time of a request, and additional time for each text in it.
        serial: one request at a time, like one GPU.
    """

    def __init__(
        self, script: Sequence[str] = ("ok",), latency_s: float = 0.0, per_item_s: float = 0.0, serial: bool = False
    ) -> None:
        self._steps = steps(script)
        self._latency_s, self._per_item_s = latency_s, per_item_s
        self._gpu = asyncio.Semaphore(1 if serial else 1_000_000)
        self._server: asyncio.Server | None = None
        self.requests = 0
        self.billed: Counter[str] = Counter()
        self.seen: deque[Request] = deque(maxlen=1000)

    async def start(self, port: int = 0) -> str:
        """Listen on loopback, port 0: any free one. Returns the base URL."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port, backlog=1024)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    async def close(self) -> None:
        if self._server:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (request := await _read(reader)) and await self._respond(request, reader, writer):
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError, ValueError):
            pass  # the client left, or does not speak HTTP: the connection is closed
        finally:
            writer.close()

    async def _respond(self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer; whether the connection stays open."""
        self.seen.append(request)
        if request.method == "GET":
            return _send(writer, *self._look_up(request.path))
        answer = {"chat/completions": _chat, "completions": _completions, "embeddings": _embeddings}.get(
            request.path.removeprefix("/v1/")
        )
        if answer is None or not isinstance(request.body, dict):
            return _send(writer, 404, {"error": {"message": "there is nothing here", "code": "not_found"}})
        self.requests += 1
        step = next(self._steps)
        if step.status is not None:
            return _send(writer, step.status, _refusal(step, request), step.headers)
        if step.action == "dead":
            _reset(writer)
            return False
        if step.action == "hang":
            await reader.read(1)  # until the client leaves
            return False
        async with self._gpu:
            texts = request.body.get("input", request.body.get("prompt"))
            items = len(texts) if isinstance(texts, list) else 1
            slow = float(step.argument) if step.action == "slow" else 0.0
            await asyncio.sleep(self._latency_s + self._per_item_s * items + slow)
        try:
            content = answer(request.body, step)
        except (KeyError, TypeError, IndexError):
            return _send(writer, 400, {"error": {"message": "a field is missing", "code": "invalid_request"}})
        self.billed[request.headers.get("idempotency-key", "")] += 1
        if step.action == "garbage":
            return _send(writer, 200, step.body)
        if step.action == "half":
            whole = _http(200, content)
            writer.write(whole[: -len(json.dumps(content)) // 2])
            return False
        return _send(writer, 200, content)

    def _look_up(self, path: str) -> tuple[int, Any]:
        if path == "/v1/models":
            return 200, {"object": "list", "data": [{"id": "faulty", "object": "model"}]}
        if path == "/billed":
            return 200, {"requests": self.requests, "total": self.billed.total(), "calls": dict(self.billed)}
        return 404, {"error": {"message": "there is nothing here", "code": "not_found"}}


# ---- answers --------------------------------------------------------------------------------------------------------


def _refusal(step: Step, request: Request) -> Any:
    body = json.loads(step.body)
    key = request.headers.get("authorization", "")
    body["error"]["message"] += f" You sent {key} and {json.dumps(request.body)[:2000]}"
    return body


def _chat(body: dict[str, Any], step: Step) -> dict[str, Any]:
    prompt = "".join(str(m["content"]) for m in body["messages"])
    asked = str(body["messages"][-1]["content"])
    choice, written = _choice(body, step, asked)
    content = choice.pop("text")
    if body.get("logprobs"):
        first = (tokens(content) or [""])[0]
        ranked = sorted(((logprob(prompt, t), t) for t in {first, *FIRST_WORDS}), reverse=True)
        top = [{"token": t, "logprob": p} for p, t in ranked[: body.get("top_logprobs", 0)]]
        choice["logprobs"] = {"content": [{"token": first, "logprob": logprob(prompt, first), "top_logprobs": top}]}
    choice["message"] = {"role": "assistant", "content": content}
    return {"object": "chat.completion", "choices": [choice], "usage": _usage(len(tokens(prompt)), written)}


def _completions(body: dict[str, Any], step: Step) -> dict[str, Any]:
    prompts = body["prompt"] if isinstance(body["prompt"], list) else [body["prompt"]]
    choices, read, written = [], 0, 0
    for index, prompt in enumerate(prompts):
        pieces = tokens(prompt)
        read += len(pieces)
        if body.get("echo"):
            echoed = {"tokens": pieces, "token_logprobs": [None, *logprobs(prompt)[1:]]}
            choice = {"text": prompt, "finish_reason": "length", "logprobs": echoed}
        else:
            choice, count = _choice(body, step, prompt)
            written += count
        choices.append({**choice, "index": index})
    return {"object": "text_completion", "choices": choices[::-1], "usage": _usage(read, written)}


def _choice(body: dict[str, Any], step: Step, asked: str) -> tuple[dict[str, Any], int]:
    """One choice, and how many tokens it has."""
    stop = body.get("stop") or []
    longest = body.get("max_completion_tokens", body.get("max_tokens", 256))
    text = step.argument if step.action == "ok" and step.argument else asked
    said, complete = spoken(text, [stop] if isinstance(stop, str) else stop, longest)
    if step.action == "huge":
        said = "x" * HUGE_BYTES
    reason = "content_filter" if step.action == "filtered" else "stop" if complete else "length"
    return {"index": 0, "text": said, "finish_reason": reason}, len(tokens(said[:100_000]))


def _embeddings(body: dict[str, Any], step: Step) -> dict[str, Any]:
    texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
    rows = [{"index": i, "object": "embedding", "embedding": embedding(t).tolist()} for i, t in enumerate(texts)]
    if step.action == "huge":
        rows[0]["embedding"] = [1.0] * (HUGE_BYTES // 5)
    return {"object": "list", "data": rows[::-1], "usage": _usage(sum(len(tokens(t)) for t in texts), 0)}


def _usage(read: int, written: int) -> dict[str, int]:
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


# ---- HTTP -----------------------------------------------------------------------------------------------------------


async def _read(reader: asyncio.StreamReader) -> Request | None:
    """The next request; None when the client has no more."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    length = int(headers.get("content-length", "0"))
    if not 0 <= length <= MOST_BODY_BYTES:
        raise ValueError("the body is too long")
    body = await reader.readexactly(length)
    path, _, query = target.partition("?")
    return Request(method, path, query, headers, json.loads(body) if body else None)


def _http(status: int, content: Any, headers: dict[str, str] | None = None) -> bytes:
    body = (content if isinstance(content, str) else json.dumps(content)).encode()
    lines = [f"HTTP/1.1 {status} Scripted", "Content-Type: application/json", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def _send(writer: asyncio.StreamWriter, status: int, content: Any, headers: dict[str, str] | None = None) -> bool:
    writer.write(_http(status, content, headers))  # one write: two would wait for the client's delayed acknowledgement
    return True


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close so that the client sees a reset, as when a process dies with data unread."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def main() -> None:
    """Serve until killed; the first line of output is the base URL."""
    parser = argparse.ArgumentParser(prog="python -m llm_service.backends.faulty", description="A fake that fails.")
    parser.add_argument("--port", type=int, default=0, help="on loopback; 0: any free one")
    parser.add_argument("--script", nargs="+", default=["ok"], help="what each call does, such as 429:2 half*3 ok")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds that each request takes")
    parser.add_argument("--per-item", type=float, default=0.0, help="seconds more for each text in it")
    parser.add_argument("--serial", action="store_true", help="one request at a time, like one GPU")
    words = parser.parse_args()

    async def serve() -> None:
        server = FaultyServer(words.script, words.latency, words.per_item, words.serial)
        print(await server.start(words.port), flush=True)
        await asyncio.Event().wait()

    try:
        asyncio.run(serve())
    except UsageError as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        pass
