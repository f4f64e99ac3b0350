"""llm: answers per second of the LLM service against one call for each question, and against batching alone.

The model is simulated: 50 ms and 2 ms for each item, one call at a time, like one GPU. 64 clients replay the captions
of 64 random players of GoToLocal and ask for goals at every step, each once it has its last answer. All sides render,
ask and parse in the same way, in one process. Answers are compared, and ours must call the model exactly once for each
unique question.

Limit of `mixed_stream`: the model's own time. A full batch of 64 takes 178 ms, so batching alone gives 360 answers/s.
With a share u of unique questions (here about 0.24), a service that pays for each once reaches 360 / u.
Limit of `hit` and `rpc`: Python, some 10 microseconds for the key and the record of a question, and about 250 for a
round trip of gRPC.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import envs
from benchmarks.local_client import Local
from benchmarks.measure import (
    Case,
    Options,
    OursFailed,
    Report,
    Row,
    assert_equal,
    child_environment,
    compare,
    end,
)
from llm_service import tasks
from llm_service.backends import Backend
from llm_service.client import connect
from llm_service.pipeline.batcher import BatchConfig, Batcher
from llm_service.pipeline.clock import Clock
from llm_service.pipeline.retry import Breaker, RetryConfig
from llm_service.records import Ask, Call, Reply
from llm_service.server.assembly import make_backend, start
from llm_service.settings import LLMConfig
from llm_service.world import World

CASES = ("mixed_stream", "hit/memory", "hit/grpc", "rpc/batched")
CLIENTS = 64
LATENCY_S, PER_ITEM_S = 0.05, 0.002
TASK = "suggest_goals"
PROMPTS = 512  # in one batched request
CHARACTERS = 800  # in each of its prompts
Answers = dict[str, Any]
"""Content -> value."""


def modelled(folder: Path) -> LLMConfig:
    """The scripted backend with a model's latency."""
    world = folder / "world.json"
    world.write_text(json.dumps(envs.knowledge("babyai")))
    own: dict[str, Any] = {"latency_s": LATENCY_S, "latency_per_item_s": PER_ITEM_S, "malformed": 0.0}
    own |= {"concurrency": 1, "max_batch": CLIENTS}
    return LLMConfig(world=str(world), consumers=0, **own)


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A temporary folder."""
    folder = Path(tempfile.mkdtemp(prefix="cairn-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def replayed(steps: int) -> list[tuple[str, ...]]:
    """For each client, the contents of its questions in order."""
    env, random = envs.make("babyai/GoToLocal", CLIENTS, seed=0), np.random.default_rng(0)
    seen: list[list[dict[str, Any]]] = []
    with contextlib.redirect_stdout(io.StringIO()):  # Minigrid prints the levels it rejects
        obs = env.begin()
        for _ in range(steps):
            seen.append([{"observation": sentences} for sentences in env.captions(obs)])
            obs = env.advance(random.integers(0, 7, CLIENTS)).obs
    return [tasks.contents(TASK, [step[i] for step in seen]) for i in range(CLIENTS)]


class Match:
    """Three ways to answer the same stream."""

    def __init__(self, steps: int, window_s: float) -> None:
        self.world = World.model_validate(envs.knowledge("babyai"))
        self.stream, self.window_s = replayed(steps), window_s
        self.answers: Answers = {}

    def ours(self) -> float:
        with scratch() as folder:
            return asyncio.run(self._ours(folder))

    async def _ours(self, folder: Path) -> float:
        config = modelled(folder)
        backend = Counted(make_backend(config))
        service = await start(config, folder, backend)

        async def reply(content: str) -> Any:
            (answer,) = await service.ask(Ask("generate", (content,), TASK))
            return answer.value

        rate = await self._play(reply)
        await service.close()
        if set(backend.calls.values()) != {1} or len(backend.calls) != self.asked:
            raise OursFailed(f"{sum(backend.calls.values())} calls for {self.asked} unique questions")
        return rate

    def one_call(self) -> float:
        return asyncio.run(self._without_cache(lambda backend: partial(_alone, backend, asyncio.Lock())))

    def batch_only(self) -> float:
        clock = Clock()
        return asyncio.run(
            self._without_cache(
                lambda backend: partial(_batched, Batcher(backend, BatchConfig(), Breaker(RetryConfig(), clock), clock))
            )
        )

    async def _without_cache(self, make: Callable[[Backend], Callable[[Call], Any]]) -> float:
        """Answers per second within the window; every question is a call."""
        with scratch() as folder:
            backend = Counted(make_backend(modelled(folder)))
        send, module = make(backend), tasks.task(TASK)

        async def reply(content: str) -> Any:
            inputs = module.Inputs.model_validate_json(content)
            (call,) = module.calls(inputs, self.world)
            return module.combine([module.parse(await send(call), inputs, 0, self.world)], inputs)

        return await self._play(reply)

    async def _play(self, reply: Callable[[str], Awaitable[Any]]) -> float:
        """Every client asks until the window ends. Answers per second."""
        answers: Answers = {}
        asked: set[str] = set()
        count = 0
        begun = time.perf_counter()
        ends = begun + self.window_s

        async def client(contents: Sequence[str]) -> None:
            nonlocal count
            for content in contents:
                if time.perf_counter() > ends:
                    return
                asked.add(content)
                answers[content] = await reply(content)
                count += 1
            raise OursFailed("a client has nothing left to ask: the stream is too short for this machine")

        await asyncio.gather(*[client(contents) for contents in self.stream])
        seconds = time.perf_counter() - begun
        self.asked, self.share = len(asked), len(asked) / count
        for content, value in answers.items():  # every side gives the same value to the same question
            assert_equal(f"answer to {content[:60]}", self.answers.setdefault(content, value), value)
        return count / seconds


async def _alone(backend: Backend, turn: asyncio.Lock, call: Call) -> Reply:
    async with turn:
        (reply,) = await backend.answer([call])
    assert isinstance(reply, Reply)
    return reply


async def _batched(batcher: Batcher, call: Call) -> Reply:
    return await batcher.submit(call, "interactive", "")


class Counted:
    """A backend that remembers how often each question was asked."""

    def __init__(self, backend: Any) -> None:
        self._backend, self.calls = backend, dict[str, int]()
        self._turn = asyncio.Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    async def answer(self, calls: Sequence[Call]) -> Any:
        async with self._turn:  # one call at a time, for all clients together
            for call in calls:
                key = call.key(self._backend.model)
                self.calls[key] = self.calls.get(key, 0) + 1
            return await self._backend.answer(calls)


class Hits:
    """Questions with answers in memory, through a client in this process and a client of a server in another."""

    def __init__(self, folder: Path, calls: int) -> None:
        self.calls = calls
        config = modelled(folder).model_copy(update={"world": ""})
        self.redis_answer = b"x" * 100
        self.local = Local(start(config, folder / "local"))
        service = folder / "served"
        command = [sys.executable, "-m", "llm_service.server", "--folder", str(service), "malformed=0", "consumers=0"]
        self.server = subprocess.Popen(command, env=child_environment(), stdout=subprocess.PIPE, text=True)
        assert self.server.stdout is not None
        if not self.server.stdout.readline().startswith("ready"):
            raise OursFailed("the server did not start")
        self.client = connect(service)
        from redis import Redis

        self.redis = Redis(unix_socket_path=str((folder / "local" / "redis" / "redis.sock").resolve()))
        self.redis.set("benchmark", self.redis_answer)
        self.prompts = [f"{i} " + "x" * (CHARACTERS - 5) for i in range(PROMPTS)]
        self.expected = [a.value for a in self.local.generate(self.prompts)]
        assert_equal("answers over gRPC", [a.value for a in self.client.generate(self.prompts)], self.expected)

    def close(self) -> None:
        self.client.close()
        self.local.close()
        self.redis.close()
        end(self.server)

    def memory(self) -> float:
        return self._per_second(lambda: self.local.generate(self.prompts[:1])[0].payload)

    def grpc(self) -> float:
        return self._per_second(lambda: self.client.generate(self.prompts[:1])[0].payload)

    def redis_get(self) -> float:
        return self._per_second(lambda: self.redis.get("benchmark"))

    def _per_second(self, ask: Callable[[], Any]) -> float:
        """1 / median latency."""
        times = []
        for _ in range(self.calls):
            begun = time.perf_counter()
            ask()
            times.append(time.perf_counter() - begun)
        return 1 / statistics.median(times)

    def batched(self) -> float:
        """Prompts per second of large requests; client and server share one core."""
        return self._on_one_core(lambda: self.client.generate(self.prompts), PROMPTS, max(3, self.calls // 50))

    def one_by_one(self) -> float:
        return self._on_one_core(lambda: self.client.generate(self.prompts[:1]), 1, self.calls)

    def _on_one_core(self, ask: Callable[[], Any], prompts: int, calls: int) -> float:
        cores = os.sched_getaffinity(0)
        processes = (0, self.server.pid)
        for process in processes:
            _pin(process, {min(cores)})
        try:
            begun = time.perf_counter()
            for _ in range(calls):
                answers = ask()
            seconds = time.perf_counter() - begun
        finally:
            for process in processes:
                _pin(process, cores)
        assert_equal("answers", [a.value for a in answers], self.expected[: len(answers)])
        return calls * prompts / seconds


def _pin(process: int, cores: set[int]) -> None:
    """All threads of a process; 0: this process."""
    for thread in os.listdir(f"/proc/{process or 'self'}/task"):
        with contextlib.suppress(ProcessLookupError):  # threads may end meanwhile
            os.sched_setaffinity(int(thread), cores)


def run(options: Options) -> Report:
    report = Report()
    if options.wants("mixed_stream"):
        match = Match(steps=200 if options.quick else 500, window_s=2.0 if options.quick else 5.0)
        shares: list[float] = []

        def ours() -> float:
            rate = match.ours()
            shares.append(match.share)
            return rate

        case = Case("llm", "mixed_stream", "answers", frozenset({"one_call", "batch_only"}))
        part = compare(case, ours, {"one_call": match.one_call, "batch_only": match.batch_only}, options)
        share = statistics.median(shares)
        note = f"{share:.0%} of the questions were unique: {1 / share:.1f}x is the limit over batching alone"
        report.add(Report([replace(row, note=note) for row in part.rows], part.skips))
    if not any(options.wants(case) for case in CASES[1:]):
        return report
    with scratch() as folder:
        hits = Hits(folder, calls=300 if options.quick else 2000)
        try:
            for name, ours, peers in (
                ("hit/memory", hits.memory, {"redis_get": hits.redis_get}),
                ("hit/grpc", hits.grpc, {"redis_get": hits.redis_get}),
                ("rpc/batched", hits.batched, {"one_prompt": hits.one_by_one}),
            ):
                if options.wants(name):
                    metric = "prompts" if name == "rpc/batched" else "per_second_at_p50"
                    part = compare(Case("llm", name, metric), ours, peers, options)
                    report.add(Report([replace(row, note=_bar(row)) for row in part.rows], part.skips))
        finally:
            hits.close()
    return report


def _bar(row: Row) -> str:
    if row.case == "rpc/batched":
        return f"{PROMPTS} prompts of {CHARACTERS} characters a request, client and server on one core"
    return f"p50 {1e6 / row.ours:.0f} us"
