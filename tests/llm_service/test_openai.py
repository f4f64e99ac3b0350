"""The OpenAI backend against a real server on loopback: every branch of the error tree, scores, prices, secrets."""

import asyncio
import contextlib
import copy
import functools
import gzip
import json
import math
import os
import subprocess
import sys
import traceback
import tracemalloc
import urllib.request
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llm_service.backends import faulty, openai
from llm_service.backends.faulty import server as faulty_server
from llm_service.backends.faulty.server import FaultyServer
from llm_service.backends.openai import protocol as openai_protocol
from llm_service.errors import (
    BackendError,
    ContextTooLong,
    Garbled,
    Overloaded,
    QuotaExhausted,
    RateLimited,
    Refused,
    TimedOut,
    Unauthorized,
    Unreachable,
    Unsupported,
    UsageError,
)
from llm_service.records import Call, Parameters
from llm_service.world import NOWHERE

SECRET = "sk-planted-0123456789abcdef"
PROMPT = "the planted prompt of the mission"
CHAT = Call("generate", (("system", "be brief"), ("user", PROMPT)))


@pytest.fixture(autouse=True)
def key(monkeypatch):
    """A key in the environment, and no proxy."""
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # loopback must not go through it
    monkeypatch.delenv("NO_PROXY", raising=False)


@functools.cache
def hosted():
    """One that would talk to OpenAI's own server; made once, since that takes a while."""
    os.environ.setdefault("OPENAI_API_KEY", SECRET)
    return openai.make(openai.Config(model="m"), NOWHERE)


def against(script, use, config=None, **options):
    """What `use(backend, server)` returns, with a backend that talks to a server with a script."""

    async def run():
        server = FaultyServer([script] if isinstance(script, str) else script, **options)
        url = await server.start()
        backend = openai.make(openai.Config(**{"model": "m", "base_url": url, **(config or {})}), NOWHERE)
        try:
            return await use(backend, server)
        finally:
            await backend.close()
            await server.close()

    return asyncio.run(run())


def one(script, call=CHAT, config=None):
    """The reply or error to one call, and the server."""

    async def use(backend, server):
        return (await backend.answer([call]))[0], server

    return against(script, use, config)


# ---- what comes back ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_generate(api):
    call = Call("generate", (("user", PROMPT),), parameters=Parameters(0.7, 50, ("\n", "end"), 3), sample=2)
    reply, server = one("ok:go to the red door end of it", call, {"api": api})
    assert reply.text == "go to the red door "
    assert reply.prompt_tokens == len(faulty.tokens(PROMPT))
    assert reply.completion_tokens == len(faulty.tokens(reply.text))
    sent = server.seen[0]
    assert sent.headers["authorization"] == f"Bearer {SECRET}"
    host = sent.headers["host"]
    assert sent.headers["idempotency-key"] == call.key(openai_name(api, f"http://{host}/v1"))
    assert {name: sent.body[name] for name in ("model", "temperature", "max_tokens", "stop")} == {
        "model": "m",
        "temperature": 0.7,
        "max_tokens": 50,
        "stop": ["\n", "end"],
    }
    if api == "chat":
        assert sent.body["messages"] == [{"role": "user", "content": PROMPT}]
    else:
        assert sent.body["prompt"] == PROMPT


def openai_name(api, url):
    return openai.make(openai.Config(model="m", api=api, base_url=url), NOWHERE).model


def test_samples_are_drawn_apart_and_a_certain_answer_needs_no_seed():
    seeds = set()
    for sample in range(4):
        call = Call("generate", (("user", "x"),), parameters=Parameters(temperature=1.0), sample=sample)
        seeds.add(one("ok", call)[1].seen[0].body["seed"])
    assert len(seeds) == 4
    assert "seed" not in one("ok")[1].seen[0].body


def test_further_fields_headers_and_query(monkeypatch):
    monkeypatch.setenv("AZURE_KEY", "azure-secret")
    monkeypatch.delenv("OPENAI_API_KEY")
    config = {
        "body": {"temperature": None, "reasoning_effort": "low", "chat_template_kwargs": {"enable_thinking": False}},
        "headers": {"x-title": "cairn"},
        "header_env": {"api-key": "AZURE_KEY"},
        "query": {"api-version": "2024-10-21"},
    }
    reply, server = one("ok:fine", config=config)
    assert reply.text == "fine"
    sent = server.seen[0]
    assert "temperature" not in sent.body
    assert sent.body["reasoning_effort"] == "low"
    assert (sent.headers["x-title"], sent.headers["api-key"]) == ("cairn", "azure-secret")
    assert sent.query == "api-version=2024-10-21"
    assert "authorization" not in sent.headers, "there is no such key, so none is sent"


def test_secrets_are_read_from_the_environment_when_a_request_is_sent_and_get_into_no_log(monkeypatch, caplog):
    monkeypatch.delenv("OPENAI_API_KEY")
    caplog.set_level(0)
    config = {
        "embedding_model": "e",
        "header_env": {"authorization": "MY_HEADER"},
        "query": {"api-version": "1"},
        "query_env": {"key": "MY_QUERY"},
        "body": {"top_k": 3},
        "body_env": {"project": "MY_BODY"},
    }

    async def use(backend, server):
        for turn in ("first", "second"):
            for name in ("HEADER", "QUERY", "BODY"):
                monkeypatch.setenv(f"MY_{name}", f"planted-{name}-{turn}")
            for call in (CHAT, Call("embed", (("user", "x"),))):
                assert not isinstance((await backend.answer([call]))[0], BackendError)
        await backend.probe()
        monkeypatch.delenv("MY_BODY")
        return (await backend.answer([CHAT]))[0], server

    for name in ("HEADER", "QUERY", "BODY"):
        monkeypatch.setenv(f"MY_{name}", "there at the start")
    error, server = against("ok", use, config)
    assert [(sent.headers["authorization"], sent.query, (sent.body or {}).get("project")) for sent in server.seen] == [
        *[("planted-HEADER-first", "api-version=1&key=planted-QUERY-first", "planted-BODY-first")] * 2,
        *[("planted-HEADER-second", "api-version=1&key=planted-QUERY-second", "planted-BODY-second")] * 2,
        ("planted-HEADER-second", "api-version=1&key=planted-QUERY-second", None),
    ]
    assert [(sent.body or {}).get("top_k") for sent in server.seen] == [3, None, 3, None, None]
    assert type(error) is Unauthorized
    assert "llm.body_env.project: the environment variable MY_BODY is not set" in str(error)
    assert "planted" not in caplog.text


def test_what_changes_answers_changes_the_name():
    names = {
        openai.make(openai.Config(model="m", **more), NOWHERE).model
        for more in ({}, {"api": "completions"}, {"body": {"reasoning_effort": "low"}}, {"embedding_model": "e"})
    }
    assert len(names) == 4
    assert "m" in names


def test_a_batch_is_sent_at_once_and_fails_item_by_item():
    async def use(backend, server):
        calls = [Call("generate", (("user", f"question {i}"),)) for i in range(6)]
        return await backend.answer(calls), server

    replies, server = against(["ok", "429:2", "ok", "too_long", "half", "ok"], use)
    kinds = sorted(type(reply).__name__ for reply in replies)
    assert kinds == ["ContextTooLong", "Garbled", "RateLimited", "Reply", "Reply", "Reply"]
    for i, reply in enumerate(replies):
        assert isinstance(reply, BackendError) or reply.text == f"question {i}"
    assert server.billed.total() == 4, "a reply that was cut is charged too"


@pytest.mark.parametrize("normalise", ["none", "tokens"])
def test_scores_of_completions_are_those_of_the_model(normalise):
    candidates = ("go forward", " turn left", "pick up the key and go to the door", "é", "")
    call = Call("score", (("user", "What now? Answer:"),), candidates, Parameters(normalise=normalise))
    reply, server = one("ok", call, {"api": "completions"})
    reference = asyncio.run(faulty.Faulty(faulty.Config()).answer([call]))[0]
    assert reply.scores == pytest.approx(reference.scores, abs=1e-12)
    assert all(score < -1 for score in reply.scores[:-1])
    assert reply.scores[-1] == 0.0
    assert len(server.seen) == 1, "all candidates share one request"


def test_a_token_before_the_prompt_and_one_across_the_border_do_not_matter():
    assert openai_protocol.tail(["<s>", "ab", "c go", " on"], [None, -1.0, -2.0, -4.0], "go on") == (-6.0, 2)
    with pytest.raises(Unsupported, match="does not echo"):
        openai_protocol.tail(["yes"], [-1.0], "go on")
    with pytest.raises(Garbled):
        openai_protocol.tail(["go on"], [None], "go on")
    with pytest.raises(Garbled):
        openai_protocol.tail(["go", " on"], [-1.0], "go on")


def test_first_tokens_of_a_chat_server():
    call = Call("score", (("user", PROMPT),), ("yes", "no"))
    reply, server = one("ok:perhaps", call)
    for candidate, score in zip(call.candidates, reply.scores, strict=True):
        variants = [faulty.logprob(PROMPT, word) for word in (candidate, f" {candidate}")]
        assert score == pytest.approx(np.logaddexp(*variants))
    assert server.seen[0].body["max_tokens"] == 1
    assert server.seen[0].body["top_logprobs"] == 20


def test_first_tokens_choose_the_longest_and_refuse_what_they_cannot_tell_apart():
    ranked = [("turn", -0.5), (" turn", -1.0), ("t", -9.0), ("take", -2.0), ("\n", -3.0)]
    turn, take, other = openai_protocol.first_tokens(ranked, ["turn left", "take it", "open"])
    assert turn == pytest.approx(np.logaddexp(-0.5, -1.0))
    assert (take, other) == (-2.0, -9.0), "what is not listed is at most as probable as the last that is"
    with pytest.raises(Unsupported, match="begin with the same token"):
        openai_protocol.first_tokens(ranked, ["turn left", "turn right"])
    with pytest.raises(Unsupported, match="none of the candidates"):
        openai_protocol.first_tokens(ranked, ["yes", "no"])
    with pytest.raises(Unsupported):
        openai_protocol.first_tokens([], ["yes", "no"])
    assert openai_protocol.first_tokens([("yes", -9999.0), ("no", 0.1)], ["yes", "no"]) == (-9999.0, 0.0)


@pytest.mark.parametrize("logprobs", ["null", "{}", '{"content": null}', '{"content": []}'])
def test_a_chat_server_without_probabilities_cannot_score(logprobs):
    choice = '{"index": 0, "message": {"content": "yes"}, "logprobs": ' + logprobs + "}"
    body = '{"choices": [' + choice + "]}"
    assert isinstance(one(f"garbage:{body}", Call("score", (("user", "x"),), ("yes", "no")))[0], Unsupported)


def test_embeddings_share_one_request_come_back_in_order_and_of_unit_length():
    async def use(backend, server):
        calls = [Call("embed", (("user", f"text {i}"),)) for i in range(7)]
        return await backend.answer(calls), server

    replies, server = against("ok", use, {"embedding_model": "e", "max_batch": 16})
    assert len(server.seen) == 1
    assert server.seen[0].body["model"] == "e"
    for i, reply in enumerate(replies):
        np.testing.assert_allclose(reply.vector, faulty.embedding(f"text {i}"), atol=1e-6)
        assert reply.vector.dtype == np.float32
        assert np.linalg.norm(reply.vector) == pytest.approx(1.0)
    assert sum(reply.prompt_tokens for reply in replies) == sum(len(faulty.tokens(f"text {i}")) for i in range(7))


def test_one_bad_text_does_not_spoil_the_embeddings_of_the_others():
    async def use(backend, server):
        return await backend.answer([Call("embed", (("user", f"text {i}"),)) for i in range(3)])

    replies = against(["too_long", "ok", "too_long", "ok"], use, {"embedding_model": "e"})
    assert isinstance(replies[1], ContextTooLong)
    np.testing.assert_allclose(replies[2].vector, faulty.embedding("text 2"), atol=1e-6)


def test_missing_usage_is_estimated():
    reply, _ = one(
        'garbage:{"choices": [{"message": {"content": "' + "a" * 3000 + '"}}], "usage": {"prompt_tokens": -1}}'
    )
    estimate = openai.make(openai.Config(model="m"), NOWHERE).estimate(CHAT)
    assert reply.prompt_tokens == estimate[0]
    assert reply.completion_tokens == 256, "never more than was reserved"


# ---- the error tree -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "kind", "wait"),
    [
        ("429", RateLimited, None),
        ("429:2", RateLimited, 2.0),
        ("429:0.25", RateLimited, 0.25),
        ("429:soon", RateLimited, None),
        ("500", Overloaded, None),
        ("503:7", Overloaded, 7.0),
        ("408", Overloaded, None),
        ("409", Overloaded, None),
        ("quota", QuotaExhausted, None),
        ("402", QuotaExhausted, None),
        ("unauthorized", Unauthorized, None),
        ("401", Unauthorized, None),
        ("403", Unauthorized, None),
        ("too_long", ContextTooLong, None),
        ("400", Refused, None),
        ("404", Refused, None),
        ("422", Refused, None),
        ("302", Refused, None),
        ("dead", Unreachable, None),
        ("half", Garbled, None),
        ("huge", Garbled, None),
        ("garbage", Garbled, None),
        ("garbage:", Garbled, None),
        ("garbage:[]", Garbled, None),
        ("garbage:{}", Garbled, None),
        ('garbage:{"choices": []}', Garbled, None),
        ('garbage:{"choices": [{"message": {"content": 7}}]}', Garbled, None),
        ('garbage:{"choices": [{"message": null}]}', Garbled, None),
        ('garbage:{"choices": [{"message": {"content": "x"}}], "x": NaN}', Garbled, None),
        ("garbage:" + "[" * 100_000, Garbled, None),
        ('garbage:{"error": {"code": 429, "message": "slow down"}}', RateLimited, None),
        ('garbage:{"error": {"code": "insufficient_quota"}}', QuotaExhausted, None),
        ('garbage:{"error": "overloaded"}', Overloaded, None),
        ('garbage:{"choices": [{"message": {"content": null, "refusal": "I will not"}}]}', Refused, None),
        ("filtered", Refused, None),
    ],
)
def test_every_branch_of_the_error_tree(script, kind, wait):
    error, _ = one(script)
    assert type(error) is kind, error
    assert getattr(error, "retry_after", None) == wait
    told = str(error) + "".join(traceback.format_exception(error))
    assert SECRET not in told
    assert PROMPT not in told
    assert "\n" not in str(error)


BOMB = 64 << 20
"""Bytes that a small compressed body becomes."""


def packed(encodings):
    body = b" " * BOMB
    for name in encodings.split(", "):
        body = {"gzip": gzip.compress, "deflate": zlib.compress, "identity": bytes}[name](body)
    return body


@pytest.mark.parametrize("encodings", ["identity", "gzip", "deflate", "gzip, gzip"])
def test_no_more_of_a_reply_is_read_than_the_limit_whatever_its_status_and_encoding(encodings):
    body = packed(encodings)

    async def error_and_peak(status):
        async def serve(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            head = f"HTTP/1.1 {status} X\r\nContent-Encoding: {encodings}\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode())
            with contextlib.suppress(ConnectionError):  # the client leaves early
                for start in range(0, len(body), 1 << 16):
                    writer.write(body[start : start + (1 << 16)])
                    await writer.drain()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        backend = openai.make(openai.Config(model="m", base_url=url, max_reply_bytes=1_000_000), NOWHERE)
        tracemalloc.start()
        try:
            error = (await backend.answer([CHAT]))[0]
            return type(error), tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
            await backend.close()
            server.close()

    statuses = {200: Garbled, 302: Refused, 401: Unauthorized, 429: RateLimited, 503: Overloaded}
    for status, kind in statuses.items():
        found, peak = asyncio.run(error_and_peak(status))
        assert found is kind, "the status is known, and how the body ends does not matter"
        assert peak < 16 << 20


def test_the_fake_server_does_repeat_what_must_not_be_passed_on():
    _, server = one("400")
    said = json.dumps(faulty_server._refusal(faulty.Step("400"), server.seen[0]))
    assert SECRET in said
    assert PROMPT in said


def test_a_refused_key_is_named_by_its_variable_and_never_shown(monkeypatch):
    error, _ = one("401")
    assert "check llm.api_key_env, the environment variable OPENAI_API_KEY" in str(error)
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.setenv("AZURE_KEY", SECRET)
    error, _ = one("401", config={"header_env": {"api-key": "AZURE_KEY"}})
    assert "check llm.header_env.api-key, the environment variable AZURE_KEY" in str(error)
    assert SECRET not in str(error)


def test_a_server_that_hangs_is_given_up():
    error, _ = one("hang", config={"timeout_s": 0.1})
    assert type(error) is TimedOut
    assert error.maybe_billed


def test_a_server_that_drips_is_given_up_though_every_read_succeeds():
    async def run():
        async def drip(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
            try:
                while True:
                    writer.write(b" ")
                    await writer.drain()
                    await asyncio.sleep(0.01)
            except ConnectionError:
                writer.close()

        server = await asyncio.start_server(drip, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        backend = openai.make(openai.Config(model="m", base_url=url, timeout_s=0.2), NOWHERE)
        error = (await backend.answer([CHAT]))[0]
        await backend.close()
        server.close()
        return error

    assert type(asyncio.run(run())) is TimedOut


def test_nobody_listens():
    async def use(backend, server):
        await server.close()
        return (await backend.answer([CHAT]))[0]

    error = against("ok", use)
    assert type(error) is Unreachable
    assert not error.maybe_billed
    assert "is the server running" in str(error)


def test_a_redirect_is_not_followed():
    """It could carry the key and the prompt anywhere."""

    async def run():
        thief = FaultyServer()
        elsewhere = await thief.start()

        async def send_away(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(f"HTTP/1.1 307 Moved\r\nLocation: {elsewhere}/chat/completions\r\n".encode())
            writer.write(b"Content-Length: 0\r\nConnection: close\r\n\r\n")
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(send_away, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        backend = openai.make(openai.Config(model="m", base_url=url), NOWHERE)
        error = (await backend.answer([CHAT]))[0]
        await backend.close()
        server.close()
        await thief.close()
        return error, thief

    error, thief = asyncio.run(run())
    assert type(error) is Refused
    assert not thief.seen


def test_a_server_that_is_killed_is_unreachable_and_its_successor_answers():
    def start(port, script):
        words = [sys.executable, "-m", "llm_service.backends.faulty", "--port", str(port), "--script", script]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        return process, process.stdout.readline().strip()

    def billing(url):
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url.replace("/v1", "/billed")) as page:
            return json.load(page)

    async def run():
        victim, url = start(0, "hang")
        backend = openai.make(openai.Config(model="m", base_url=url), NOWHERE)
        waiting = asyncio.ensure_future(backend.answer([CHAT]))
        while not (await asyncio.to_thread(billing, url))["requests"]:
            await asyncio.sleep(0)
        victim.kill()
        victim.wait()
        first = (await waiting)[0]
        second = (await backend.answer([CHAT]))[0]
        successor, again = start(int(url.rpartition(":")[2].partition("/")[0]), "ok:back")
        assert again == url
        third = (await backend.answer([CHAT]))[0]
        billed = await asyncio.to_thread(billing, url)
        await backend.close()
        successor.kill()
        successor.wait()
        return first, second, third, billed, CHAT.key(backend.model)

    first, second, third, billed, key = asyncio.run(run())
    assert type(first) is Unreachable
    assert first.maybe_billed, "the model may have been at work"
    assert type(second) is Unreachable
    assert not second.maybe_billed
    assert third.text == "back"
    assert billed == {"requests": 1, "total": 1, "calls": {key: 1}}


# ---- reading refusals, without a network ----------------------------------------------------------------------------


def refused(status, body="", **headers):
    text = body if isinstance(body, str) else json.dumps(body)
    return openai_protocol.refusal(status, {k.replace("_", "-"): v for k, v in headers.items()}, text, "host")


@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum context length is 6048 tokens. However, you requested 6616 tokens",
        "You passed 25 input tokens and requested 1000. However, the model's context length is only 1024 tokens",
        "the request exceeds the available context size",
        "the input length exceeds the context length",
        "prompt is too long: 9 tokens > 8 maximum",
        "The decoder prompt (length 9) is longer than the maximum model length of 8",
    ],
)
@pytest.mark.parametrize("shape", ["openai", "vllm", "ollama", "google"])
def test_wordings_of_too_long(message, shape):
    body = {
        "openai": {"error": {"message": message, "type": "invalid_request_error", "code": None}},
        "vllm": {"object": "error", "message": message, "type": "BadRequestError", "code": 400},
        "ollama": {"error": message},
        "google": [{"error": {"message": message, "code": 400}}],
    }[shape]
    assert type(refused(400, body)) is ContextTooLong
    assert type(refused(429, body)) is RateLimited


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"code": "insufficient_quota"}},
        {"error": {"type": "insufficient_quota", "code": None}},
        {"error": {"code": "billing_hard_limit_reached"}},
        "You exceeded your current quota, please check your plan and billing details.",
        "Your credit balance is too low",
    ],
)
def test_wordings_of_no_credit(body):
    assert type(refused(429, body)) is QuotaExhausted
    if isinstance(body, str):
        assert type(refused(429, body, retry_after="3")) is RateLimited, "a limit that is over in a moment"
        assert type(refused(400, body)) is Refused, "such words may be the prompt's"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry_after": "5"}, 5.0),
        ({"retry_after": "0"}, 0.0),
        ({"retry_after": "-5"}, 0.0),
        ({"retry_after": "inf"}, None),
        ({"retry_after": "nan"}, None),
        ({"retry_after": ""}, None),
        ({"retry_after_ms": "1500"}, 1.5),
        ({"retry_after_ms": "1500", "retry_after": "9"}, 1.5),
        ({"retry_after_ms": "x", "retry_after": "9"}, 9.0),
        ({"retry_after": "Wed, 21 Oct 2015 07:28:30 GMT", "date": "Wed, 21 Oct 2015 07:28:00 GMT"}, 30.0),
        ({"retry_after": "Wed, 21 Oct 2015 07:27:00 GMT", "date": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"retry_after": "Wed, 21 Oct 2015 07:28:30 GMT"}, 0.0),
        ({"retry_after": "Wed, 21 Oct 2015 07:28:30 GMT", "date": "yesterday"}, None),
    ],
)
def test_retry_after(headers, seconds):
    assert refused(429, **headers).retry_after == seconds
    assert refused(503, **headers).retry_after == seconds


def test_a_date_without_the_servers_own_counts_from_now():
    assert 0 < refused(429, retry_after="Wed, 21 Oct 2099 07:28:30 GMT").retry_after < math.inf


@settings(max_examples=300, deadline=None)
@given(st.integers(300, 599), st.text(max_size=200) | st.recursive(st.none() | st.text(), st.lists).map(json.dumps))
def test_reading_a_refusal_is_total_and_passes_no_text_on(status, body):
    for text in (body, json.dumps({"error": {"message": PROMPT + body, "code": PROMPT, "type": body}})):
        error = refused(status, text)
        assert isinstance(error, BackendError)
        assert PROMPT not in str(error)
        assert len(str(error)) < 300


@settings(max_examples=300, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=5) | st.integers(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["choices", "message", "content", "error", "usage", "text", "code", "prompt_tokens"]),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_no_reply_makes_the_backend_stumble(record):
    backend = copy.copy(hosted())

    async def reply(*_):
        return openai_protocol.document(json.dumps(record).encode(), "host")

    backend._request = reply
    for verb, candidates in (("generate", ()), ("score", ("yes", "no"))):
        call = Call(verb, (("user", "x"),), candidates)
        end = asyncio.run(backend.answer([call]))[0]
        assert isinstance(end, BackendError | openai.Reply)


# ---- before any call ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"model": ""}, "llm.model is missing"),
        ({"base_url": "ftp://host/v1"}, "not an address"),
        ({"base_url": "host/v1"}, "not an address"),
        ({"base_url": "http://"}, "not an address"),
        ({"base_url": "http://host:99999/v1"}, "not an address"),
        ({"base_url": "https://user:pass@host/v1"}, "leave out user, password"),
        ({"base_url": "https://host/v1?key=x"}, "leave out user, password"),
        ({"base_url": "http://host.example/v1"}, "unencrypted"),
        ({"base_url": "http://10.0.0.7:8000/v1"}, "unencrypted"),
        ({"base_url": "http://127.0.0.1.example/v1"}, "unencrypted"),
        ({"header_env": {"api-key": "NOT_SET_ANYWHERE"}}, "NOT_SET_ANYWHERE is not set"),
        ({"api_key_env": "NOT_SET_ANYWHERE"}, "NOT_SET_ANYWHERE is not set"),
        ({"dollars_per_million_prompt_tokens": 1.0}, "one price is missing"),
    ],
)
def test_what_cannot_work_is_one_sentence_before_any_call(config, sentence):
    with pytest.raises(UsageError, match=sentence) as raised:
        openai.make(openai.Config(**{"model": "m", **config}), NOWHERE)
    assert "pass@" not in str(raised.value)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    ("options", "key", "other"),
    [
        ({"headers": {"Authorization": "Bearer {}"}}, "llm.headers.Authorization", "llm.header_env"),
        ({"headers": {"user-agent": "me", "X-Auth-Token": "{}"}}, "llm.headers.X-Auth-Token", "llm.header_env"),
        ({"headers": {"Bearer {}": "x"}}, "llm.headers.(a name)", "llm.header_env"),
        ({"headers": "Authorization: {}"}, "llm.headers", "llm.header_env"),
        ({"query": {"api-version": "1", "key": "{}"}}, "llm.query.key", "llm.query_env"),
        ({"query": {"subscription-key": 1234509876}}, "llm.query.subscription-key", "llm.query_env"),
        ({"query": ["{}"]}, "llm.query", "llm.query_env"),
        ({"body": {"temperature": 0.5, "api_key": "{}"}}, "llm.body.api_key", "llm.body_env"),
        ({"body": {"provider": {"order": [{"token": "{}"}]}}}, "llm.body.provider.order.token", "llm.body_env"),
        ({"body": {"stop": [[{"token": "{}"}]]}}, "llm.body.stop.token", "llm.body_env"),
        ({"body": {"logit_bias": {"50256": "{}"}}}, "llm.body.logit_bias.50256", "llm.body_env"),
        ({"api_key_env": "{}"}, "llm.api_key_env", "environment variable"),
        ({"header_env": {"Authorization": "{}"}}, "llm.header_env.Authorization", "environment variable"),
        ({"query_env": {"key": ["{}"]}}, "llm.query_env.key", "environment variable"),
        ({"body_env": "{}"}, "llm.body_env", "environment variable"),
        ({"base_url": "https://{}@host/v1"}, "llm.base_url", "llm.header_env"),
        ({"base_url": "https://me:{}@host/v1"}, "llm.base_url", "llm.header_env"),
        ({"base_url": "https://host/v1?key={}"}, "llm.base_url", "llm.query_env"),
        ({"base_url": "https://host/v1#{}"}, "llm.base_url", "llm.query_env"),
        ({"base_url": "{}@host/v1"}, "llm.base_url", "https://host/v1"),
    ],
)
def test_a_secret_in_the_configuration_is_one_sentence_that_does_not_repeat_it(options, key, other):
    hidden = "gsk_1234509876"
    planted = json.loads(json.dumps(options).replace("{}", hidden))
    with pytest.raises(UsageError) as raised:
        openai.Config(model="m", **planted)
    sentence = str(raised.value)
    assert sentence.startswith((f"{key}:", f"{key} "))
    assert other in sentence
    assert "1234509876" not in sentence
    assert "\n" not in sentence


def test_harmless_names_may_have_values():
    body = {"top_p": 0.9, "Stop": ["a"], "reasoning": {"effort": "low"}, "logit_bias": {"50256": -100}, "seed": None}
    config = openai.Config(headers={"User-Agent": "me"}, query={"API-Version": "1"}, body=body)
    assert config.body == body


def test_a_key_that_cannot_stand_in_a_request(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "first\nsecond")
    with pytest.raises(UsageError, match="characters that a request cannot contain") as raised:
        openai.make(openai.Config(model="m"), NOWHERE)
    assert "first" not in str(raised.value)


@pytest.mark.parametrize("url", ["http://localhost:8000/v1", "http://[::1]:8000/v1", "http://127.0.0.5/v1"])
def test_loopback_needs_no_key(monkeypatch, url):
    monkeypatch.delenv("OPENAI_API_KEY")
    backend = openai.make(openai.Config(model="m", base_url=url), NOWHERE)
    assert (backend.paid, backend.price(10**6, 10**6)) == (False, 0.0)


def test_other_environment_variables_do_not_move_the_address(monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://elsewhere.example/v1")
    backend = openai.make(openai.Config(model="m"), NOWHERE)
    assert str(backend._client.base_url).startswith("https://api.openai.com/v1")


def test_prices():
    backend = openai.make(openai.Config(model="m"), NOWHERE)
    assert (backend.paid, backend.price(1000, 1000)) == (True, 0.0)
    prices = {"dollars_per_million_prompt_tokens": 0.15, "dollars_per_million_completion_tokens": 0.6}
    backend = openai.make(openai.Config(model="m", **prices), NOWHERE)
    assert backend.paid
    assert backend.price(2_000_000, 500_000) == pytest.approx(0.6)
    behind_a_tunnel = openai.Config(model="m", base_url="http://127.0.0.1:1/v1", **prices)
    assert openai.make(behind_a_tunnel, NOWHERE).paid


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(max_size=60), min_size=1, max_size=4))
def test_estimates_are_rather_too_high(texts):
    backend = hosted()
    turns = tuple(("user", text) for text in texts)
    prompt, completion = backend.estimate(Call("generate", turns))
    characters = sum(len(text) for text in texts)
    assert prompt >= characters / 3 + 8 * len(texts)
    assert completion == 256
    assert backend.estimate(Call("embed", turns)) == (prompt, 0)
    assert backend.estimate(Call("score", turns, ("a", "b"))) == (prompt, 1)


def test_what_does_not_fit_the_context_is_not_sent():
    error, server = one("ok", config={"context": 100})
    assert type(error) is ContextTooLong
    assert not server.seen


def test_half_a_surrogate_pair_is_refused_and_none_comes_back():
    error, server = one("ok", Call("generate", (("user", "\ud800"),)))
    assert type(error) is Refused
    assert not server.seen
    reply, _ = one('garbage:{"choices": [{"message": {"content": "a\\ud800b"}}]}')
    assert reply.text == "a?b"


def test_the_probe_is_free_and_where_it_cannot_be_it_is_a_call_of_one_token():
    async def use(backend, server):
        assert await backend.probe() is None
        server._look_up = lambda path: (404, {"error": "no"})
        return await backend.probe(), server

    call, server = against("ok", use)
    assert server.billed.total() == 0, "the service pays for it, within its caps"
    assert (call.verb, call.parameters.max_tokens) == ("generate", 1)


def test_a_probe_tells_that_the_server_is_away():
    async def use(backend, server):
        await server.close()
        await backend.probe()

    with pytest.raises(Unreachable):
        against("ok", use)


def test_openais_own_name_for_the_longest_reply():
    backend = openai.make(openai.Config(model="m"), NOWHERE)
    assert backend._longest == "max_completion_tokens"
    assert openai.make(openai.Config(model="m", api="completions"), NOWHERE)._longest == "max_tokens"


def test_at_most_so_many_requests_at_once():
    config = openai.Config(model="m", concurrency=32, max_batch=8)
    backend = openai.make(config, NOWHERE)
    assert backend.concurrency * backend.max_batch == 32
