"""The two doors: equal answers through a server and without one, whatever the size of a request and whatever fails."""

import asyncio
import socket
import threading

import numpy as np
import pytest

from benchmarks.local_door import Local
from llm_service.client import Client, ServiceAway, connect
from llm_service.door import Unanswered
from llm_service.errors import UsageError
from llm_service.records import Ask, Parameters, Source, Status
from tests.llm_service.echo import Echo, Running


@pytest.fixture(autouse=True)
def _no_token_around(monkeypatch):
    monkeypatch.delenv("CAIRN_LLM_TOKEN", raising=False)


@pytest.fixture(params=["local", "client", "split"])
def door(request, tmp_path):
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


def test_generate_gives_answers_in_order(door):
    prompts = [f"prompt {i} → ünïcode" for i in range(11)]
    for _ in range(2):  # from the model, then from memory
        answers = door.generate(prompts)
        assert [answer.value for answer in answers] == prompts
        assert {answer.source for answer in answers} == {Source.MEMORY}
    assert door.generate([]) == []


def test_items_fail_alone_and_cost_alone(door):
    answers = door.generate(["a", "refuse me", "b", "c", "refuse me too"])
    assert [answer.status.name for answer in answers] == ["OK", "REFUSED", "OK", "OK", "REFUSED"]
    assert [answer.reason for answer in answers] == ["", "asked to refuse", "", "", "asked to refuse"]
    assert [answer.tokens for answer in answers] == [0, 3, 0, 0, 3]
    assert [answer.dollars for answer in answers] == [0.0, 0.5, 0.0, 0.0, 0.5]


def test_score_takes_one_set_for_all_or_one_for_each(door):
    prompts = ["a", "bb", "ccc", "dddd", "eeeee"]
    shared = door.score(prompts, ["x", "yy"])
    assert [answer.scores.tolist() for answer in shared] == [[-n - 1.0, -n - 2.0] for n in range(1, 6)]
    own = door.score(prompts, [["x" * n] * (1 + n % 2) for n in range(1, 6)], Parameters(normalise="tokens"))
    assert [answer.scores.tolist() for answer in own] == [[-2.0 * n] * (1 + n % 2) for n in range(1, 6)]


def test_embed_gives_a_matrix(door):
    vectors = door.embed(["a", "bb", "ccc", "dddd"])
    assert vectors.dtype == np.float32
    assert vectors.tolist() == [[1, 1], [2, 1], [3, 1], [4, 1]]
    assert door.embed([]).shape == (0, 0)
    with pytest.raises(Unanswered, match="text 1 has no vector: refused: asked to refuse"):
        door.embed(["a", "refuse me"])


def test_durable_work_is_fetched_by_its_keys(door):
    keys, status = door.accept(Ask("generate", ("a", "b", "c", "d", "e")))
    assert status == [Status.PENDING] * 5
    assert len(set(keys)) == 5
    assert door.accept(Ask("generate", ("a", "b", "c", "d", "e"))) == (keys, status)  # asking twice is safe
    fetched = door.fetch(["nonsense", *keys[:1]], wait_s=0.01)
    assert [answer.status for answer in fetched] == [Status.MISSING, Status.OK]
    assert [answer.value for answer in door.fetch(keys[:2])] == ["a", "b"]


def test_misuse_raises(door):
    with pytest.raises(UsageError, match="unknown task 'none'"):
        door.generate(["a"], task="none")
    with pytest.raises(UsageError, match="unknown task"):
        door.ask("none", [{}])
    with pytest.raises(UsageError, match="unknown task"):
        door.submit("none", [{}])


def test_later_does_not_wait(door):
    first = door.later(door.generate, ["slow"], deadline=30.0)
    second = door.later(door.score, ["a"], ["x"])
    assert second.result(20)[0].scores.tolist() == [-2.0]
    assert not first.done()
    door.close()
    assert first.result(20)[0].status is Status.AWAY


def test_a_closed_door_answers_away(door):
    door.close()
    door.close()
    (answer,) = door.generate(["a"])
    assert answer.status is Status.AWAY
    assert "closed" in answer.reason
    assert door.fetch(["key"])[0].status is Status.AWAY
    assert door.accept(Ask("generate", ("a",))) == ([""], [Status.AWAY])
    assert door.health()[0] is False


def test_state_and_numbers_are_told(door):
    assert door.health() == (True, "")
    door.score(["a"], ["x"])
    assert door.stats()["echo/entered"] == 1.0


def test_many_threads_share_a_door(door):
    futures = [door.later(door.generate, [f"{i} {j}" for j in range(5)]) for i in range(40)]
    for i, future in enumerate(futures):
        assert [answer.value for answer in future.result(30)] == [f"{i} {j}" for j in range(5)]


# the client


@pytest.mark.parametrize("bad", ["half \ud83d of a pair", "x" * 50])
@pytest.mark.parametrize("n", [1, 2, 33])
def test_an_item_that_cannot_travel_fails_alone(tmp_path, bad, n):
    with Running(tmp_path, max_characters=40), connect(tmp_path) as door:
        for where in {0, n // 2, n - 1}:
            prompts = [f"prompt {i}" for i in range(n)]
            prompts[where] = bad
            answers = door.generate(prompts)
            assert [i for i, answer in enumerate(answers) if not answer.ok] == [where]
            assert answers[where].status is Status.REFUSED
            assert "pair" in answers[where].reason or "limit is 40" in answers[where].reason
            assert bad not in answers[where].reason
            keys, status = door.accept(Ask("generate", tuple(prompts)))
            assert [i for i, key in enumerate(keys) if not key] == [where]
            assert status[where] is Status.REFUSED


@pytest.mark.parametrize(("server_mb", "client_mb"), [(1, 64), (64, 1), (1, 1)])
def test_large_requests_and_replies_are_split(tmp_path, server_mb, client_mb):
    prompts = [f"{i} " + "ä" * 150_000 for i in range(9)]  # 300 kB each, 2.7 MB in all
    with Running(tmp_path, max_message_mb=server_mb) as running, connect(tmp_path, max_message_mb=client_mb) as door:
        assert [answer.value for answer in door.generate(prompts)] == prompts
        assert running.echo.entered > 2


def test_what_is_too_large_alone_is_refused(tmp_path):
    with Running(tmp_path, max_characters=3 << 20), connect(tmp_path, max_message_mb=1) as door:
        answers = door.generate(["a", "x" * (2 << 20), "b"])
        assert [answer.status for answer in answers] == [Status.OK, Status.REFUSED, Status.OK]
        assert "limit" in answers[1].reason


def test_numbers_that_do_not_fit_are_misuse(tmp_path):
    with Running(tmp_path), connect(tmp_path) as door:
        with pytest.raises(UsageError, match="cannot be sent"):
            door.generate(["a"], sample=-1)
        with pytest.raises(UsageError, match="temperature"):
            door.generate(["a"], parameters=Parameters(temperature=-1.0))


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
    with Running(tmp_path) as running, connect(tmp_path) as door:
        first = running.address
        assert door.generate(["a"])[0].ok
        running.drained = running.call(running.server.drain())
        other = socket.create_server(("127.0.0.1", int(first.rpartition(":")[2])))  # the port is another's now
        assert door.generate(["a"], deadline=0.2)[0].status in (Status.AWAY, Status.EXPIRED)
        (tmp_path / "token").unlink()
        with Running(tmp_path) as successor:
            assert successor.address != first
            assert door.generate(["a"], deadline=20.0)[0].ok
        other.close()


def test_the_token_never_travels_in_clear_beyond_loopback():
    listener = socket.create_server(("127.0.0.1", 0))
    with listener, Client(f"0.0.0.0:{listener.getsockname()[1]}", "top-secret-token") as door:
        answer = door.later(door.generate, ["a"], deadline=2.0)
        connection, _ = listener.accept()
        received = connection.recv(10_000)
        connection.close()
        listener.close()
        assert answer.result()[0].status in (Status.AWAY, Status.EXPIRED)
    assert received[0] == 22  # a TLS handshake
    assert b"top-secret" not in received


def test_the_token_is_in_no_text_of_the_client(tmp_path):
    with Client("127.0.0.1:1", "top-secret-token") as door:
        assert "top-secret" not in repr(door) + repr(door.generate(["a"])) + repr(vars(door)["_link"])


@pytest.mark.parametrize("when_away", ["none", "stop", "wait"])
def test_policies_while_the_service_is_away(when_away):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound and not listening: nobody else gets it
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        with Client(address, "token", when_away=when_away) as door:
            if when_away == "stop":
                for call in (
                    lambda: door.generate(["a"]),
                    lambda: door.accept(Ask("generate", ("a",))),
                    lambda: door.fetch(["a"]),
                    door.stats,
                ):
                    with pytest.raises(ServiceAway, match=f"the LLM service at {address} is unavailable"):
                        call()
            else:
                answers = door.generate(["a", "b"], deadline=0.3)
                assert {answer.status for answer in answers} <= {Status.AWAY, Status.EXPIRED}
                assert len(answers) == 2
                assert all(answer.reason for answer in answers)
            assert door.health()[0] is False if when_away != "wait" else True


def test_waiting_outlasts_a_full_service(tmp_path):
    with Running(tmp_path, per_caller=1) as running, connect(tmp_path, when_away="wait") as door:
        futures = [door.later(door.generate, [f"slow {i}"], deadline=30.0) for i in range(3)]
        while door.stats().get("server/busy", 0.0) < 2:  # two were turned away and come again
            threading.Event().wait(0.005)
        running.release()
        assert all(future.result()[0].ok for future in futures)


# the door without a server


def test_memory_is_answered_in_the_callers_thread():
    echo, threads = Echo(), []
    peek = echo.peek
    echo.peek = lambda ask: (threads.append(threading.current_thread()), peek(ask))[1]
    with Local(echo) as door:
        door.generate(["a"])
        door.generate(["a"])
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

    with Local(start()) as door:
        assert door.health() == (True, "")
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
    with Local(echo) as door:
        waiting = door.later(door.generate, ["slow"], deadline=30.0)
        while not echo.entered:
            threading.Event().wait(0.001)
    assert echo.closed
    assert echo.cancelled
    assert waiting.result(10)[0].status is Status.AWAY


def test_a_service_that_hangs_is_given_up(monkeypatch):
    monkeypatch.setattr("benchmarks.local_door.GRACE_S", 0.05)
    echo = Echo()
    echo.ask = lambda ask: asyncio.Event().wait()
    with Local(echo) as door:
        (answer,) = door.generate(["a"], deadline=0.05)
        assert (answer.status, answer.reason) == (Status.EXPIRED, "the service did not answer within 0.05 s")
