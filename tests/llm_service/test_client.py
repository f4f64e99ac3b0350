"""The two doors: equal answers through a server and without one, whatever the size of a request and whatever fails."""

import asyncio
import socket
import threading

import numpy as np
import pytest

from benchmarks.local_client import Local
from llm_service.client import Client, ServiceAway, connect
from llm_service.errors import UsageError
from llm_service.interface import Unanswered
from llm_service.records import Ask, Parameters, Source, Status
from tests.llm_service.echo import Echo, Running


@pytest.fixture(autouse=True)
def _no_token_around(monkeypatch):
    monkeypatch.delenv("CAIRN_LLM_TOKEN", raising=False)


@pytest.fixture(params=["local", "client", "split"])
def client(request, tmp_path):
    """The same service behind each door; `split` sends three items at most where the server takes two."""
    if request.param == "local":
        with Local(Echo(), caller="me") as local:
            yield local
        return
    small = request.param == "split"
    with Running(tmp_path, max_items=2 if small else 4096) as running:
        with connect(tmp_path, caller="me", max_items=3 if small else 4096) as client:
            yield client
        assert running.call(running.echo.health()) == (True, "")


# both doors


def test_generate_gives_answers_in_order(client):
    prompts = [f"prompt {i} → ünïcode" for i in range(11)]
    for _ in range(2):  # from the model, then from memory
        answers = client.generate(prompts)
        assert [answer.value for answer in answers] == prompts
        assert {answer.source for answer in answers} == {Source.MEMORY}
    assert client.generate([]) == []


def test_items_fail_alone_and_cost_alone(client):
    answers = client.generate(["a", "refuse me", "b", "c", "refuse me too"])
    assert [answer.status.name for answer in answers] == ["OK", "REFUSED", "OK", "OK", "REFUSED"]
    assert [answer.reason for answer in answers] == ["", "asked to refuse", "", "", "asked to refuse"]
    assert [answer.tokens for answer in answers] == [0, 3, 0, 0, 3]
    assert [answer.dollars for answer in answers] == [0.0, 0.5, 0.0, 0.0, 0.5]


def test_score_takes_one_set_for_all_or_one_for_each(client):
    prompts = ["a", "bb", "ccc", "dddd", "eeeee"]
    shared = client.score(prompts, ["x", "yy"])
    assert [answer.scores.tolist() for answer in shared] == [[-n - 1.0, -n - 2.0] for n in range(1, 6)]
    own = client.score(prompts, [["x" * n] * (1 + n % 2) for n in range(1, 6)], Parameters(normalise="tokens"))
    assert [answer.scores.tolist() for answer in own] == [[-2.0 * n] * (1 + n % 2) for n in range(1, 6)]


def test_embed_gives_a_matrix(client):
    vectors = client.embed(["a", "bb", "ccc", "dddd"])
    assert vectors.dtype == np.float32
    assert vectors.tolist() == [[1, 1], [2, 1], [3, 1], [4, 1]]
    assert client.embed([]).shape == (0, 0)
    with pytest.raises(Unanswered, match="text 1 has no vector: refused: asked to refuse"):
        client.embed(["a", "refuse me"])


def test_durable_work_is_fetched_by_its_keys(client):
    keys, status = client.accept(Ask("generate", ("a", "b", "c", "d", "e")))
    assert status == [Status.PENDING] * 5
    assert len(set(keys)) == 5
    assert client.accept(Ask("generate", ("a", "b", "c", "d", "e"))) == (keys, status)  # asking twice is safe
    fetched = client.fetch(["nonsense", *keys[:1]], wait_s=0.01)
    assert [answer.status for answer in fetched] == [Status.MISSING, Status.OK]
    assert [answer.value for answer in client.fetch(keys[:2])] == ["a", "b"]


def test_misuse_raises(client):
    with pytest.raises(UsageError, match="unknown task 'none'"):
        client.generate(["a"], task="none")
    with pytest.raises(UsageError, match="unknown task"):
        client.ask("none", [{}])
    with pytest.raises(UsageError, match="unknown task"):
        client.submit("none", [{}])


def test_later_does_not_wait(client):
    first = client.later(client.generate, ["slow"], deadline=30.0)
    second = client.later(client.score, ["a"], ["x"])
    assert second.result(20)[0].scores.tolist() == [-2.0]
    assert not first.done()
    client.close()
    assert first.result(20)[0].status is Status.AWAY


def test_a_closed_client_answers_away(client):
    client.close()
    client.close()
    (answer,) = client.generate(["a"])
    assert answer.status is Status.AWAY
    assert "closed" in answer.reason
    assert client.fetch(["key"])[0].status is Status.AWAY
    assert client.accept(Ask("generate", ("a",))) == ([""], [Status.AWAY])
    assert client.health()[0] is False


def test_state_and_numbers_are_told(client):
    assert client.health() == (True, "")
    client.score(["a"], ["x"])
    assert client.stats()["echo/entered"] == 1.0


def test_many_threads_share_a_client(client):
    futures = [client.later(client.generate, [f"{i} {j}" for j in range(5)]) for i in range(40)]
    for i, future in enumerate(futures):
        assert [answer.value for answer in future.result(30)] == [f"{i} {j}" for j in range(5)]


# the client


@pytest.mark.parametrize("bad", ["half \ud83d of a pair", "x" * 50])
@pytest.mark.parametrize("n", [1, 2, 33])
def test_an_item_that_cannot_travel_fails_alone(tmp_path, bad, n):
    with Running(tmp_path, max_characters=40), connect(tmp_path) as client:
        for where in {0, n // 2, n - 1}:
            prompts = [f"prompt {i}" for i in range(n)]
            prompts[where] = bad
            answers = client.generate(prompts)
            assert [i for i, answer in enumerate(answers) if not answer.ok] == [where]
            assert answers[where].status is Status.REFUSED
            assert "pair" in answers[where].reason or "limit is 40" in answers[where].reason
            assert bad not in answers[where].reason
            keys, status = client.accept(Ask("generate", tuple(prompts)))
            assert [i for i, key in enumerate(keys) if not key] == [where]
            assert status[where] is Status.REFUSED


@pytest.mark.parametrize(("server_mb", "client_mb"), [(1, 64), (64, 1), (1, 1)])
def test_large_requests_and_replies_are_split(tmp_path, server_mb, client_mb):
    prompts = [f"{i} " + "ä" * 150_000 for i in range(9)]  # 300 kB each, 2.7 MB in all
    with Running(tmp_path, max_message_mb=server_mb) as running, connect(tmp_path, max_message_mb=client_mb) as client:
        assert [answer.value for answer in client.generate(prompts)] == prompts
        assert running.echo.entered > 2


def test_what_is_too_large_alone_is_refused(tmp_path):
    with Running(tmp_path, max_characters=3 << 20), connect(tmp_path, max_message_mb=1) as client:
        answers = client.generate(["a", "x" * (2 << 20), "b"])
        assert [answer.status for answer in answers] == [Status.OK, Status.REFUSED, Status.OK]
        assert "limit" in answers[1].reason


def test_numbers_that_do_not_fit_are_misuse(tmp_path):
    with Running(tmp_path), connect(tmp_path) as client:
        with pytest.raises(UsageError, match="cannot be sent"):
            client.generate(["a"], sample=-1)
        with pytest.raises(UsageError, match="temperature"):
            client.generate(["a"], parameters=Parameters(temperature=-1.0))


def test_connect_finds_address_and_token(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="no LLM service is ready"):
        connect(tmp_path)
    with pytest.raises(UsageError, match="there is no folder"):
        connect(tmp_path / "nowhere")
    with Running(tmp_path) as running:
        assert connect(tmp_path).health() == (True, "")
        with pytest.raises(UsageError, match="no token"):
            connect(running.address)
        with pytest.raises(UsageError, match="refuses this caller"):
            connect(tmp_path, token="wrong").generate(["a"])
        token = (tmp_path / "token").read_text()
        assert connect(running.address, token).health() == (True, "")
        monkeypatch.setenv("CAIRN_LLM_TOKEN", token)
        assert connect(running.address).health() == (True, "")


def test_a_client_finds_the_successor_and_its_token(tmp_path):
    with Running(tmp_path) as running, connect(tmp_path) as client:
        first = running.address
        assert client.generate(["a"])[0].ok
        running.drained = running.call(running.server.drain())
        other = socket.create_server(("127.0.0.1", int(first.rpartition(":")[2])))  # the port is another's now
        assert client.generate(["a"], deadline=0.2)[0].status in (Status.AWAY, Status.EXPIRED)
        (tmp_path / "token").unlink()
        with Running(tmp_path) as successor:
            assert successor.address != first
            assert client.generate(["a"], deadline=20.0)[0].ok
        other.close()


def test_the_token_never_travels_in_clear_beyond_loopback():
    listener = socket.create_server(("127.0.0.1", 0))
    with listener, Client(f"0.0.0.0:{listener.getsockname()[1]}", "top-secret-token") as client:
        answer = client.later(client.generate, ["a"], deadline=2.0)
        connection, _ = listener.accept()
        received = connection.recv(10_000)
        connection.close()
        listener.close()
        assert answer.result()[0].status in (Status.AWAY, Status.EXPIRED)
    assert received[0] == 22  # a TLS handshake
    assert b"top-secret" not in received


def test_the_token_is_in_no_text_of_the_client(tmp_path):
    with Client("127.0.0.1:1", "top-secret-token") as client:
        assert "top-secret" not in repr(client) + repr(client.generate(["a"])) + repr(vars(client)["_link"])


@pytest.mark.parametrize("when_away", ["none", "stop", "wait"])
def test_policies_while_the_service_is_away(when_away):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound and not listening: nobody else gets it
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        with Client(address, "token", when_away=when_away) as client:
            if when_away == "stop":
                for call in (
                    lambda: client.generate(["a"]),
                    lambda: client.accept(Ask("generate", ("a",))),
                    lambda: client.fetch(["a"]),
                    client.stats,
                ):
                    with pytest.raises(ServiceAway, match=f"the LLM service at {address} is unavailable"):
                        call()
            else:
                answers = client.generate(["a", "b"], deadline=0.3)
                assert {answer.status for answer in answers} <= {Status.AWAY, Status.EXPIRED}
                assert len(answers) == 2
                assert all(answer.reason for answer in answers)
            assert client.health()[0] is False if when_away != "wait" else True


def test_waiting_outlasts_a_full_service(tmp_path):
    with Running(tmp_path, per_caller=1) as running, connect(tmp_path, when_away="wait") as client:
        futures = [client.later(client.generate, [f"slow {i}"], deadline=30.0) for i in range(3)]
        while client.stats().get("server/busy", 0.0) < 2:  # two were turned away and come again
            threading.Event().wait(0.005)
        running.release()
        assert all(future.result()[0].ok for future in futures)


# the door without a server


def test_memory_is_answered_in_the_callers_thread():
    echo, threads = Echo(), []
    peek = echo.peek
    echo.peek = lambda ask: (threads.append(threading.current_thread()), peek(ask))[1]
    with Local(echo) as client:
        client.generate(["a"])
        client.generate(["a"])
        assert echo.entered == 1
        assert set(threads) == {threading.main_thread()}


def test_a_service_is_made_on_its_own_loop():
    loops = []

    async def start():
        loops.append(asyncio.get_running_loop())
        echo = Echo()
        echo.health = health
        return echo

    async def health():
        loops.append(asyncio.get_running_loop())
        return True, ""

    with Local(start()) as client:
        assert client.health() == (True, "")
    assert loops[0] is loops[1]
    assert loops[0].is_closed()


def test_a_start_that_fails_leaves_no_thread():
    async def start():
        raise UsageError("no such model")

    before = threading.active_count()
    with pytest.raises(UsageError, match="no such model"):
        Local(start())
    assert threading.active_count() == before


def test_closing_closes_the_service():
    echo = Echo()
    with Local(echo) as client:
        waiting = client.later(client.generate, ["slow"], deadline=30.0)
        while not echo.entered:
            threading.Event().wait(0.001)
    assert echo.closed
    assert echo.cancelled
    assert waiting.result(10)[0].status is Status.AWAY


def test_a_service_that_hangs_is_given_up(monkeypatch):
    monkeypatch.setattr("benchmarks.local_client.GRACE_S", 0.05)
    echo = Echo()
    echo.ask = lambda ask: asyncio.Event().wait()
    with Local(echo) as client:
        (answer,) = client.generate(["a"], deadline=0.05)
        assert (answer.status, answer.reason) == (Status.EXPIRED, "the service did not answer within 0.05 s")
