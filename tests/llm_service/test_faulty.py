"""The fake that fails: its grammar, and the same script in this process and over a socket."""

import asyncio
import json
import subprocess
import sys
import urllib.request

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_service.backends import faulty, openai
from llm_service.backends.faulty.server import FaultyServer
from llm_service.errors import BackendError, TimedOut, UsageError
from llm_service.records import Call, Parameters, Reply
from llm_service.world import NOWHERE
from tests.llm_service.fake_clock import FakeClock

CALL = Call("generate", (("user", "go to the red door"),))


def in_process(script, calls, clock=None, **config):
    """What this process' fake says to calls, one batch each."""
    backend = faulty.Faulty(faulty.Config(script=script, **config), clock or FakeClock())

    async def run():
        return [(await backend.answer([call]))[0] for call in calls]

    return asyncio.run(run())


def over_a_socket(script, calls, **config):
    """What the server says to them, through the client."""

    async def run():
        server = FaultyServer(script)
        options = {"model": "m", "base_url": await server.start(), "embedding_model": "e"}
        backend = openai.make(openai.Config(**{**options, **config}), NOWHERE)
        try:
            return [(await backend.answer([call]))[0] for call in calls]
        finally:
            await backend.close()
            await server.close()

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("script", "actions"),
    [
        (["ok"], ["ok", "ok", "ok"]),
        (["500*2", "ok"], ["500", "500", "ok", "ok"]),
        (["429:2*2", "hang", "dead"], ["429", "429", "hang", "dead", "dead", "dead"]),
        (["half*1", "garbage"], ["half", "garbage", "garbage"]),
        (["ok*0", "quota"], ["ok", "quota"]),
    ],
)
def test_entries_repeat_and_the_last_one_for_ever(script, actions):
    walk = faulty.steps(script)
    if script[0] == "ok*0":
        actions = actions[1:]
    assert [next(walk).action for _ in actions] == actions


def test_a_status_may_be_a_number_as_yaml_reads_it():
    assert faulty.Config(script=["ok", 429]).script == ["ok", "429"]


def test_arguments():
    walk = faulty.steps(["ok:a: b*c", "429:Wed, 21 Oct 2015 07:28:00 GMT", "slow:0.5*2", "garbage:{}*1", "ok:x\ny*2"])
    taken = [next(walk) for _ in range(7)]
    assert [step.argument for step in taken] == [
        "a: b*c",
        "Wed, 21 Oct 2015 07:28:00 GMT",
        "0.5",
        "0.5",
        "{}",
        "x\ny",
        "x\ny",
    ]


@pytest.mark.parametrize(
    "entry", ["", "okay", "200", "42", "slow", "slow:x", "slow:-1", "hang:3", "ok*", "ok*-1", "OK", "*3"]
)
def test_what_is_not_in_the_grammar_is_one_sentence(entry):
    with pytest.raises(UsageError, match="the script's entry"):
        faulty.make(faulty.Config(script=[entry]), NOWHERE)


@given(st.text(max_size=30))
def test_the_grammar_is_total(entry):
    try:
        step = next(faulty.steps([entry]))
    except UsageError:
        return
    assert step.action in {*faulty.PLAIN, "slow"} or step.status


CASES = [
    "ok",
    "ok:turn left",
    "429",
    "429:7",
    "429:soon",
    "500",
    "503:2",
    "404",
    "400",
    "quota",
    "unauthorized",
    "too_long",
    "hang",
    "half",
    "huge",
    "dead",
    "garbage",
    "garbage:{}",
    'garbage:{"error": {"code": 429}}',
    "filtered",
    "slow:0.01",
]


@pytest.mark.parametrize("entry", CASES)
def test_both_forms_do_the_same(entry):
    patience = 0.2 if entry == "hang" else 60.0
    there = over_a_socket([entry], [CALL], timeout_s=patience)
    for first, second in zip(in_process([entry], [CALL]), there, strict=True):
        assert type(first) is type(second)
        if isinstance(first, Reply):
            assert first == second
        else:
            assert getattr(first, "retry_after", None) == getattr(second, "retry_after", None)


def test_both_forms_have_the_same_model():
    calls = [
        Call("generate", (("user", "one two three four"),), parameters=Parameters(max_tokens=2)),
        Call("generate", (("user", "one two three four"),), parameters=Parameters(stop=("three",))),
        Call("score", (("user", "which way?"),), ("left", "right", "straight on"), Parameters(normalise="tokens")),
        Call("embed", (("user", "a red door"),)),
    ]
    here, there = in_process(["ok"], calls), over_a_socket(["ok"], calls, api="completions")
    assert [r.text for r in here] == [r.text for r in there] == ["one two", "one two ", "", ""]
    assert here[2].scores == pytest.approx(there[2].scores)
    np.testing.assert_allclose(here[3].vector, there[3].vector, atol=1e-6)
    assert [r.prompt_tokens for r in here] == [r.prompt_tokens for r in there]
    assert [r.completion_tokens for r in here] == [r.completion_tokens for r in there]


@given(st.text())
def test_tokens_together_are_the_text(text):
    assert "".join(faulty.tokens(text)) == text
    assert all(-5 <= p < -1 for p in faulty.logprobs(text))


def test_time_in_this_process_is_the_clocks():
    clock = FakeClock()
    replies = in_process(["slow:3", "hang", "ok"], [CALL] * 3, clock, latency_s=0.5, per_item_s=0.25, timeout_s=60.0)
    assert clock.slept == [3.75, 60.75, 0.75]
    assert [type(reply) for reply in replies] == [Reply, TimedOut, Reply]


def test_a_batch_takes_a_step_for_each_call_and_as_long_as_its_slowest():
    clock = FakeClock()
    backend = faulty.Faulty(faulty.Config(script=["slow:1", "slow:2", "429", "ok"], per_item_s=0.1), clock)
    replies = asyncio.run(backend.answer([CALL] * 4))
    assert [isinstance(reply, BackendError) for reply in replies] == [False, False, True, False]
    assert clock.slept == [pytest.approx(2.4)]
    assert len(backend.calls) == 4


def test_it_costs_what_it_is_told_to():
    free, paid = (faulty.Faulty(faulty.Config(dollars_per_million_tokens=price)) for price in (0.0, 2.0))
    assert (free.paid, free.price(10**6, 10**6)) == (False, 0.0)
    assert (paid.paid, paid.price(10**6, 10**6)) == (True, 4.0)
    reply = in_process(["ok"], [CALL])[0]
    prompt, completion = paid.estimate(CALL)
    assert prompt >= reply.prompt_tokens
    assert completion >= reply.completion_tokens


def test_one_at_a_time_like_one_gpu():
    """While one request is at work the next waits, so that a shared request is worth it."""

    async def run(serial):
        working, most = 0, 0
        server = FaultyServer(["ok"], per_item_s=0.001, serial=serial)
        sleep = asyncio.sleep

        async def counted(seconds):
            nonlocal working, most
            working += seconds > 0
            most = max(most, working)
            await sleep(seconds)
            working -= seconds > 0

        url = await server.start()
        backend = openai.make(openai.Config(model="m", base_url=url), NOWHERE)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asyncio, "sleep", counted)
            replies = await backend.answer([Call("generate", (("user", str(i)),)) for i in range(20)])
        assert [reply.text for reply in replies] == [str(i) for i in range(20)]
        await backend.close()
        await server.close()
        return most

    assert asyncio.run(run(serial=True)) == 1
    assert asyncio.run(run(serial=False)) > 1


@pytest.fixture
def process():
    """The server as a process of its own, and its base URL."""
    words = [
        sys.executable,
        "-m",
        "llm_service.backends.faulty",
        "--script",
        "half",
        "garbage",
        "429",
        "ok",
        "--serial",
    ]
    server = subprocess.Popen([*words, "--latency", "0.001", "--per-item", "0.001"], stdout=subprocess.PIPE, text=True)
    yield server.stdout.readline().strip()
    server.kill()
    server.wait()


def fetch(url, body=None):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(url, None if body is None else json.dumps(body).encode())
    try:
        with opener.open(request, timeout=30) as page:
            return page.status, json.load(page)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_a_process_of_its_own_bills_what_it_made_even_if_it_never_arrived(process):
    assert process.startswith("http://127.0.0.1:")

    async def run():
        backend = openai.make(openai.Config(model="m", base_url=process), NOWHERE)
        replies = [(await backend.answer([CALL]))[0] for _ in range(4)]
        await backend.close()
        return replies, CALL.key(backend.model)

    replies, key = asyncio.run(run())
    assert [type(reply).__name__ for reply in replies] == ["Garbled", "Garbled", "RateLimited", "Reply"]
    root = process.removesuffix("/v1")
    assert fetch(f"{root}/billed") == (200, {"requests": 4, "total": 3, "calls": {key: 3}})
    assert fetch(f"{process}/models")[1]["data"][0]["id"] == "faulty"
    assert fetch(f"{process}/nothing")[0] == 404
    assert fetch(f"{process}/chat/completions", {"model": "m"})[0] == 400
    assert fetch(f"{process}/chat/completions", [])[0] == 404


def test_a_wrong_script_ends_it_with_code_2():
    words = [sys.executable, "-m", "llm_service.backends.faulty", "--script", "sometimes"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 2
    assert "the script's entry 'sometimes' is not known" in done.stderr
