"""The durable queue and its consumer, on a real Redis."""

import asyncio
import itertools
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from pydantic import ValidationError

from llm_service.durable.consumer import Consumer
from llm_service.durable.letters import DeadLetters
from llm_service.durable.queue import DurableConfig, Queue
from llm_service.durable.redis_server import RedisConfig, RedisServer
from llm_service.errors import Away, Unreachable
from llm_service.pipeline.clock import Clock
from llm_service.records import Answer, Ask, Parameters, Source, Status
from tests.llm_service.fake_backend import keys
from tests.llm_service.fake_clock import FakeClock

NAMES = itertools.count()


def on_queue(server, scenario, clock=None, **options):
    """Run `scenario(queue, config)` on a queue of its own."""
    config = DurableConfig(**{"name": f"q{next(NAMES)}", "block_s": 0.01} | options)

    async def run():
        async with server.connect() as redis:
            return await asyncio.wait_for(scenario(Queue(redis, config, clock or Clock(), "service"), config), 60)

    return asyncio.run(run())


def ask(*contents, **fields):
    return Ask(**{"verb": "generate", "contents": contents, "lane": "durable"} | fields)


def answer(text, **fields):
    return Answer(Status.OK, json.dumps(text).encode(), **fields)


def statuses(answers):
    return [each.status for each in answers]


async def dead_letters(queue):
    """Fields of the dead letters, the newest first."""
    return [fields for _, fields in await queue._redis.xrevrange(queue._keys["dead"])]


# --- the queue


def test_an_item_goes_from_submit_to_its_answer(server):
    async def scenario(queue, config):
        parameters = Parameters(temperature=0.5, max_tokens=7, stop=("\n", "é"), seed=3, normalise="tokens")
        given = ask("a", "b", task="goal", parameters=parameters, sample=4, caller="me", verb="score",
                    candidates=(("x", "y"), ("z",)))  # fmt: skip
        assert await queue.submit(given, ["ka", "kb"]) == [Status.PENDING] * 2
        assert statuses(await queue.fetch(["kb", "none", "ka"])) == [Status.PENDING, Status.MISSING, Status.PENDING]
        jobs = await queue.take("one", 10, 0.01)
        assert [(j.key, j.content, j.candidates, j.deliveries) for j in jobs] == [
            ("ka", "a", ("x", "y"), 1),
            ("kb", "b", ("z",), 1),
        ]
        for job in jobs:
            assert (job.verb, job.task, job.parameters) == ("score", "goal", parameters)
            assert (job.sample, job.caller) == (4, "me")
        stored = Answer(Status.OK, bytes(range(256)), source=Source.JOURNAL, tokens=12, dollars=0.25)
        assert await queue.finish(jobs[0], stored)
        assert await queue.fetch(["ka"]) == [stored]
        malformed = Answer(Status.MALFORMED, reason="expected é or \ud800")
        assert await queue.finish(jobs[1], malformed)
        assert await queue.wait(["kb", "ka"], 0.0) == [malformed, stored]
        assert await queue.stats() == {"waiting": 0, "taken": 0, "oldest": 0, "dead": 0, "answers": 2}

    on_queue(server, scenario)


def test_equal_keys_are_one_job_for_ever(server):
    async def scenario(queue, config):
        assert await queue.submit(ask("a", "a"), ["k", "k"]) == [Status.PENDING] * 2
        assert await queue.submit(ask("a"), ["k"]) == [Status.PENDING]
        [job] = await queue.take("one", 10, 0.01)
        assert await queue.submit(ask("a"), ["k"]) == [Status.PENDING]
        assert await queue.take("two", 10, 0.01) == []
        assert await queue.finish(job, answer("first"))
        assert not await queue.finish(job, answer("second"))
        assert await queue.submit(ask("a"), ["k"]) == [Status.OK]
        assert await queue.take("one", 10, 0.01) == []
        assert (await queue.fetch(["k"]))[0].value == "first"

    on_queue(server, scenario)


def test_a_full_queue_refuses_item_by_item(server):
    async def scenario(queue, config):
        accepted, refused = [Status.PENDING] * 3, [Status.BUSY] * 2
        assert await queue.submit(ask(*"abcde"), list("abcde")) == accepted + refused
        assert await queue.submit(ask(*"aec"), list("aec")) == [Status.PENDING, Status.BUSY, Status.PENDING]
        [job] = await queue.take("one", 1, 0.01)
        assert await queue.submit(ask("e"), ["e"]) == [Status.BUSY]  # taken is not yet answered
        await queue.finish(job, answer("done"))
        assert await queue.submit(ask("e"), ["e"]) == [Status.PENDING]

    on_queue(server, scenario, length=3)


def test_one_set_of_candidates_serves_all_items(server):
    async def scenario(queue, config):
        await queue.submit(ask("a", "b", verb="score", candidates=(("x", "y"),)), ["a", "b"])
        assert [job.candidates for job in await queue.take("one", 10, 0.01)] == [("x", "y")] * 2

    on_queue(server, scenario)


def test_text_that_is_not_unicode_is_refused_alone(server):
    async def scenario(queue, config):
        given = ask("fine", "broken \ud800", "é \U0001f600 \x00")
        assert await queue.submit(given, ["a", "b", "c"]) == [Status.PENDING, Status.REFUSED, Status.PENDING]
        assert [job.content for job in await queue.take("one", 10, 0.01)] == ["fine", "é \U0001f600 \x00"]

    on_queue(server, scenario)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    content=st.text(),
    candidates=st.lists(st.text(), max_size=3),
    parameters=st.none()
    | st.builds(
        Parameters,
        temperature=st.floats(0, 2),
        max_tokens=st.integers(1, 10**6),
        stop=st.lists(st.text(), max_size=3).map(tuple),
        seed=st.integers(0, 2**63),
    ),
)
def test_what_is_asked_is_what_is_taken(server, content, candidates, parameters):
    async def scenario(queue, config):
        given = ask(content, candidates=(tuple(candidates),), parameters=parameters, verb="score")
        await queue.submit(given, ["k"])
        [job] = await queue.take("one", 1, 0.01)
        assert (job.content, job.candidates, job.parameters) == (content, tuple(candidates), parameters)

    on_queue(server, scenario)


def test_the_buried_stand_in_the_dead_letters(server):
    async def scenario(queue, config):
        await queue.submit(ask("a", "b"), ["a", "b"])
        first, second = await queue.take("one", 10, 0.01)
        assert await queue.bury(first, "no — such model")
        assert not await queue.bury(first, "again")
        assert await queue.submit(ask("a"), ["a"]) == [Status.DEAD]
        [found] = await queue.fetch(["a"])
        assert (found.status, found.reason) == (Status.DEAD, "no — such model")
        await queue.bury(second, "too long")
        newest, oldest = await dead_letters(queue)
        assert (newest[b"key"], newest[b"reason"]) == (b"b", b"too long")
        assert (oldest[b"key"], oldest[b"reason"].decode()) == (b"a", "no — such model")
        assert json.loads(oldest[b"job"])["content"] == "a"
        assert (oldest[b"deliveries"], (await queue.stats())["dead"]) == (b"1", 2)

    on_queue(server, scenario)


def test_an_answer_that_comes_after_the_burial_wins(server):
    async def scenario(queue, config):
        await queue.submit(ask("a"), ["a"])
        [job] = await queue.take("one", 1, 0.01)
        await queue.bury(job, "given up")
        assert await queue.finish(job, answer("late"))
        assert await dead_letters(queue) == []
        assert (await queue.fetch(["a"]))[0].value == "late"

    on_queue(server, scenario)


def test_the_silent_lose_their_jobs_and_those_who_refresh_do_not(server):
    async def scenario(queue, config):
        await queue.submit(ask("a", "b"), ["a", "b"])
        silent, kept = [(await queue.take(name, 1, 0.01))[0] for name in ("silent", "busy")]
        claimed = []
        while not claimed:  # each look takes block_s
            await queue.refresh("busy", [kept])
            claimed = await queue.take("other", 10, 0.01)
        assert [(job.key, job.deliveries) for job in claimed] == [(silent.key, 2)]
        assert await queue.finish(claimed[0], answer("other's"))
        assert not await queue.finish(silent, answer("a late one's"))
        assert await queue.finish(kept, answer("mine"))

    on_queue(server, scenario, claim_idle_s=0.2)


def test_the_released_are_taken_at_once_and_that_delivery_does_not_count(server):
    async def scenario(queue, config):
        await queue.submit(ask(*"abc"), list("abc"))
        for _ in range(9):
            jobs = await queue.take("one", 10, 0.01)
            assert [job.deliveries for job in jobs] == [1, 1, 1]
            await queue.release(jobs)
        assert [job.key for job in await queue.take("two", 10, 0.01)] == list("abc")
        assert await queue.take("three", 10, 0.01) == []

    on_queue(server, scenario)


def test_suspects_travel_in_ever_smaller_groups_and_at_last_alone(server):
    async def scenario(queue, config):
        names = [f"k{i:02}" for i in range(32)]
        await queue.submit(ask(*names), names)
        sizes: dict[int, int] = {}
        while len(sizes) < 5:  # whoever takes, dies
            jobs = await queue.take("mortal", 32, 0.001)
            if jobs:
                assert len({job.deliveries for job in jobs}) == 1
                sizes[jobs[0].deliveries] = max(len(jobs), sizes.get(jobs[0].deliveries, 0))
        assert sizes == {1: 32, 2: 8, 3: 2, 4: 1, 5: 1}

    on_queue(server, scenario, claim_idle_s=0.001)


@pytest.mark.parametrize(
    "fields",
    [
        {"job": "not json"},
        {"job": "[]", "key": "k"},
        {"job": b"\xff\xfe", "key": b"\xff"},
        {"job": '{"key": "k", "verb": "sing"}', "key": "k"},
        {"job": "[" * 100_000, "key": "k"},
        {"key": "k"},
        {"anything": "else"},
        {str(i): "x" for i in range(3000)},
    ],
    ids=range(8),
)
def test_an_entry_that_cannot_be_read_goes_to_the_dead_letters_as_it_was(server, fields):
    async def scenario(queue, config):
        await queue.submit(ask("before"), ["before"])
        await queue._redis.xadd(queue._stream, fields)
        await queue.submit(ask("after"), ["after"])
        assert [job.key for job in await queue.take("one", 10, 0.01)] == ["before", "after"]
        [letter] = await dead_letters(queue)
        assert letter[b"reason"].startswith(b"the job cannot be read")
        raw = {bytes(k, "utf8"): v if isinstance(v, bytes) else v.encode() for k, v in fields.items()}
        assert list(letter.items())[3:] == list(raw.items())[:500]
        assert (await queue.stats())["taken"] == 2

    on_queue(server, scenario)


def test_wait_returns_when_the_last_is_answered_or_time_is_up(server):
    async def scenario(queue, config):
        await queue.submit(ask("a", "b"), ["a", "b"])
        first, second = await queue.take("one", 2, 0.01)
        waiting = asyncio.create_task(queue.wait(["a", "b", "a"], 30))
        await queue.finish(first, answer(1))
        assert statuses(await queue.wait(["a", "b"], 0.05)) == [Status.OK, Status.PENDING]
        assert not waiting.done()
        await queue.finish(second, answer(2))
        assert [each.value for each in await waiting] == [1, 2, 1]
        assert await queue.wait([], 1) == []

    on_queue(server, scenario)


def test_answers_are_kept_as_long_as_asked_and_a_few_go_at_each_ending(server):
    clock = FakeClock(auto=False)

    async def scenario(queue, config):
        async def answered(*names):
            await queue.submit(ask(*names), names)
            for job in await queue.take("one", 10, 0.01):
                await queue.finish(job, answer(job.key))

        await answered("a", "b")
        await clock.advance(9)
        await answered("c")
        assert statuses(await queue.fetch(["a", "b", "c"])) == [Status.OK] * 3
        await clock.advance(2)
        await answered("d")
        assert statuses(await queue.fetch(list("abcd"))) == [Status.MISSING, Status.MISSING, Status.OK, Status.OK]
        assert await queue._redis.ttl(queue._keys["answers"]) == -1  # nothing that Redis may evict

    on_queue(server, scenario, clock=clock, keep_s=10.0)


def test_a_redis_that_came_back_empty_is_used_as_a_new_one(server):
    async def scenario(queue, config):
        assert await queue.take("one", 1, 0.01) == []  # before the first job too
        await queue.submit(ask("a"), ["a"])
        await queue._redis.delete(*queue._keys.values())
        assert await queue.take("one", 1, 0.01) == []
        assert statuses(await queue.fetch(["a"])) == [Status.MISSING]
        assert (await queue.stats())["waiting"] == 0
        await queue.submit(ask("a"), ["a"])
        assert len(await queue.take("one", 1, 0.01)) == 1

    on_queue(server, scenario)


def test_errors_name_the_queue_and_quote_no_prompt(server):
    async def scenario(queue, config):
        await queue._redis.set(queue._stream, "a key of somebody else's")
        with pytest.raises(Unreachable, match="WRONGTYPE") as caught:
            await queue.submit(ask("my secret prompt"), ["k"])
        assert config.name in str(caught.value)
        assert "secret" not in str(caught.value)

    on_queue(server, scenario)


@pytest.mark.parametrize("bad", [{"name": "a b"}, {"name": "{x}"}, {"length": 0}, {"deliveries": 1}, {"block_s": 9.0}])
def test_configurations_that_cannot_work_are_refused(bad):
    with pytest.raises(ValidationError):
        DurableConfig(**bad)


# --- every interleaving: submit, take, finish, crash, claim, bury and release, by three consumers


class Interleavings(RuleBasedStateMachine):
    """Everyone steals from everyone at once: jobs are claimable after a millisecond. Consumers crash by forgetting."""

    server: RedisServer
    KEYS = tuple("abcdefgh")
    LENGTH = 5

    def __init__(self):
        super().__init__()
        self.runner = asyncio.Runner()
        self.config = DurableConfig(name=f"m{next(NAMES)}", length=self.LENGTH, claim_idle_s=0.001, deliveries=1000)
        self.redis = self.server.connect()
        self.queue = Queue(self.redis, self.config, Clock(), "service")
        self.held = {name: [] for name in ("one", "two", "three")}
        self.pending, self.dead, self.answers = set(), {}, {}
        self.numbers = itertools.count()

    consumers = st.sampled_from(["one", "two", "three"])

    def do(self, awaitable):
        return self.runner.run(awaitable)

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=4))
    def submit(self, keys):
        expected = []
        for key in keys:
            if key in self.answers:
                expected.append(Status.OK)
            elif key in self.dead:
                expected.append(Status.DEAD)
            elif key in self.pending or len(self.pending) < self.LENGTH:
                self.pending.add(key)
                expected.append(Status.PENDING)
            else:
                expected.append(Status.BUSY)
        assert self.do(self.queue.submit(ask(*keys), keys)) == expected

    @rule(who=consumers, count=st.integers(1, 4))
    def take(self, who, count):
        jobs = self.do(self.queue.take(who, count, 0.002))
        assert len(jobs) <= count
        assert {job.key for job in jobs} <= self.pending
        self.held[who] += jobs

    @rule(who=consumers)
    def crash(self, who):
        self.held[who] = []

    @precondition(lambda self: any(self.held.values()))
    @rule(data=st.data(), twice=st.booleans())
    def finish(self, data, twice):
        job = self.pick(data)
        text = f"{job.key}{next(self.numbers)}"
        assert self.do(self.queue.finish(job, answer(text))) == (job.key not in self.answers)
        if twice:
            assert not self.do(self.queue.finish(job, answer("again")))
        self.answers.setdefault(job.key, text)
        self.pending.discard(job.key)
        self.dead.pop(job.key, None)

    @precondition(lambda self: any(self.held.values()))
    @rule(data=st.data())
    def bury(self, data):
        job = self.pick(data)
        if self.do(self.queue.bury(job, f"why {job.key}")):
            assert job.key in self.pending
            self.pending.remove(job.key)
            self.dead[job.key] = f"why {job.key}"

    @precondition(lambda self: any(self.held.values()))
    @rule(who=consumers)
    def release(self, who):
        self.do(self.queue.release(self.held[who]))
        self.held[who] = []

    @rule(who=consumers)
    def refresh(self, who):
        self.do(self.queue.refresh(who, self.held[who]))

    @invariant()
    def the_books_agree(self):
        stats = self.do(self.queue.stats())
        assert stats["waiting"] + stats["taken"] == len(self.pending) <= self.LENGTH
        assert (stats["dead"], stats["answers"]) == (len(self.dead), len(self.answers))
        for key, found in zip(self.KEYS, self.do(self.queue.fetch(self.KEYS)), strict=True):
            if key in self.answers:
                assert found.value == self.answers[key]
            elif key in self.dead:
                assert (found.status, found.reason) == (Status.DEAD, self.dead[key])
            else:
                assert found.status is (Status.PENDING if key in self.pending else Status.MISSING)

    def teardown(self):
        """Whoever is left can end everything that was accepted."""
        while self.pending:
            for job in self.do(self.queue.take("last", 10, 0.002)):
                assert self.do(self.queue.finish(job, answer("at last")))
                self.answers[job.key] = "at last"
                self.pending.remove(job.key)
        self.the_books_agree()
        self.do(self.redis.aclose())
        self.runner.close()

    def pick(self, data):
        return data.draw(st.sampled_from([job for jobs in self.held.values() for job in jobs]))


def interleave(server, examples, steps):
    machine = type("Machine", (Interleavings,), {"server": server})
    options = settings(max_examples=examples, stateful_step_count=steps, deadline=None, derandomize=True)
    run_state_machine_as_test(machine, settings=options)


def test_every_accepted_job_ends_once(server):
    interleave(server, 10, 30)


@pytest.mark.slow
def test_every_accepted_job_ends_once_in_many_interleavings(server):
    interleave(server, 60, 60)


# --- the consumer


class Model:
    """Answers as a test says, and notes what it was asked."""

    def __init__(self, say=lambda content: answer(content.upper())):
        self.say, self.asks = say, []

    async def __call__(self, given):
        self.asks.append(given)
        return [self.say(content) for content in given.contents]


async def until(condition):
    """Look again and again; the test's own time limit is the bound."""
    while not condition():
        await asyncio.sleep(0.002)


async def consuming(queue, config, model, during, clock=None, name="one", **options):
    """Run a consumer while `during(consumer)` runs."""
    consumer, stop = Consumer(queue, model, keys, name, config, clock or Clock(), **options), asyncio.Event()
    running = asyncio.create_task(consumer.run(stop))
    try:
        await during(consumer)
    finally:
        stop.set()
        await running
    return consumer


def test_jobs_are_answered_in_asks_that_share_what_can_be_shared(server):
    model = Model()

    async def scenario(queue, config):
        hot = Parameters(temperature=1.0)
        await queue.submit(ask("a", "b", task="goal", caller="me"), ["a", "b"])
        await queue.submit(ask("c", task="goal", caller="me", parameters=hot), ["c"])
        await queue.submit(ask("d", task="goal", caller="you"), ["d"])
        await queue.submit(ask("e", verb="score", candidates=(("x",),)), ["e"])
        await queue.submit(ask("f", verb="score", candidates=(("y", "z"),)), ["f"])
        await queue.submit(ask("g", task="goal", caller="me"), ["g"])

        async def during(consumer):
            assert [each.value for each in await queue.wait(list("abcdefg"), 30)] == list("ABCDEFG")

        consumer = await consuming(queue, config, model, during)
        assert (len(consumer.held), consumer.finished, consumer.buried, consumer.paused) == (0, 7, 0, "")

    on_queue(server, scenario)
    by_contents = {given.contents: given for given in model.asks}
    assert set(by_contents) == {("a", "b", "g"), ("c",), ("d",), ("e", "f")}
    assert by_contents["e", "f"].candidates == (("x",), ("y", "z"))
    assert by_contents["a", "b", "g"].candidates == ()
    assert by_contents["c",].parameters.temperature == 1.0
    assert {given.lane for given in model.asks} == {"durable"}
    assert (by_contents["d",].caller, by_contents["d",].task) == ("you", "goal")


def test_each_ending_goes_where_it_belongs(server):
    endings = {
        "good": answer("yes"),
        "odd": Answer(Status.MALFORMED, reason="expected a number"),
        "long": Answer(Status.REFUSED, reason="too long for the model é"),
        "unrecorded": Answer(Status.MISSING, reason="not recorded"),
    }

    async def scenario(queue, config):
        await queue.submit(ask(*endings), list(endings))

        async def during(consumer):
            found = dict(zip(endings, await queue.wait(list(endings), 30), strict=True))
            assert (found["good"], found["odd"]) == (endings["good"], endings["odd"])
            for name in ("long", "unrecorded"):
                assert (found[name].status, found[name].reason) == (Status.DEAD, endings[name].reason)

        consumer = await consuming(queue, config, Model(endings.get), during)
        assert (consumer.finished, consumer.buried) == (2, 2)

    on_queue(server, scenario)


@pytest.mark.parametrize("status", [Status.AWAY, Status.BUSY, Status.EXPIRED])
def test_what_is_not_the_jobs_fault_is_asked_again_and_no_more_is_taken(server, status):
    away = [True]
    model = Model(lambda content: Answer(status, reason="not now") if away and content == "a" else answer("fine"))

    async def scenario(queue, config):
        await queue.submit(ask("a", "b"), ["a", "b"])

        async def during(consumer):
            await until(lambda: len(model.asks) >= 2)
            assert consumer.paused == "not now"
            await queue.submit(ask("c"), ["c"])
            await until(lambda: len(model.asks) >= 4)
            stats = await queue.stats()
            assert (stats["waiting"], stats["taken"], stats["answers"]) == (1, 1, 1)
            assert stats["oldest"] > 0
            away.clear()
            assert statuses(await queue.wait(list("abc"), 30)) == [Status.OK] * 3

        consumer = await consuming(queue, config, model, during, clock=Hasty())
        assert consumer.paused == ""
        assert [given.contents for given in model.asks][:3] == [("a", "b"), ("a",), ("a",)]

    on_queue(server, scenario, batch=2)


class Hasty(Clock):
    """Pauses are a hundred times shorter, and noted."""

    def __init__(self):
        self.slept = []

    async def sleep(self, seconds):
        self.slept.append(seconds)
        await asyncio.sleep(seconds / 100)


def test_pauses_grow_to_a_limit(server):
    model, clock = Model(lambda content: Answer(Status.AWAY, reason="away")), Hasty()

    async def scenario(queue, config):
        await queue.submit(ask("a"), ["a"])
        await consuming(queue, config, model, lambda _: until(lambda: len(model.asks) == 10), clock=clock)
        [job] = await queue.take("two", 1, 0.01)  # was handed back at the stop, and no delivery counted
        assert job.deliveries == 1

    on_queue(server, scenario, claim_idle_s=600.0)
    pauses = [seconds for seconds in clock.slept if seconds != 200.0]
    assert pauses[:9] == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0])


def test_out_of_budget_everything_is_handed_back_until_there_is_more(server):
    spent = [True]
    capped = Answer(Status.BUDGET, reason="the cap of $1 is reached")
    model = Model(lambda content: capped if spent else answer(content))
    clock = FakeClock(auto=False)

    async def scenario(queue, config):
        await queue.submit(ask("a", "b"), ["a", "b"])

        async def during(consumer):
            await until(lambda: 60.0 in clock.slept)
            assert consumer.paused == "the cap of $1 is reached"
            assert len(consumer.held) == 0
            assert len(model.asks) == 1
            jobs = await queue.take("another", 10, 0.01)
            assert [job.deliveries for job in jobs] == [1, 1]
            await queue.release(jobs)
            spent.clear()
            await clock.advance(60)
            while (await queue.stats())["answers"] < 2:
                await asyncio.sleep(0.002)
            assert consumer.paused == ""

        await consuming(queue, config, model, during, clock=clock)

    on_queue(server, scenario)


def test_an_error_of_the_service_is_an_answer_for_all(server):
    async def scenario(queue, config):
        tried = []

        async def model(given):
            tried.append(given)
            if len(tried) == 1:
                raise Away("the breaker is open")
            return [answer("fine")] * len(given.contents)

        async def during(consumer):
            assert statuses(await queue.wait(["a", "b"], 30)) == [Status.OK] * 2

        await queue.submit(ask("a", "b"), ["a", "b"])
        await consuming(queue, config, model, during, clock=Hasty())

    on_queue(server, scenario)


def test_a_job_that_always_breaks_its_consumer_ends_alone_in_the_dead_letters(server):
    """A consumer whose model raises ends as if its process had died; another one follows."""

    async def scenario(queue, config):
        deaths = 0

        async def model(given):
            if "poison" in given.contents:
                raise ZeroDivisionError
            return [answer("fine")] * len(given.contents)

        names = [f"k{i}" for i in range(6)] + ["poison"] + [f"l{i}" for i in range(6)]
        await queue.submit(ask(*names), names)
        while Status.PENDING in statuses(await queue.fetch(names)):
            try:
                stop = asyncio.Event()
                running = asyncio.create_task(Consumer(queue, model, keys, f"c{deaths}", config, Clock()).run(stop))
                await asyncio.wait([running, asyncio.create_task(queue.wait(names, 30))], return_when="FIRST_COMPLETED")
                stop.set()
                await running
            except ZeroDivisionError:
                deaths += 1
        found = dict(zip(names, await queue.fetch(names), strict=True))
        assert deaths == config.deliveries
        assert found.pop("poison").reason.startswith("gave up after 3 deliveries")
        assert set(statuses(found.values())) == {Status.OK}

    on_queue(server, scenario, claim_idle_s=0.05, deliveries=3, batch=16)


def test_a_long_job_is_not_taken_from_a_living_consumer(server):
    async def scenario(queue, config):
        began, ready = asyncio.Event(), asyncio.Event()

        async def model(given):
            began.set()
            await ready.wait()
            return [answer("at last")]

        async def during(consumer):
            await began.wait()
            for _ in range(12):  # several times claim_idle_s
                assert await queue.take("thief", 10, 0.05) == []
            ready.set()
            assert (await queue.wait(["a"], 30))[0].value == "at last"

        await queue.submit(ask("a"), ["a"])
        await consuming(queue, config, model, during)

    on_queue(server, scenario, claim_idle_s=0.3)


def test_a_stop_ends_what_is_in_hand_and_hands_back_what_takes_too_long(server):
    async def scenario(queue, config):
        began, ready = asyncio.Event(), asyncio.Event()

        async def model(given):
            began.set()
            if given.task == "slow":
                await asyncio.Event().wait()
            await ready.wait()
            return [answer("in time")] * len(given.contents)

        async def stopped(grace_s):
            began.clear()
            stop = asyncio.Event()
            consumer = Consumer(queue, model, keys, "one", config, Clock(), grace_s=grace_s)
            running = asyncio.create_task(consumer.run(stop))
            await began.wait()
            stop.set()
            await asyncio.sleep(0)
            ready.set()
            await running
            assert len(consumer.held) == 0

        await queue.submit(ask("a"), ["a"])
        await stopped(grace_s=30.0)
        assert (await queue.fetch(["a"]))[0].value == "in time"
        await queue.submit(ask("b", task="slow"), ["b"])
        await stopped(grace_s=0.01)
        [job] = await queue.take("two", 1, 0.01)
        assert (job.key, job.deliveries) == ("b", 1)

    on_queue(server, scenario)


def test_answers_at_hand_outlast_an_absence_of_redis(server):
    """Redis goes while the model thinks: the answers wait in memory, and the model is not asked again."""

    async def scenario(queue, config):
        model = Model()
        gate, began = asyncio.Event(), asyncio.Event()

        async def slowly(given):
            began.set()
            await gate.wait()
            return await model(given)

        async def during(consumer):
            await began.wait()
            queue._redis = AlwaysAway()
            gate.set()
            await until(lambda: "cannot be used" in consumer.paused)
            assert len(consumer.held) == 3
            queue._redis = redis
            assert statuses(await queue.wait(list("abc"), 30)) == [Status.OK] * 3

        redis = queue._redis
        await queue.submit(ask(*"abc"), list("abc"))
        await consuming(queue, config, slowly, during, clock=Hasty())
        assert len(model.asks) == 1

    on_queue(server, scenario)


class AlwaysAway:
    """A client that reaches nothing."""

    def __getattr__(self, name):
        async def fail(*args, **kwargs):
            from redis.exceptions import ConnectionError

            raise ConnectionError("refused")

        return fail


# --- dead letters


def test_a_dead_letter_is_listed_and_asked_again_as_it_was(server):
    async def scenario(queue, config):
        await queue.submit(ask("a", task="goal"), ["k1"])
        (job,) = await queue.take("one", 1, 0.01)
        await queue.bury(job, "the model refused")
        letters = DeadLetters(queue._redis)
        letter = next(each for each in await letters.read() if each.queue == queue._keys["dead"].removesuffix(":dead"))
        assert (letter.task, letter.reason, letter.deliveries) == ("goal", "the model refused", 1)
        assert await letters.retry(letter)
        assert not await letters.retry(letter)  # a client whose connection was cut sends it twice
        assert statuses(await queue.fetch(["k1"])) == [Status.PENDING]
        (again,) = await queue.take("two", 1, 0.01)
        assert (again.key, again.content, again.task, again.deliveries) == ("k1", "a", "goal", 1)
        await queue.finish(again, answer("yes"))
        assert statuses(await queue.fetch(["k1"])) == [Status.OK]
        assert (await queue.stats())["dead"] == 0

    on_queue(server, scenario)


def test_a_dropped_letter_is_forgotten_and_its_question_is_a_new_job(server):
    async def scenario(queue, config):
        await queue.submit(ask("a", "b"), ["k1", "k2"])
        for job in await queue.take("one", 2, 0.01):
            await queue.bury(job, "the model refused")
        letters = DeadLetters(queue._redis)
        mine = [each for each in await letters.read() if each.queue == queue._keys["dead"].removesuffix(":dead")]
        assert await letters.drop(mine[0])
        assert not await letters.drop(mine[0])
        assert statuses(await queue.fetch(["k1", "k2"])) == [Status.MISSING, Status.DEAD]
        assert await queue.submit(ask("a"), ["k1"]) == [Status.PENDING]

    on_queue(server, scenario)


def test_a_letter_that_cannot_be_read_is_listed_and_dropped(server):
    async def scenario(queue, config):
        await queue.submit(ask("a"), ["k1"])
        await queue._redis.xadd(queue._stream, {"key": "k2", "job": "nonsense"})
        await queue.take("one", 9, 0.01)
        letters = DeadLetters(queue._redis)
        mine = [each for each in await letters.read() if each.queue == queue._keys["dead"].removesuffix(":dead")]
        assert [(each.task, each.reason) for each in mine] == [("", "the job cannot be read (JSONDecodeError)")]
        assert await letters.drop(mine[0])
        assert statuses(await queue.fetch(["k2"])) == [Status.MISSING]
        assert (await queue.stats())["dead"] == 0

    on_queue(server, scenario)


def test_a_letter_is_asked_again_though_memory_is_full(tmp_path):
    """It gives back what it takes, so a queue that is full of given-up jobs can be emptied."""

    async def scenario(queue, config):
        await queue.submit(ask("a"), ["k1"])
        (job,) = await queue.take("one", 1, 0.01)
        await queue.bury(job, "the model refused")
        await queue._redis.config_set("maxmemory", 1)
        assert await queue.submit(ask("b"), ["k2"]) == [Status.BUSY]
        letters = DeadLetters(queue._redis)
        (letter,) = await letters.read()
        assert await letters.retry(letter)
        assert statuses(await queue.fetch(["k1"])) == [Status.PENDING]

    own = RedisServer(RedisConfig(folder=str(tmp_path / "redis")))
    asyncio.run(own.start())
    try:
        on_queue(own, scenario)
    finally:
        asyncio.run(own.stop())
