"""Durable jobs while processes are killed, connections cut and memory runs out: whatever is accepted, ends, once."""

import asyncio
import itertools
import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest
from redis.exceptions import OutOfMemoryError

from llm_service.durable.consumer import Consumer
from llm_service.durable.queue import DurableConfig, Queue
from llm_service.durable.redis_server import RedisConfig, RedisServer, connect
from llm_service.errors import Unreachable
from llm_service.pipeline.clock import Clock
from llm_service.records import Answer, Ask, Status
from tests.llm_service.fake_backend import keys

ROOT = Path(__file__).resolve().parents[2]
NAMES = itertools.count()


@pytest.fixture
def make_server(tmp_path):
    made = []

    def make(**options):
        made.append(RedisServer(RedisConfig(folder=str(tmp_path / f"redis{len(made)}"), **options)))
        asyncio.run(made[-1].start())
        return made[-1]

    yield make
    for server in made:
        asyncio.run(server.stop())


@contextmanager
def worker(url, config, calls, name):
    """A consuming process; killed at the end if it lives."""
    command = [sys.executable, str(Path(__file__).with_name("durable_worker.py")), url, config.model_dump_json()]
    process = subprocess.Popen([*command, name, str(calls)], env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def kill(server):
    os.kill(server._process.pid, signal.SIGKILL)
    server._process.wait()


def run(scenario, limit_s=90):
    """Run it, within a time that is only reached when something hangs."""
    return asyncio.run(asyncio.wait_for(scenario, limit_s))


@asynccontextmanager
async def queue_at(url, config):
    async with connect(url) as redis:
        yield Queue(redis, config, Clock(), "service")


def ask(names):
    return Ask("generate", tuple(names), lane="durable")


def said(calls):
    """(who, content) of every item that a model was asked."""
    return [tuple(line.split(" ", 1)) for line in calls.read_text().splitlines()] if calls.exists() else []


async def until(condition):
    while not condition():
        await asyncio.sleep(0.01)


async def all_answered(queue, names):
    for name, found in zip(names, await queue.wait(names, 60), strict=True):
        assert found.status is Status.OK, (name, found)
        assert found.value == name.upper()


def test_a_killed_consumer_loses_nothing(make_server, tmp_path):
    server, calls = make_server(), tmp_path / "calls"
    config = DurableConfig(claim_idle_s=0.5, batch=16, block_s=0.05)
    names = [f"job{i}" for i in range(8)] + ["hold"] + [f"more{i}" for i in range(40)]

    async def scenario():
        async with queue_at(server.url, config) as queue:
            await queue.submit(ask(names), names)
            with worker(server.url, config, calls, "holder") as victim:
                await until(lambda: ("holder", "hold") in said(calls))
                assert (await queue.stats())["taken"] == 16
                victim.kill()
                victim.wait()
            with worker(server.url, config, calls, "heir") as heir:
                await all_answered(queue, names)
                heir.terminate()
                assert heir.wait(30) == 0
            assert await queue.stats() == {"waiting": 0, "taken": 0, "oldest": 0, "dead": 0, "answers": len(names)}

    run(scenario())
    asked = Counter(content for _, content in said(calls))
    assert set(asked) == set(names)
    assert max(asked.values()) == 2  # those that the killed one had in hand
    assert sum(asked.values()) == len(names) + 16


def test_a_terminated_consumer_hands_back_at_once(make_server, tmp_path):
    """`claim_idle_s` is an hour: the heir can only have them because they were released."""
    server, calls = make_server(), tmp_path / "calls"
    config = DurableConfig(claim_idle_s=3600.0, batch=4, block_s=0.05)

    async def scenario():
        stop = asyncio.Event()
        async with queue_at(server.url, config) as queue:
            await queue.submit(ask(["a", "b"]), ["a", "b"])

            async def never(given):
                stop.set()
                await asyncio.Event().wait()

            await Consumer(queue, never, keys, "leaver", config, Clock(), grace_s=0.01).run(stop)
            with worker(server.url, config, calls, "heir"):
                await all_answered(queue, ["a", "b"])

    run(scenario())


@pytest.mark.parametrize("kills", [2, pytest.param(12, marks=pytest.mark.slow)])
def test_a_killed_redis_loses_nothing_that_was_accepted(make_server, tmp_path, kills):
    server, calls = make_server(), tmp_path / "calls"
    config = DurableConfig(claim_idle_s=0.5, batch=8, block_s=0.05)

    async def scenario():
        accepted, numbers, over = [], itertools.count(), asyncio.Event()

        async def submitting(queue):
            while not over.is_set():
                names = [f"job{next(numbers)}" for _ in range(5)]
                try:
                    statuses = await queue.submit(ask(names), names)
                except Unreachable:
                    continue
                accepted.extend(name for name, status in zip(names, statuses, strict=True) if status is Status.PENDING)
                await asyncio.sleep(0.002)

        async def killing():
            for _ in range(kills):
                before = len(accepted)
                await until(lambda before=before: len(accepted) >= before + 100)
                kill(server)
                assert await server.ensure()
            over.set()

        async with queue_at(server.url, config) as queue:
            with worker(server.url, config, calls, "one"), worker(server.url, config, calls, "two"):
                await asyncio.gather(submitting(queue), killing())
                await all_answered(queue, accepted)
        assert len(accepted) == len(set(accepted)) >= 100 * kills

    run(scenario(), 200)


def test_full_memory_refuses_new_jobs_and_keeps_the_accepted(make_server):
    """First cached answers make room, then new jobs are refused; what was accepted is answered even at the limit."""
    server = make_server(memory_mb=6)
    config = DurableConfig(batch=32, block_s=0.01)

    async def scenario():
        async with connect(server.url) as redis:
            queue = Queue(redis, config, Clock(), "service")
            for i in range(200):
                await redis.set(f"cache:{i}", b"x" * 10_000, ex=1000)
            accepted, i = [], 0
            while True:
                name = f"job{i}"
                [status] = await queue.submit(Ask("generate", (name + " " * 5000,), lane="durable"), [name])
                if status is Status.BUSY:
                    break
                assert status is Status.PENDING
                accepted.append(name)
                i += 1
            assert len(accepted) > 300
            assert await redis.exists(*(f"cache:{i}" for i in range(200))) == 0  # they made room
            known, large = accepted[0], "large" * 10_000
            assert await queue.submit(ask([known, large]), [known, "new"]) == [Status.PENDING, Status.BUSY]
            assert (await queue.stats())["waiting"] == len(accepted)

            async def model(given):
                return [Answer(Status.OK, json.dumps(content.strip().upper()).encode()) for content in given.contents]

            stop = asyncio.Event()
            consuming = asyncio.create_task(Consumer(queue, model, keys, "one", config, Clock()).run(stop))
            await all_answered(queue, accepted)
            assert await queue.submit(ask(["new"]), ["new"]) == [Status.PENDING]
            await all_answered(queue, ["new"])
            stop.set()
            await consuming

    run(scenario())


def test_dead_letters_and_endings_work_at_full_memory(make_server):
    server = make_server(memory_mb=4)
    config = DurableConfig(block_s=0.01)

    async def scenario():
        async with connect(server.url) as redis:
            queue = Queue(redis, config, Clock(), "service")
            await queue.submit(ask(["a", "b"]), ["a", "b"])
            first, second = await queue.take("one", 2, 0.01)
            for size in (10_000, 100, 1):  # to the brim
                with suppress(OutOfMemoryError):
                    for i in itertools.count():
                        await redis.set(f"foreign{size}.{i}", b"x" * size)
            assert await queue.submit(ask(["c"]), ["c"]) == [Status.BUSY]
            assert await queue.finish(first, Answer(Status.OK, b'"' + b"long " * 10_000 + b'"'))
            assert await queue.bury(second, "no")
            assert [a.status for a in await queue.fetch(["a", "b", "c"])] == [Status.OK, Status.DEAD, Status.MISSING]

    run(scenario())


def test_a_job_that_kills_its_process_ends_in_the_dead_letters_and_the_others_are_answered(make_server, tmp_path):
    server, calls = make_server(), tmp_path / "calls"
    config = DurableConfig(claim_idle_s=0.2, deliveries=3, batch=8, block_s=0.05)
    names = [f"job{i}" for i in range(4)] + ["poison"] + [f"more{i}" for i in range(20)]
    good = [name for name in names if name != "poison"]

    async def scenario():
        deaths = 0
        async with queue_at(server.url, config) as queue:
            await queue.submit(ask(names), names)
            while (await queue.stats())["dead"] == 0:
                with worker(server.url, config, calls, f"mortal{deaths}") as process:
                    ended = asyncio.create_task(asyncio.to_thread(process.wait))
                    settled = asyncio.create_task(queue.wait(names, 60))
                    await asyncio.wait({ended, settled}, return_when=asyncio.FIRST_COMPLETED)
                    deaths += process.poll() == 1
                    settled.cancel()
            with worker(server.url, config, calls, "heir"):
                await all_answered(queue, good)
            [(_, letter)] = await queue._redis.xrevrange(queue._keys["dead"])
            assert letter[b"key"] == b"poison"
            reason = letter[b"reason"].decode()
            assert reason == "gave up after 3 deliveries: its consumers died or stopped answering"
            [found] = await queue.fetch(["poison"])
            assert (found.status, found.reason) == (Status.DEAD, reason)
        assert deaths == config.deliveries

    run(scenario())
    assert [content for _, content in said(calls)].count("poison") == config.deliveries


class Proxy:
    """A wire to Redis that cuts and delays: each way of each connection is cut after a number of pieces of its own."""

    def __init__(self, target, seed):
        self._target, self._random = target, random.Random(seed)
        self.cuts = 0
        self.calm = False

    @asynccontextmanager
    async def listening(self, path):
        server = await asyncio.start_unix_server(self._serve, path)
        async with server:
            yield f"unix://{path}"

    async def _serve(self, reader, writer):
        try:
            far_reader, far_writer = await asyncio.open_unix_connection(self._target)
        except OSError:
            writer.close()
            return
        ways = {
            asyncio.create_task(self._pass(reader, far_writer)),
            asyncio.create_task(self._pass(far_reader, writer)),
        }
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        await asyncio.wait(ways)
        writer.close()
        far_writer.close()

    async def _pass(self, reader, writer):
        pieces = self._random.randrange(1, 25)
        while piece := await reader.read(4096):
            if not self.calm:
                pieces -= 1
                if self._random.random() < 0.1:
                    await asyncio.sleep(self._random.random() * 0.02)
                if pieces <= 0:  # the start of it may arrive
                    self.cuts += 1
                    writer.write(piece[: self._random.randrange(len(piece))])
                    return
            writer.write(piece)
            await writer.drain()


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))])
def test_a_wire_that_cuts_and_delays_changes_nothing_in_the_books(make_server, seed):
    server = make_server()
    config = DurableConfig(claim_idle_s=0.3, batch=8, block_s=0.05, deliveries=50)
    proxy = Proxy(str(server._socket), seed)
    names = [f"job{i}" for i in range(200)]

    async def scenario():
        tellers = itertools.count()

        async def model(given):  # every answer is told from every other
            return [Answer(Status.OK, json.dumps([content, next(tellers)]).encode()) for content in given.contents]

        async def insist(call):
            while True:
                try:
                    return await call()
                except Unreachable:
                    continue

        stop = asyncio.Event()
        async with proxy.listening(str(server._socket.parent / "proxy.sock")) as url:
            clients = [connect(url, retries=1) for _ in range(4)]
            consumers = [
                asyncio.create_task(
                    Consumer(Queue(client, config, Clock(), "service"), model, keys, f"c{i}", config, Clock()).run(stop)
                )
                for i, client in enumerate(clients[:3])
            ]
            queue = Queue(clients[3], config, Clock(), "service")
            first = {}
            for i in range(0, len(names), 10):
                batch = names[i : i + 10]
                statuses = await insist(lambda batch=batch: queue.submit(ask(batch), batch))
                assert set(statuses) <= {Status.PENDING, Status.OK}  # OK: sent twice, and answered in between
                for name, found in zip(names, await insist(lambda: queue.fetch(names)), strict=True):
                    if found.status is Status.OK:
                        assert first.setdefault(name, found) == found  # an answer never changes
            await insist(lambda: queue.wait(names, 60))
            proxy.calm = True
            stop.set()
            await asyncio.gather(*consumers)
            for client in clients:
                await client.aclose()
        async with queue_at(server.url, config) as plain:
            found = await plain.fetch(names)
            assert [answer.value[0] for answer in found] == names
            assert all(first.get(name, answer) == answer for name, answer in zip(names, found, strict=True))
            assert await plain.stats() == {"waiting": 0, "taken": 0, "oldest": 0, "dead": 0, "answers": len(names)}
        assert proxy.cuts > 10

    run(scenario())


@pytest.mark.slow
def test_everything_at_once(make_server, tmp_path):
    """Consumers and Redis are killed at random while jobs arrive; at last every accepted job has its answer."""
    server, calls = make_server(), tmp_path / "calls"
    config = DurableConfig(claim_idle_s=0.5, batch=8, block_s=0.05, deliveries=1000)
    chance = random.Random(0)

    async def scenario():
        accepted, over = [], asyncio.Event()

        async def submitting(queue):
            for i in itertools.count():
                if over.is_set():
                    return
                names = [f"job{i}.{j}" for j in range(3)]
                try:
                    await queue.submit(ask(names), names)
                except Unreachable:
                    continue
                accepted.extend(names)
                await asyncio.sleep(0.003)

        async def killing():
            living = 0
            for i in range(15):
                with worker(server.url, config, calls, f"w{i}"):
                    seen = len(said(calls))
                    await until(lambda seen=seen: len(said(calls)) > seen + chance.randrange(100))
                    living += 1
                if chance.random() < 0.5:
                    kill(server)
                    assert await server.ensure()
            assert living == 15
            over.set()

        async with queue_at(server.url, config) as queue:
            await asyncio.gather(submitting(queue), killing())
            with worker(server.url, config, calls, "last"):
                await all_answered(queue, accepted)
            assert (await queue.stats())["answers"] >= len(accepted) > 0

    run(scenario(), 240)
