"""Two services on one Redis: each job is answered by the service that it was given to, by its own model."""

import asyncio
import contextlib
import json

import pytest

from llm_service.backends import openai
from llm_service.backends.faulty.server import FaultyServer
from llm_service.durable.consumer import Consumer
from llm_service.durable.queue import DurableConfig, Queue
from llm_service.errors import UsageError
from llm_service.pipeline.clock import Clock
from llm_service.records import Answer, Ask, Source, Status
from llm_service.server import assembly
from llm_service.settings import LLMConfig
from llm_service.world import NOWHERE, World
from tests.llm_service.fake_backend import FakeBackend

PROMPTS = tuple(f"question {i}" for i in range(20))


@pytest.fixture
def serve(server, tmp_path):
    """Start a service on the common Redis: its folder's name, its backend and options of its configuration."""

    @contextlib.asynccontextmanager
    async def start(folder, backend=None, /, **options):
        durable = {"name": tmp_path.name, "block_s": 0.05, "claim_idle_s": 0.2}
        shared = {"redis": {"url": server.url}, "embedding": {"folder": "backend"}, "durable": durable}
        service = await assembly.start(LLMConfig(**shared | options), tmp_path / folder, backend)
        try:
            yield service
        finally:
            await service.close()

    return start


def named(model):
    """A backend that says its name."""
    return FakeBackend(lambda call: f"{model}: {call.turns[-1][1]}", model=model)


async def submitted(service, *prompts, **fields):
    keys, statuses = await service.submit(Ask("generate", prompts, lane="durable", **fields))
    assert statuses == [Status.PENDING] * len(prompts)
    return keys


async def none_waits(service):
    while (await service.queue.stats())["waiting"]:
        await asyncio.sleep(0.01)


def test_every_job_is_answered_by_its_own_model(serve):
    async def scenario():
        async with serve("b", named("b"), consumers=0) as asks_for_b:
            keys = {"b": await submitted(asks_for_b, *PROMPTS)}
            async with serve("a", named("a"), consumers=2) as a:
                keys["a"] = await submitted(a, *PROMPTS)
                found = {"a": await a.fetch(keys["a"], 30)}
                await none_waits(a)
                assert {each.status for each in await asks_for_b.fetch(keys["b"])} == {Status.PENDING}
                assert {each.status for each in await a.fetch(keys["b"])} == {Status.MISSING}
                async with serve("b's other", named("b")):
                    found["b"] = await asks_for_b.fetch(keys["b"], 30)
        for model in "ab":
            assert [each.value for each in found[model]] == [f"{model}: {prompt}" for prompt in PROMPTS]

    asyncio.run(scenario())


def test_jobs_about_one_world_are_not_answered_by_one_who_knows_another(serve, tmp_path):
    def known(name):
        (tmp_path / f"{name}.json").write_text(World(name=name, about="", actions=["go"]).model_dump_json())
        return {"world": str(tmp_path / f"{name}.json")}

    async def scenario():
        question = json.dumps({"question": "is it late?", "context": []})
        backend = FakeBackend(lambda call: "no")
        async with serve("here", backend, consumers=0, **known("here")) as here:
            keys = await submitted(here, question, task="yes_no")
            async with serve("there", backend, **known("there")) as there:
                others = await submitted(there, question, task="yes_no")
                assert (await there.fetch(others, 30))[0].status is not Status.PENDING
                await none_waits(there)
                assert (await here.fetch(keys))[0].status is Status.PENDING

    asyncio.run(scenario())


def test_equal_names_at_two_addresses_are_two_models(serve):
    async def scenario():
        answers, sources = [], []
        for place in ("one", "two"):
            hosted = FaultyServer([f"ok:from {place}"])
            options = {"name": "openai", "model": "m", "base_url": await hosted.start()}
            async with serve(place, **options) as service:
                for _ in range(2):
                    [found] = await service.ask(Ask("generate", ("where?",)))
                    answers.append(found.value)
                    sources.append(found.source)
                keys = await submitted(service, "where, later?")
                answers.append((await service.fetch(keys, 30))[0].value)
            await hosted.close()
        assert answers == ["from one"] * 3 + ["from two"] * 3
        assert sources == [Source.BACKEND, Source.MEMORY] * 2

    asyncio.run(scenario())


def test_a_job_that_is_not_what_its_key_says_here_is_left_to_another(server, caplog):
    """Of another version, or of an unknown task: as often as it is offered, it is neither answered nor given up."""

    async def scenario():
        config = DurableConfig(name="left", block_s=0.01, claim_idle_s=0.02, deliveries=2)
        asked = []

        async def model(given):
            asked.extend(given.contents)
            return [Answer(Status.OK, json.dumps(text).encode()) for text in given.contents]

        def of_here(given):
            if given.task:
                raise UsageError(f"unknown task {given.task!r}")
            return [f"here {text}" for text in given.contents]

        def of_another(given):
            return [f"another {text}" for text in given.contents]

        async def answered(keys_there, names):
            stop = asyncio.Event()
            consumer = Consumer(queue, model, keys_there, "one", config, Clock())
            running = asyncio.create_task(consumer.run(stop))
            found = await queue.wait(names, 30)
            for _ in range(10):  # offered again and again
                await asyncio.sleep(0.03)
            stop.set()
            await running
            assert (len(consumer.held), consumer.buried) == (0, 0)
            return [each.status for each in found]

        async with server.connect() as redis:
            queue = Queue(redis, config, Clock(), "service")
            await queue.submit(Ask("generate", ("a", "b")), ["here a", "another b"])
            await queue.submit(Ask("generate", ("c",), task="newer"), ["another c"])
            await queue.submit(Ask("generate", ("d",)), ["here d"])
            assert await answered(of_here, ["here a", "here d"]) == [Status.OK] * 2
            assert asked == ["a", "d"]
            others = ["another b", "another c"]
            assert [each.status for each in await queue.fetch(others)] == [Status.PENDING] * 2
            assert await answered(of_another, others) == [Status.OK] * 2
            assert sorted(asked) == list("abcd")

    asyncio.run(scenario())
    assert caplog.text.count("another service must take them") == 1


def test_an_address_is_one_however_it_is_written(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-planted")
    monkeypatch.setenv("GATEWAY_KEY", "planted")

    def name(base_url, **options):
        return openai.make(openai.Config(model="m", base_url=base_url, **options), NOWHERE).model

    assert name("") == name("https://API.openai.com:443/v1/") == "m"
    one = name("https://models.example/v1")
    assert (
        one
        == name("HTTPS://Models.example:443/v1/")
        == name("https://models.example/v1", query_env={"k": "GATEWAY_KEY"})
    )
    assert "planted" not in one
    plain = {"allow_plain_http": True}
    others = {name("http://models.example/v1", **plain), name("https://models.example/v2"), name("https://[::1]:81/v1")}
    assert len(others | {one, name("https://models.example:8443/v1"), name("https://other.example/v1")}) == 6
