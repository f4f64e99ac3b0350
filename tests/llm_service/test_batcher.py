"""Which calls go to the backend together, and in what order."""

import asyncio

import pytest
from pydantic import ValidationError

from llm_service.errors import Away, Busy, Garbled, Overloaded, TimedOut
from llm_service.pipeline.batcher import BatchConfig, Batcher
from llm_service.pipeline.retry import Breaker, RetryConfig
from llm_service.records import Call, Parameters, Reply
from tests.llm_service.fake_backend import FakeBackend
from tests.llm_service.fake_clock import FakeClock


def call(text, **parameters):
    return Call("generate", (("user", text),), parameters=Parameters(**parameters))


def batcher_of(backend, config=None, clock=None, retry=None):
    clock = clock or FakeClock()
    return Batcher(backend, config or BatchConfig(), Breaker(retry or RetryConfig(), clock), clock)


def replies_to(backend, calls, config=None, **options):
    """Submit (call, lane, caller) triples at the same moment; their replies, failures as values."""

    async def go():
        batcher = batcher_of(backend, config, **options)
        jobs = [asyncio.ensure_future(batcher.submit(*triple)) for triple in calls]
        replies = await asyncio.wait_for(asyncio.gather(*jobs, return_exceptions=True), 10)
        await batcher.close()
        return replies

    return asyncio.run(go())


def test_calls_that_come_together_go_together_and_keep_their_replies():
    backend = FakeBackend()
    replies = replies_to(backend, [(call(f"q{i}"), "interactive", f"c{i}") for i in range(50)])
    assert [r.text for r in replies] == [f"Q{i}" for i in range(50)]
    assert len(backend.batches) == 1


def test_a_batch_is_never_larger_than_the_backend_or_the_configuration_allows():
    backend = FakeBackend(max_batch=8)
    replies_to(backend, [(call(f"q{i}"), "interactive", "c") for i in range(30)])
    assert max(map(len, backend.batches)) == 8
    backend = FakeBackend(max_batch=8)
    replies_to(backend, [(call(f"q{i}"), "interactive", "c") for i in range(30)], BatchConfig(size=5))
    assert max(map(len, backend.batches)) == 5


def test_a_lone_call_goes_out_when_its_patience_ends():
    clock, backend = FakeClock(), FakeBackend()
    began = clock.now()
    (reply,) = replies_to(backend, [(call("alone"), "interactive", "c")], BatchConfig(wait_s=3.0), clock=clock)
    assert reply.text == "ALONE"
    assert clock.now() - began == pytest.approx(3.0)


def test_it_remembers_how_long_calls_waited_before_they_were_sent():
    async def go():
        clock = FakeClock()
        batcher = batcher_of(FakeBackend(), BatchConfig(wait_s=3.0, patience=0.0), clock=clock)
        await batcher.submit(call("alone"), "interactive", "c")
        await batcher.close()
        return list(batcher.waits)

    assert asyncio.run(go()) == [pytest.approx(3.0)]


def test_a_full_batch_does_not_wait():
    clock, backend = FakeClock(), FakeBackend(max_batch=4)
    began = clock.now()
    replies_to(backend, [(call(f"q{i}"), "interactive", "c") for i in range(4)], BatchConfig(wait_s=1e6), clock=clock)
    assert clock.now() - began < 1e6


def test_callers_that_ask_again_become_one_batch_however_they_began():
    """Without patience for those who were just answered, two halves would take turns for ever."""

    class Slow(FakeBackend):
        async def answer(self, calls):
            await clock.sleep(1.0)
            return await super().answer(calls)

    async def go():
        batcher = batcher_of(backend, BatchConfig(wait_s=0.01, patience=0.1), clock=clock)

        async def caller(number):
            await clock.sleep(0.5 * (number % 2))
            for turn in range(6):
                await batcher.submit(call(f"{number} {turn}"), "interactive", f"{number}")
                await clock.sleep(0.001 * number)

        await asyncio.gather(*map(caller, range(8)))
        await batcher.close()

    clock = FakeClock()
    backend = Slow()
    asyncio.run(go())
    sizes = [len(batch) for batch in backend.batches]
    assert sizes[0] == 4
    assert sizes[2:7] == [8] * 5 or sizes[1:6] == [8] * 5


def test_one_batch_has_one_kind():
    backend = FakeBackend()
    calls = [(call(f"q{i}", temperature=float(i % 3)), "interactive", "c") for i in range(30)]
    replies_to(backend, calls)
    for batch in backend.batches:
        assert len({c.parameters for c in batch}) == 1
    assert sorted(map(len, backend.batches)) == [10, 10, 10]


def test_lengths_in_a_batch_differ_by_less_than_the_ratio():
    backend = FakeBackend(bucket_ratio=1.5, max_batch=16)
    calls = [(call("x" * (10 + 7 * i)), "interactive", "c") for i in range(40)]
    replies_to(backend, calls)
    assert sum(map(len, backend.batches)) == 40
    for batch in backend.batches:
        lengths = [c.characters for c in batch]
        assert max(lengths) <= 1.5 * min(lengths) + 1
    assert len(backend.batches) < 12


def test_a_flood_of_jobs_slows_an_episode_by_a_known_factor_only():
    backend = FakeBackend(max_batch=1)
    flood = [(call(f"job {i}"), "durable", "labels") for i in range(100)]
    episode = [(call(f"step {i}"), "interactive", "actor") for i in range(8)]
    replies_to(backend, flood + episode, BatchConfig(durable_share=0.2))
    last = backend.asked.index("step 7")
    assert last <= 10  # 8 steps and a fifth of the turns for jobs
    assert sum(text.startswith("job") for text in backend.asked[:last]) >= 1  # and jobs are not starved either


def test_callers_take_turns_inside_a_lane():
    backend = FakeBackend(max_batch=4)
    greedy = [(call(f"greedy {i}"), "interactive", "greedy") for i in range(40)]
    modest = [(call("modest"), "interactive", "modest")]
    replies_to(backend, greedy + modest)
    assert "modest" in backend.asked[:4]


def test_too_many_waiting_calls_are_refused():
    replies = replies_to(FakeBackend(), [(call(f"q{i}"), "interactive", "c") for i in range(5)], BatchConfig(waiting=3))
    assert [isinstance(r, Busy) for r in replies] == [False, False, False, True, True]


def test_one_failed_item_does_not_touch_its_neighbours():
    replies = replies_to(
        FakeBackend({"bad": Overloaded("503")}), [(call(t), "interactive", "c") for t in ("a", "bad", "b")]
    )
    assert [getattr(r, "text", type(r)) for r in replies] == ["A", Overloaded, "B"]


def test_a_defect_of_a_backend_reaches_every_caller_of_the_batch():
    replies = replies_to(FakeBackend({"bad": KeyError("x")}), [(call(t), "interactive", "c") for t in ("a", "bad")])
    assert all(isinstance(r, Garbled) and "KeyError" in str(r) for r in replies)


def test_a_defect_of_a_backend_does_not_tell_one_caller_of_anothers_prompt(caplog):
    (reply,) = replies_to(FakeBackend({"bad": ValueError("a secret prompt")}), [(call("bad"), "interactive", "c")])
    assert "secret" not in str(reply) + caplog.text


def test_what_forbids_a_call_reaches_its_caller_only():
    async def go():
        batcher, sent = batcher_of(FakeBackend()), []

        async def forbidden():
            raise KeyError("no")

        async def allowed():
            sent.append(1)

        jobs = [
            asyncio.ensure_future(batcher.submit(call(f"q{i}"), "interactive", "c", forbidden if i == 1 else allowed))
            for i in range(3)
        ]
        replies = await asyncio.wait_for(asyncio.gather(*jobs, return_exceptions=True), 10)
        assert [type(r) for r in replies] == [Reply, KeyError, Reply]
        assert (await batcher.submit(call("q3"), "interactive", "c")).text == "Q3"
        await batcher.close()

    asyncio.run(go())


def test_nobody_waits_for_ever_for_a_batcher_that_closes():
    async def go():
        backend = FakeBackend(max_batch=1)
        backend.gate = asyncio.Event()
        batcher = batcher_of(backend)
        jobs = [asyncio.ensure_future(batcher.submit(call(f"q{i}"), "interactive", "c")) for i in range(3)]
        while not backend.batches:
            await asyncio.sleep(0)
        await batcher.close()
        outcomes = await asyncio.wait_for(asyncio.gather(*jobs, return_exceptions=True), 10)
        assert [type(o) for o in outcomes] == [asyncio.CancelledError, Away, Away]
        with pytest.raises(Away):
            await asyncio.wait_for(batcher.submit(call("late"), "interactive", "c"), 10)

    asyncio.run(go())


@pytest.mark.parametrize(
    "field",
    [{"size": 0}, {"size": -1}, {"durable_share": 1.0}, {"durable_share": 0.0}, {"timeout_s": 0}, {"waiting": 0}],
)
def test_a_configuration_that_could_not_work_is_refused(field):
    with pytest.raises(ValidationError):
        BatchConfig(**field)


def test_too_few_replies_are_noticed():
    class Short(FakeBackend):
        async def answer(self, calls):
            return (await super().answer(calls))[1:]

    replies = replies_to(Short(), [(call(t), "interactive", "c") for t in ("a", "b")])
    assert all(isinstance(r, Garbled) for r in replies)


def test_a_batch_that_hangs_is_given_up():
    class Hanging(FakeBackend):
        async def answer(self, calls):
            await asyncio.Event().wait()

    (reply,) = replies_to(Hanging(), [(call("a"), "interactive", "c")], BatchConfig(timeout_s=30.0))
    assert isinstance(reply, TimedOut)


def test_after_enough_failed_batches_the_backend_is_left_in_peace():
    backend = FakeBackend({"bad": Overloaded("503")})

    async def go():
        batcher = batcher_of(backend, retry=RetryConfig(failures=3))
        outcomes = []
        for _ in range(6):
            try:
                await asyncio.wait_for(batcher.submit(call("bad"), "interactive", "c"), 10)
            except (Overloaded, Away) as error:
                outcomes.append(type(error))
        await batcher.close()
        return outcomes

    assert asyncio.run(go()) == [Overloaded] * 3 + [Away] * 3
    assert len(backend.batches) == 3
