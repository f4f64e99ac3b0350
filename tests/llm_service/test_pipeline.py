"""The path from a question to its answer: what is paid, what is known, what is refused."""

import asyncio
import errno
import json
import logging
import os

import pytest

from llm_service import tasks
from llm_service.backends import openai
from llm_service.backends.faulty.server import FaultyServer
from llm_service.errors import Overloaded, Refused, UsageError
from llm_service.pipeline.cache import Shared
from llm_service.pipeline.journal import Journal
from llm_service.pipeline.ledger import Ledger
from llm_service.pipeline.limits import LimitsConfig
from llm_service.pipeline.pipeline import Service
from llm_service.pipeline.retry import RetryConfig
from llm_service.records import Ask, Parameters, Source, Status
from llm_service.settings import LLMConfig
from llm_service.world import NOWHERE, Goal, World
from tests.llm_service.fake_backend import FakeBackend
from tests.llm_service.fake_clock import FakeClock

WORLD = World(
    name="room",
    about="A room with balls.",
    actions=["go"],
    slots={"colour": ["red", "blue"]},
    goals=[Goal(goal="go to the {colour} ball")],
)


def make(folder, backend=None, clock=None, world=NOWHERE, embedder=None, shared=None, **options):
    config = LLMConfig(**options)
    clock = clock or FakeClock()
    journal = Journal(folder / "journal.jsonl")
    ledger = Ledger(config.limits, folder / "ledger.jsonl", clock)
    return Service(config, backend or FakeBackend(), embedder, world, journal, ledger, None, shared, clock)


def raw(*prompts, **fields):
    return Ask("generate", prompts, **fields)


def ask_all(folder, asks, backend=None, **options):
    """Ask at the same moment, in one service; a list of answers for each."""

    async def go():
        service = make(folder, backend, **options)
        try:
            return await asyncio.wait_for(asyncio.gather(*[service.ask(ask) for ask in asks]), 20)
        finally:
            await service.close()

    return asyncio.run(go())


def lines(folder):
    return [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]


def test_answers_come_in_order_with_their_cost(tmp_path):
    (answers,) = ask_all(tmp_path, [raw("a", "bb", "ccc")], FakeBackend(price=0.5))
    assert [a.value for a in answers] == ["A", "BB", "CCC"]
    assert [a.tokens for a in answers] == [2, 4, 6]
    assert [a.dollars for a in answers] == [1.0, 2.0, 3.0]
    assert {a.source for a in answers} == {Source.BACKEND}


def test_equal_questions_at_one_moment_are_one_call(tmp_path):
    backend = FakeBackend()
    answers = ask_all(tmp_path, [raw("same", f"own {i}", "same") for i in range(40)], backend)
    assert sorted(backend.asked) == sorted(["same", *[f"own {i}" for i in range(40)]])
    assert all([a.value for a in three] == ["SAME", f"OWN {i}", "SAME"] for i, three in enumerate(answers))
    sources = [three[0].source for three in answers]
    assert sources.count(Source.BACKEND) == 1
    assert sources.count(Source.FLIGHT) == 39
    assert len(lines(tmp_path)) == 41


def test_a_known_answer_is_given_without_waiting(tmp_path):
    async def go():
        service = make(tmp_path)
        assert service.peek(raw("a")) is None
        await service.ask(raw("a"))
        (known,) = service.peek(raw("a"))
        assert (known.value, known.source, known.tokens) == ("A", Source.MEMORY, 0)
        assert service.peek(raw("a", sample=1)) is None
        assert service.peek(raw("a", parameters=Parameters(temperature=1.0))) is None
        assert service.peek(raw("a", "b")) is None
        await service.close()

    asyncio.run(go())


def test_a_service_that_starts_again_pays_for_nothing_twice(tmp_path):
    ask_all(tmp_path, [raw("a", "b")], FakeBackend(price=0.1))
    backend = FakeBackend(price=0.1)
    ((a, b, c),) = ask_all(tmp_path, [raw("a", "b", "c")], backend)
    assert backend.asked == ["c"]
    assert [x.source for x in (a, b, c)] == [Source.JOURNAL, Source.JOURNAL, Source.BACKEND]
    assert (a.value, a.dollars) == ("A", 0.0)


def test_another_model_is_another_question(tmp_path):
    ask_all(tmp_path, [raw("a")], FakeBackend(model="one"))
    backend = FakeBackend(model="two")
    ask_all(tmp_path, [raw("a")], backend)
    assert backend.asked == ["a"]


def test_what_new_weights_answer_is_not_remembered_as_the_old_ones_answer(tmp_path):
    async def go():
        backend = FakeBackend(lambda call: backend.model, model="old")
        backend.gate = asyncio.Event()
        service = make(tmp_path, backend, FakeClock(auto=False))
        asked = asyncio.ensure_future(service.ask(raw("a")))
        while not backend.asked:
            await asyncio.sleep(0)
            await service._clock.advance(0.001)
        backend.model = "new"
        backend.gate.set()
        (answer,) = await asked
        assert (answer.value, service.peek(raw("a"))) == ("new", None)
        assert (await service.ask(raw("a")))[0].source is Source.JOURNAL
        backend.model = "old"
        assert service.peek(raw("a")) is None
        await service.close()

    asyncio.run(go())


def test_scores_and_vectors_arrive_exactly(tmp_path):
    score = Ask("score", ("p", "q"), candidates=(("a", "bbb"),))
    own = Ask("score", ("p", "q"), candidates=(("a",), ("bb", "c")))
    embed = Ask("embed", ("text",))
    shared, each, vectors = ask_all(tmp_path, [score, own, embed])
    assert [a.scores.tolist() for a in shared] == [[-1.0, -3.0]] * 2
    assert [a.scores.tolist() for a in each] == [[-1.0], [-2.0, -1.0]]
    assert vectors[0].vector.tolist() == [0.5] * 4


def goals(reply, folder, **options):
    contents = tasks.contents("suggest_goals", [{"observation": ["You see a red ball"]}])
    backend = FakeBackend(reply)
    ((answer,),) = ask_all(folder, [raw(*contents, task="suggest_goals")], backend, world=WORLD, **options)
    return answer, backend


def test_a_task_is_rendered_asked_and_parsed(tmp_path):
    answer, backend = goals(lambda call: "- go to the red ball\n- fly", tmp_path)
    assert answer.value == {"goals": ["go to the red ball"], "dropped": 1}
    (call,) = backend.batches[0]
    assert call.task == "suggest_goals"
    assert "You see a red ball" in call.turns[-1][1]
    (line,) = lines(tmp_path)
    assert line["parsed"] == answer.value
    assert line["reply"] == {"text": "- go to the red ball\n- fly"}


def test_a_reply_outside_the_grammar_gets_one_repair_turn(tmp_path):
    answer, backend = goals(lambda call: "- go to the blue ball" if len(call.turns) > 2 else "hm?", tmp_path)
    assert answer.value["goals"] == ["go to the blue ball"]
    first, second = [batch[0] for batch in backend.batches]
    assert second.turns[: len(first.turns)] == first.turns
    assert second.turns[len(first.turns)] == ("assistant", "hm?")
    assert answer.tokens == sum(line["prompt_tokens"] + line["completion_tokens"] for line in lines(tmp_path))


def test_an_answer_that_stays_malformed_is_paid_for_twice_and_never_again(tmp_path):
    answer, backend = goals(lambda call: "hm?", tmp_path)
    assert answer.status is Status.MALFORMED
    assert len(backend.asked) == 2
    answer, backend = goals(lambda call: "- go to the red ball", tmp_path)
    assert answer.status is Status.MALFORMED
    assert backend.asked == []


def test_one_bad_item_leaves_the_others_alone(tmp_path):
    backend = FakeBackend({"bad": Refused("no")})
    (answers,) = ask_all(tmp_path, [raw("a", "bad", "b")], backend)
    assert [a.status for a in answers] == [Status.OK, Status.REFUSED, Status.OK]
    assert answers[1].reason == "no"


def test_a_defect_of_a_task_refuses_its_item_only(tmp_path, monkeypatch):
    from llm_service.tasks import suggest_goals

    monkeypatch.setattr(suggest_goals, "combine", lambda values, inputs: 1 / 0)
    answer, _ = goals(lambda call: "- go to the red ball", tmp_path)
    assert answer.status is Status.REFUSED
    assert "ZeroDivisionError" in answer.reason


def test_passing_failures_are_tried_again_and_not_remembered(tmp_path):
    replies = iter([Overloaded("503"), Overloaded("503"), "fine"])
    ((answer,),) = ask_all(tmp_path, [raw("a")], FakeBackend(lambda call: next(replies)))
    assert answer.value == "fine"
    assert len(lines(tmp_path)) == 1


def test_who_waits_longer_than_the_first_asker_still_gets_an_answer(tmp_path):
    """The first asker's time ends while the backend is down; the second asker has time enough."""
    clock = FakeClock()
    backend = FakeBackend(lambda call: Overloaded("503") if clock.now() < 20 else "fine")
    retry = RetryConfig(attempts=50, seconds=1000.0, burst=1000.0, failures=1000, base_s=3.0, cap_s=3.0)
    first, second = raw("a", deadline=5.0), raw("a", deadline=500.0)
    (short,), (long,) = ask_all(tmp_path, [first, second], backend, clock=clock, retry=retry)
    assert short.status in (Status.AWAY, Status.EXPIRED)
    assert long.value == "fine"


def test_a_deadline_ends_the_waiting_but_not_the_work(tmp_path):
    async def go():
        backend = FakeBackend()
        backend.gate = asyncio.Event()
        service = make(tmp_path, backend)
        (late,) = await service.ask(raw("a", deadline=1.0))
        assert late.status is Status.EXPIRED
        backend.gate.set()
        while service.stats()["in_flight"]:
            await asyncio.sleep(0)
        (known,) = service.peek(raw("a"))
        assert known.value == "A"
        assert backend.asked == ["a"]
        await service.close()

    asyncio.run(go())


def test_a_cap_is_checked_before_anything_is_sent(tmp_path):
    backend = FakeBackend(price=0.01)
    limits = LimitsConfig(dollars=0.5)
    answers = ask_all(tmp_path, [raw("x" * 20, parameters=Parameters(max_tokens=20))] * 1, backend, limits=limits)
    assert answers[0][0].ok
    backend = FakeBackend(price=0.01)
    ((answer,),) = ask_all(tmp_path, [raw("y" * 20)], backend, limits=limits)  # 256 tokens of reply are too dear now
    assert answer.status is Status.BUDGET
    assert backend.asked == []


def test_spending_survives_a_restart_and_stays_under_its_cap(tmp_path):
    limits = LimitsConfig(tokens=100)
    spent = 0
    for start in range(4):
        prompts = [f"{start} {i}" for i in range(10)]
        backend = FakeBackend()
        (answers,) = ask_all(tmp_path, [raw(*prompts, parameters=Parameters(max_tokens=8))], backend, limits=limits)
        spent += sum(a.tokens for a in answers)
        assert spent <= 100
    assert {a.status for a in answers} == {Status.BUDGET}


def test_an_estimate_counts_what_would_be_sent_and_sends_nothing(tmp_path):
    async def go():
        backend = FakeBackend(price=0.5)
        service = make(tmp_path, backend)
        before = await service.estimate(raw("a", "b", "a", parameters=Parameters(max_tokens=10)))
        assert before.calls == 2
        assert before.dollars == 0.5 * (before.prompt_tokens + before.completion_tokens) == 0.5 * (2 + 20)
        assert backend.asked == []
        await service.ask(raw("a", parameters=Parameters(max_tokens=10)))
        after = await service.estimate(raw("a", "b", "a", parameters=Parameters(max_tokens=10)))
        assert after.calls == 1
        await service.close()
        again = make(tmp_path, backend)  # only the journal remembers now
        after = await again.estimate(raw("a", "b", "a", parameters=Parameters(max_tokens=10)))
        assert after.calls == 1
        await again.close()

    asyncio.run(go())


def test_an_estimate_counts_a_call_that_items_share_once(tmp_path):
    """Every yes_no item asks also the question without content, which is the same for all."""

    async def go():
        service = make(tmp_path, FakeBackend(), world=WORLD)
        contents = tasks.contents("yes_no", [{"question": f"is it {i}?"} for i in range(10)])
        estimate = await service.estimate(raw(*contents, task="yes_no"))
        assert estimate.calls == 11
        await service.close()

    asyncio.run(go())


def test_too_many_questions_are_refused_and_the_rest_answered(tmp_path):
    (answers,) = ask_all(tmp_path, [raw(*"abcdef")], limits=LimitsConfig(waiting=4))
    assert [a.status for a in answers] == [Status.OK] * 4 + [Status.BUSY] * 2


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [
        (raw("a", task="nonsense"), "unknown task"),
        (Ask("score", ("a",)), "candidates"),
        (Ask("score", ("a", "b"), candidates=(("x",), ("y",), ("z",))), "candidates"),
        (Ask("score", ("a",), candidates=((),)), "candidates"),
        (Ask("generate", ("a",), candidates=(("x",),)), "takes no candidates"),
        (Ask("score", ("a",), task="yes_no", candidates=(("x",),)), "needs the verb generate"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(tmp_path, ask, sentence):
    with pytest.raises(UsageError, match=sentence):
        ask_all(tmp_path, [ask])


def test_an_unsupported_verb_says_which_there_are(tmp_path):
    backend = FakeBackend()
    backend.verbs = frozenset(("generate",))
    ((answer,),) = ask_all(tmp_path, [Ask("score", ("a",), candidates=(("x",),))], backend)
    assert answer.status is Status.REFUSED
    assert "cannot score: it can generate" in answer.reason


def test_what_cannot_be_asked_is_the_same_sentence_from_memory(tmp_path):
    async def go():
        service = make(tmp_path)
        ask = Ask("score", ("a", "b"), candidates=(("x",), ("y",), ("z",)))
        for method in (service.peek, service.keys):
            with pytest.raises(UsageError, match="candidates"):
                method(ask)
        await service.close()

    asyncio.run(go())


@pytest.mark.parametrize("content", ["nonsense", "[1]", "3", "[" * 100_000, '{"observation": 7}', '{"no": 1}'])
def test_inputs_that_a_task_does_not_take_are_refused_and_not_quoted(tmp_path, content):
    ((answer,),) = ask_all(tmp_path, [raw(content, task="suggest_goals")])
    assert answer.status is Status.REFUSED
    assert "not a valid input of this task: " in answer.reason
    assert len(answer.reason) < 200


def test_a_redis_that_hangs_does_not_keep_an_answer_beyond_its_deadline(tmp_path):
    class Hanging:
        async def mget(self, names):
            await asyncio.Event().wait()

        def pipeline(self, transaction):
            raise AssertionError("nothing was answered")

    async def go():
        clock = FakeClock(auto=False)
        backend = FakeBackend()
        backend.gate = asyncio.Event()
        service = make(tmp_path, backend, clock, shared=Shared(Hanging(), 60, clock))
        asked = asyncio.ensure_future(service.ask(raw("a", deadline=0.5)))
        while not clock.slept:
            await asyncio.sleep(0)
        await clock.advance(0.6)
        (answer,) = await asyncio.wait_for(asked, 5)
        assert answer.status is Status.EXPIRED

    asyncio.run(go())


def test_an_equal_question_joins_even_when_no_further_one_is_taken(tmp_path):
    async def go():
        backend = FakeBackend()
        backend.gate = asyncio.Event()
        service = make(tmp_path, backend, limits=LimitsConfig(waiting=1), clock=FakeClock(auto=False))
        first = asyncio.ensure_future(service.ask(raw("a")))
        second = asyncio.ensure_future(service.ask(raw("a", "b")))
        await asyncio.sleep(0)
        backend.gate.set()
        while not first.done():
            await asyncio.sleep(0)
            await service._clock.advance(0.001)
        assert (await first)[0].value == "A"
        assert [a.status for a in await second] == [Status.OK, Status.BUSY]
        await service.close()

    asyncio.run(go())


def test_a_cap_holds_back_calls_that_wait_for_their_turn_and_refuses_none_that_fits(tmp_path):
    """Together they may cost 8 times the cap, one after the other half of it."""
    backend = FakeBackend(price=0.01, concurrency=4, max_batch=3)
    prompts = [f"q{i}" for i in range(20)]
    limits = LimitsConfig(dollars=2.0)  # a call costs 0.04 or 0.06, and 0.82 or more are put aside for it
    ask = raw(*prompts, parameters=Parameters(max_tokens=80))
    (answers,) = ask_all(tmp_path, [ask], backend, limits=limits)
    assert [a.status for a in answers] == [Status.OK] * 20
    assert sum(a.dollars for a in answers) == pytest.approx(10 * 0.04 + 10 * 0.06)


def test_a_rate_that_a_flood_of_jobs_uses_up_leaves_an_episode_its_turn(tmp_path):
    async def go():
        clock, backend = FakeClock(), FakeBackend(max_batch=1)
        service = make(tmp_path, backend, clock, limits=LimitsConfig(requests_per_minute=60))
        flood = asyncio.ensure_future(service.ask(raw(*[f"job {i}" for i in range(100)], lane="durable", deadline=1e6)))
        while not backend.asked:
            await asyncio.sleep(0)
        (answer,) = await service.ask(raw("step", deadline=20.0))
        assert answer.value == "STEP"
        assert len(backend.asked) < 10
        await flood
        await service.close()

    asyncio.run(go())


def test_a_service_that_closes_takes_in_what_is_paid_for_and_sends_nothing_more(tmp_path):
    async def go():
        backend = FakeBackend(price=0.1, max_batch=1)
        backend.gate = asyncio.Event()
        service = make(tmp_path, backend, FakeClock(auto=False))
        callers = [asyncio.ensure_future(service.ask(raw(text, deadline=5.0))) for text in "abc"]
        while not backend.asked:
            await asyncio.sleep(0)
            await service._clock.advance(0.001)
        await service._clock.advance(10)
        assert {(await caller)[0].status for caller in callers} == {Status.EXPIRED}
        waits = asyncio.ensure_future(service.ask(raw("d")))
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(service.close())
        while not waits.done():
            await asyncio.sleep(0)
        backend.gate.set()
        await closing
        assert backend.asked == ["a"]
        assert waits.result()[0].status is Status.AWAY
        assert (await service.ask(raw("e")))[0].status is Status.AWAY
        return service.ledger

    ledger = asyncio.run(go())
    assert [line["reply"] for line in lines(tmp_path)] == [{"text": "A"}]
    assert ledger.tokens == 2  # nothing stays reserved for what was never sent
    assert not ledger._book.open


def test_a_full_disk_keeps_answers_and_ends_spending(tmp_path, monkeypatch):
    async def go():
        backend = FakeBackend()
        service = make(tmp_path, backend)
        write = os.write

        def full(file, data):
            if file == service.journal._file:
                raise OSError(errno.ENOSPC, "No space left on device")
            return write(file, data)

        monkeypatch.setattr(os, "write", full)
        (paid,) = await service.ask(raw("a"))
        assert paid.value == "A"
        (refused,) = await service.ask(raw("b"))
        assert refused.status is Status.AWAY
        assert "cannot be written" in refused.reason
        (known,) = await service.ask(raw("a", parameters=Parameters()))  # another question, the same call
        assert known.source is Source.JOURNAL
        monkeypatch.setattr(os, "write", write)
        (later,) = await service.ask(raw("b"))
        assert later.value == "B"
        assert backend.asked == ["a", "b"]
        await service.close()

    asyncio.run(go())
    assert [line["reply"]["text"] for line in lines(tmp_path)] == ["A", "B"]


def test_a_defect_of_a_parser_does_not_lose_what_was_paid_for(tmp_path, monkeypatch, caplog):
    from llm_service.tasks import suggest_goals

    def broken(reply, inputs, index, world):
        raise KeyError(f"a prompt: {inputs.observation}, {reply.text}")

    monkeypatch.setattr(suggest_goals, "parse", broken)
    with caplog.at_level(logging.DEBUG):
        answer, backend = goals(lambda call: "- go to the red ball", tmp_path)
    assert answer.status is Status.REFUSED
    assert "KeyError" in answer.reason
    assert len(lines(tmp_path)) == 1
    assert "red ball" not in caplog.text + answer.reason + lines(tmp_path)[0]["error"]
    answer, backend = goals(lambda call: "- go to the red ball", tmp_path)
    assert backend.asked == []


def test_who_looks_at_the_health_at_one_moment_shares_a_probe(tmp_path):
    async def go():
        backend, probes, gate = FakeBackend(), [], asyncio.Event()

        async def probe():
            probes.append(1)
            await gate.wait()

        backend.probe = probe
        service = make(tmp_path, backend)
        looks = [asyncio.ensure_future(service.health()) for _ in range(5)]
        await asyncio.sleep(0)
        looks.pop().cancel()
        await asyncio.sleep(0)
        gate.set()
        assert {(await look)[0] for look in looks} == {True}
        assert len(probes) == 1
        await service.close()

    asyncio.run(go())


def test_a_probe_that_costs_money_is_in_the_ledger_and_is_not_sent_beyond_a_cap(tmp_path):
    async def go():
        clock, server = FakeClock(), FaultyServer()
        server._look_up = lambda path: (404, {"error": "there is no list of models"})
        prices = {"dollars_per_million_prompt_tokens": 1.0, "dollars_per_million_completion_tokens": 1.0}
        backend = openai.make(openai.Config(model="m", base_url=await server.start(), **prices), NOWHERE)
        cost = sum(backend.estimate(await backend.probe()))  # tokens that are put aside
        service = make(tmp_path, backend, clock, limits=LimitsConfig(tokens=cost), probe_s=1.0)
        assert await service.health() == (True, f"{backend.model} works")
        assert server.billed.total() == 1
        assert 0 < service.ledger.tokens <= cost
        assert service.ledger.dollars == pytest.approx(service.ledger.tokens / 1e6)
        assert not len(service.journal), "it is no answer to anyone"
        await clock.sleep(100)
        ok, reason = await service.health()
        assert not ok
        assert f"limits.tokens is {cost}" in reason
        assert server.billed.total() == 1
        await service.close()
        await server.close()

    asyncio.run(go())


def test_health_is_a_recent_success_or_a_piece_of_work(tmp_path):
    async def go():
        clock, backend = FakeClock(), FakeBackend()
        probes = []

        async def probe():
            probes.append(clock.now())
            if clock.now() > 100:
                raise Overloaded("down")

        backend.probe = probe
        service = make(tmp_path, backend, clock)
        assert await service.health() == (True, "fake works")
        await service.ask(raw("a"))
        assert (await service.health())[0]
        assert len(probes) == 1
        await clock.sleep(150)
        assert await service.health() == (False, "down")
        assert await service.health() == (False, "down")
        assert len(probes) == 2
        await service.close()

    asyncio.run(go())
