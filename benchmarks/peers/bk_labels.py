"""Preferences from a model of 1 s a call, with limited calls in flight: our durable lane, and the published rounds.

A pair is asked in both orders, so it is two calls on both sides. The model is the scripted one: its labels follow rules
that we wrote, the same on both sides.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import envs
from benchmarks.measure import OursFailed, assert_equal
from benchmarks.peers.bk_play import Play, segments
from llm_service import tasks
from llm_service.records import Ask, Call, Reply
from llm_service.server.assembly import make_backend, start
from llm_service.settings import LLMConfig
from llm_service.world import World

TASK = "label_preference"
LATENCY_S, PAUSE_S = 1.0, 2.0
CONSUMERS = 4
"""Consumers of our lane: while one waits for the last of its jobs, the others continue."""


class Bounded:
    """A backend that counts its calls: all so far, in flight now, and most in flight at once."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self.now = self.most = self.calls = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    async def answer(self, calls: Sequence[Call]) -> Any:
        self.now += len(calls)
        self.calls += len(calls)
        self.most = max(self.most, self.now)
        try:
            return await self._backend.answer(calls)
        finally:
            self.now -= len(calls)


class Match:
    """Both sides on the same pairs of segments of five actions.

    Args:
        most: limit of calls in flight.
    """

    def __init__(self, play: Play, pairs: int, most: int, latency_s: float = LATENCY_S, pause_s: float = PAUSE_S):
        told = segments(play, 2 * pairs, actions=5)
        items = [{"first": one, "second": other} for one, other in zip(told[::2], told[1::2], strict=False)]
        self.contents = tasks.contents(TASK, items)
        self.most, self.latency_s, self.pause_s = most, latency_s, pause_s
        self.world = World.model_validate(envs.knowledge("babyai"))
        self.labels: list[Any] = []

    def _config(self, folder: Path) -> LLMConfig:
        world = folder / "world.json"
        world.write_text(json.dumps(envs.knowledge("babyai")))
        own: dict[str, Any] = {"latency_s": self.latency_s, "malformed": 0.0}
        own |= {"concurrency": self.most, "max_batch": 1}
        return LLMConfig(world=str(world), consumers=CONSUMERS, **own)

    def ours(self) -> float:
        """Labels a second by a service that has seen none of the pairs.

        Raises:
            OursFailed: too many calls at once, or a wrong number of calls.
        """
        with tempfile.TemporaryDirectory(prefix="cairn-bench-") as folder:
            return asyncio.run(self._ours(Path(folder)))

    async def _ours(self, folder: Path) -> float:
        config = self._config(folder)
        backend = Bounded(make_backend(config))
        service = await start(config, folder, backend)
        try:
            begun = time.perf_counter()
            keys, _ = await service.submit(Ask("generate", self.contents, TASK))
            answers = await service.fetch(keys, 600.0)
            seconds = time.perf_counter() - begun
        finally:
            await service.close()
        if backend.most > self.most or backend.calls != 2 * len(self.contents):
            raise OursFailed(f"{backend.calls} calls for {len(self.contents)} pairs, {backend.most} at once")
        self.labels = [answer.value for answer in answers]
        return len(keys) / seconds

    def barrier(self) -> float:
        """As published: start `most` calls at once, wait for all, sleep.

        Raises:
            DifferentOutputs: a label differs from ours.
        """
        with tempfile.TemporaryDirectory(prefix="cairn-bench-") as folder:
            backend = Bounded(make_backend(self._config(Path(folder))))
        begun = time.perf_counter()
        labels = asyncio.run(self._barrier(backend))
        seconds = time.perf_counter() - begun
        for i, (ours, theirs) in enumerate(zip(self.labels, labels, strict=True)):
            assert_equal(f"label of pair {i}", ours, theirs)
        return len(labels) / seconds

    async def _barrier(self, backend: Any) -> list[Any]:
        module, labels = tasks.task(TASK), []
        inputs = [module.Inputs.model_validate_json(content) for content in self.contents]
        pairs = self.most // 2
        for first in range(0, len(inputs), pairs):
            some = inputs[first : first + pairs]
            found = await asyncio.gather(*[self._both(backend, module, pair) for pair in some])
            labels += found
            if first + pairs < len(inputs):
                await asyncio.sleep(self.pause_s)
        return labels

    async def _both(self, backend: Any, module: Any, pair: Any) -> Any:
        calls = module.calls(pair, self.world)
        replies = await asyncio.gather(*[backend.answer([call]) for call in calls])
        verdicts = []
        for index, (reply,) in enumerate(replies):
            assert isinstance(reply, Reply)
            verdicts.append(module.parse(reply, pair, index, self.world))
        return module.combine(verdicts, pair)
