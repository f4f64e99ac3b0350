"""Memory is bounded and forgets the least recently used; flights are shared; a Redis that is away is a miss."""

import asyncio

import pytest
import redis.asyncio
from hypothesis import given
from hypothesis import strategies as st

from llm_service.pipeline.cache import ENTRY_BYTES, Flight, Memory, Shared
from llm_service.records import Answer, Source, Status
from tests.llm_service.fake_clock import FakeClock


def answer(size, status=Status.OK):
    return Answer(status, b"x" * size, tokens=5, dollars=1.0)


def test_what_memory_gives_cost_nothing():
    memory = Memory(1)
    memory.put(b"k", answer(10))
    known = memory.get(b"k")
    assert (known.payload, known.source, known.tokens, known.dollars) == (b"x" * 10, Source.MEMORY, 0, 0.0)
    assert memory.get(b"other") is None


@pytest.mark.parametrize("status", [s for s in Status if s not in (Status.OK, Status.MALFORMED)])
def test_failures_that_may_pass_are_not_remembered(status):
    memory = Memory(1)
    memory.put(b"k", answer(0, status))
    assert memory.get(b"k") is None


@given(st.lists(st.tuples(st.sampled_from("pg"), st.integers(0, 12), st.integers(0, 3000)), max_size=80))
def test_memory_is_an_lru_within_its_bound(steps):
    bound = 6000
    memory, model = Memory(bound / 2**20), {}
    for step, name, size in steps:
        key = bytes([name])
        if step == "p":
            memory.put(key, answer(size))
            model.pop(key, None)
            model[key] = size
            while sum(model.values()) + ENTRY_BYTES * len(model) > bound:
                del model[next(iter(model))]
        else:
            found = memory.get(key)
            assert (found is None) == (key not in model)
            if found:
                assert len(found.payload) == model[key]
                model[key] = model.pop(key)
        assert memory.bytes == sum(model.values()) + ENTRY_BYTES * len(model) <= bound


def test_equal_keys_share_one_flight_which_outlives_its_passengers():
    async def go():
        flight, gate, begun = Flight(), asyncio.Event(), []

        async def work():
            begun.append(1)
            await gate.wait()
            return "answer"

        first, leads = flight.join(b"k", work)
        second, follows = flight.join(b"k", work)
        assert first is second
        assert (leads, follows) == (True, False)
        passenger = asyncio.ensure_future(asyncio.shield(first))
        await asyncio.sleep(0)
        passenger.cancel()
        gate.set()
        assert await second == "answer"
        assert begun == [1]
        assert len(flight) == 0
        flight.join(b"k", work)
        await asyncio.sleep(0)
        assert begun == [1, 1]
        await flight.close()

    asyncio.run(go())


def test_a_redis_that_is_away_is_a_miss_and_is_not_asked_at_once_again():
    async def go():
        clock = FakeClock(auto=False)
        away = redis.asyncio.Redis(host="127.0.0.1", port=1, socket_connect_timeout=1)
        shared = Shared(away, 60, clock)
        assert await shared.get([b"a", b"b"]) == [None, None]
        shared.put(b"a", answer(1))
        await shared.flush()
        assert shared.errors == 1
        await clock.advance(2)
        assert await shared.get([b"a"]) == [None]
        assert shared.errors == 2
        await away.aclose()

    asyncio.run(go())


class FakeRedis:
    """Knows what was set; waits for a gate, or raises."""

    def __init__(self, gate=None, error=None):
        self.values, self.reads, self.gate, self.error = {}, [], gate, error

    async def mget(self, names):
        self.reads.append(names)
        if self.error:
            raise self.error
        if self.gate:
            await self.gate.wait()
        return [self.values.get(name) for name in names]


OK = bytes([Status.OK]) + b'"x"'


def test_who_asks_at_one_moment_shares_a_read_and_may_leave_it_to_the_others():
    async def go():
        fake = FakeRedis(asyncio.Event())
        fake.values = {b"cairn:answer:a": OK, b"cairn:answer:b": OK}
        shared = Shared(fake, 60, FakeClock(auto=False))
        leaves = asyncio.ensure_future(shared.get([b"a"]))
        stays = asyncio.ensure_future(shared.get([b"b", b"a", b"c"]))
        while not fake.reads:
            await asyncio.sleep(0)
        leaves.cancel()
        await asyncio.sleep(0)
        fake.gate.set()
        found = await asyncio.wait_for(stays, 5)
        assert [None if a is None else a.value for a in found] == ["x", "x", None]
        assert len(fake.reads) == 1

    asyncio.run(go())


def test_a_redis_that_hangs_is_a_miss():
    async def go():
        shared = Shared(FakeRedis(asyncio.Event()), 60, FakeClock())
        assert await asyncio.wait_for(shared.get([b"a"]), 5) == [None]
        assert await asyncio.wait_for(shared.get([b"a"]), 5) == [None]
        assert shared.errors == 1

    asyncio.run(go())


@pytest.mark.parametrize("error", [RuntimeError("a defect of the client"), ValueError("not a reply")], ids=repr)
def test_whatever_a_client_of_redis_raises_nobody_waits_for_ever(error):
    async def go():
        shared = Shared(FakeRedis(error=error), 60, FakeClock())
        assert await asyncio.wait_for(shared.get([b"a", b"b"]), 5) == [None, None]

    asyncio.run(go())
