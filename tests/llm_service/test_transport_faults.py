"""Real processes and sockets that fail: servers killed, lines cut, silent, slow or full of garbage."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from llm_service.client import Client, ServiceAway, connect
from llm_service.records import Ask, Status
from tests.llm_service.echo import Running

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _no_token_around(monkeypatch):
    monkeypatch.delenv("CAIRN_LLM_TOKEN", raising=False)


@contextlib.contextmanager
def process(folder, *words):
    """A server in a process of its own."""
    command = [sys.executable, str(ROOT / "tests/llm_service/echo.py"), str(folder), *words]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    server.address = server.stdout.readline().strip()
    assert server.address
    try:
        yield server
    finally:
        server.kill()
        server.communicate()


@contextlib.contextmanager
def connect_to(folder, *words, **options):
    with process(folder, *words) as server, connect(folder, **options) as client:
        yield server, client


class Proxy:
    """Forwards bytes between clients and a server, until it is told to do worse.

    delay: seconds before each piece. cut_after: bytes to the client, then the line is cut. silent: nothing passes, and
    the line stays; unread: nothing passes to the client. trickle: bytes in a piece.
    """

    def __init__(self, address):
        host, _, port = address.rpartition(":")
        self.target = (host, int(port))
        self.delay, self.cut_after, self.trickle = 0.0, None, 65536
        self.silent, self.unread = threading.Event(), threading.Event()
        self.passed = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.lines, self.stopping = [], threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                near = self.listener.accept()[0]
                far = socket.create_connection(self.target)
            except OSError:
                if self.stopping.is_set():
                    return
                near.close()
                continue
            self.lines += [near, far]
            for source, sink, back in ((near, far, False), (far, near, True)):
                threading.Thread(target=self._forward, args=(source, sink, back), daemon=True).start()

    def _forward(self, source, sink, back):
        with contextlib.suppress(OSError):
            while piece := source.recv(self.trickle):
                if self.silent.is_set() or (back and self.unread.is_set()):
                    self.stopping.wait()
                self.stopping.wait(self.delay)
                if back and self.cut_after is not None and self.passed + len(piece) > self.cut_after:
                    sink.sendall(piece[: self.cut_after - self.passed])
                    break
                self.passed += len(piece) if back else 0
                sink.sendall(piece)
        self.cut(source, sink)

    @staticmethod
    def cut(*lines):
        for line in lines:
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
            line.close()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.stopping.set()
        self.cut(self.listener, *self.lines)


@pytest.fixture
def served(tmp_path):
    with Running(tmp_path) as running:
        running.token = (tmp_path / "token").read_text()
        yield running


# servers that die


def test_a_killed_server_costs_answers_and_no_exception(tmp_path):
    with process(tmp_path) as server, connect(tmp_path) as client:
        assert client.generate(["a"])[0].ok
        waiting = [client.later(client.generate, ["slow", "two"], deadline=60.0) for _ in range(5)]
        while client.stats()["echo/entered"] < 6:
            threading.Event().wait(0.005)
        server.send_signal(signal.SIGKILL)
        for future in waiting:
            answers = future.result(20)
            assert [answer.status for answer in answers] == [Status.AWAY] * 2
            assert "is unavailable" in answers[0].reason
        assert client.generate(["a"])[0].status is Status.AWAY
        assert client.health()[0] is False


def test_a_client_goes_on_with_the_successor_at_the_same_address(tmp_path):
    with process(tmp_path) as server, connect(tmp_path, when_away="wait") as client:
        address = server.address
        waiting = client.later(client.generate, ["a", "slow and steady"], deadline=60.0)
        while not client.stats()["echo/entered"]:
            threading.Event().wait(0.005)
        server.kill()
        server.wait()
        meanwhile = client.later(client.accept, Ask("generate", ("job",), deadline=60.0))
        with process(tmp_path, f"listen={address}"):
            assert meanwhile.result(30)[1] == [Status.PENDING]
            assert client.generate(["b"])[0].value == "b"
            assert not waiting.done()  # it asked the successor, where "slow" waits again
            client.close()
            assert waiting.result(20)[0].status is Status.AWAY


def test_a_client_follows_a_restart_to_another_port(tmp_path):
    with connect_to(tmp_path) as (server, client):
        first = server.address
        assert client.generate(["a"])[0].ok
        server.kill()
        server.wait()
        with socket.socket() as holder:
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind(("127.0.0.1", int(first.rpartition(":")[2])))  # the old port is gone
            with process(tmp_path) as successor:
                assert successor.address != first
                assert client.generate(["a"])[0].ok


def test_sigterm_lets_requests_end_and_a_second_one_does_not(tmp_path):
    with connect_to(tmp_path / "a", "drain_s=0.3") as (server, client):
        waiting = client.later(client.generate, ["slow"], deadline=0.25)  # ends within the time of the drain
        stuck = client.later(client.generate, ["slow too"], deadline=60.0)
        while client.stats()["echo/entered"] < 2:
            threading.Event().wait(0.002)
        server.terminate()
        assert waiting.result(20)[0].reason == "too slow"  # the service's answer, not a cut line
        assert stuck.result(20)[0].status is Status.AWAY
        assert server.wait(20) == 0
        assert not (tmp_path / "a/address").exists()
    with connect_to(tmp_path / "b", "drain_s=60") as (server, client):
        stuck = client.later(client.generate, ["slow"], deadline=60.0)
        while not client.stats()["echo/entered"]:
            threading.Event().wait(0.002)
        server.terminate()
        while client.health() != (False, "the service is ending"):
            threading.Event().wait(0.002)
        server.terminate()
        assert server.wait(20) == 1
        assert stuck.result(20)[0].status is Status.AWAY
        assert not (tmp_path / "b/address").exists()


# lines that fail


def test_a_slow_line_is_only_slow(served):
    with Proxy(served.address) as proxy, Client(proxy.address, served.token) as client:
        proxy.delay, proxy.trickle = 0.002, 4096
        prompts = [f"{i} " + "x" * 800 for i in range(100)]
        assert [answer.value for answer in client.generate(prompts)] == prompts


@pytest.mark.parametrize("when_away", ["none", "wait", "stop"])
@pytest.mark.parametrize("after", [0, 60, 30_000])
def test_a_line_cut_inside_a_message_is_away_and_then_made_again(served, after, when_away):
    prompts = [f"{i} " + "x" * 800 for i in range(100)]
    with Proxy(served.address) as proxy, Client(proxy.address, served.token, when_away=when_away) as client:
        proxy.cut_after = after
        call = client.later(client.generate, prompts, deadline=20.0)
        if when_away == "none":
            answers = call.result(30)
            assert {answer.status for answer in answers} == {Status.AWAY}
            assert len(answers) == 100
        elif when_away == "stop":
            with pytest.raises(ServiceAway):
                call.result(30)
        proxy.cut_after = None
        if when_away == "wait":
            assert all(answer.ok for answer in call.result(30))
        client._when_away = "wait"  # the line is made anew after a moment
        assert [answer.value for answer in client.generate(prompts, deadline=20.0)] == prompts


def test_a_silent_line_ends_at_the_deadline(served):
    with Proxy(served.address) as proxy, Client(proxy.address, served.token, when_away="wait") as client:
        assert client.generate(["a"])[0].ok
        proxy.silent.set()
        began = time.monotonic()
        answers = [client.later(call, ["a"], deadline=0.5) for call in (client.generate, client.generate)]
        assert [future.result(20)[0].status for future in answers] == [Status.EXPIRED] * 2
        assert 0.4 < time.monotonic() - began < 10


@pytest.mark.slow
def test_a_silent_line_is_noticed_long_before_a_long_deadline(served):
    with Proxy(served.address) as proxy, Client(proxy.address, served.token) as client:
        assert client.generate(["a"])[0].ok
        proxy.silent.set()
        (answer,) = client.generate(["a"], deadline=300.0)
        assert answer.status is Status.AWAY  # not EXPIRED: keepalive had no reply


def test_nobody_accepts_the_connection():
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        with Client(f"127.0.0.1:{deaf.getsockname()[1]}", "token") as client:
            (answer,) = client.generate(["a"], deadline=0.5)
            assert answer.status in (Status.EXPIRED, Status.AWAY)


@pytest.mark.parametrize("reply", [b"", b"HTTP/1.1 200 OK\r\n\r\nhello", os.urandom(5000), b"\0" * 5000])
def test_something_else_answers_at_the_address(reply):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def speak():
            with contextlib.suppress(OSError):
                while True:
                    line = listener.accept()[0]
                    with contextlib.suppress(OSError):
                        line.recv(100)
                        line.sendall(reply)
                    line.close()

        threading.Thread(target=speak, daemon=True).start()
        with Client(f"127.0.0.1:{listener.getsockname()[1]}", "token") as client:
            answers = client.generate(["a", "b"], deadline=3.0)
            assert {answer.status for answer in answers} <= {Status.AWAY, Status.EXPIRED}


# callers that fail


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        os.urandom(100_000),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + os.urandom(10_000),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff\xff\xff\x00" * 1_000,
        b"",
    ],
)
def test_garbage_at_the_port_hurts_nobody(served, sent):
    host, _, port = served.address.rpartition(":")
    with Client(served.address, served.token) as client:
        lines = [socket.create_connection((host, int(port))) for _ in range(20)]
        for line in lines:
            with contextlib.suppress(OSError):
                line.sendall(sent)
        assert client.generate(["a"])[0].ok
        for line in lines:
            line.close()
        assert client.generate(["b"])[0].ok


def test_one_caller_of_three_hundred_requests_does_not_take_the_place_of_others(tmp_path):
    with Running(tmp_path, per_caller=64) as running, contextlib.ExitStack() as stack:
        greedy = [stack.enter_context(connect(tmp_path, caller="greedy")) for _ in range(2)]
        other = stack.enter_context(connect(tmp_path, caller="other"))
        futures = [greedy[i % 2].later(greedy[i % 2].generate, [f"slow {i}"], deadline=60.0) for i in range(300)]
        while sum(future.done() for future in futures) < 300 - 64:
            assert other.score(["a"], ["x"])[0].ok
        running.release()
        ended = [future.result(30)[0].status for future in futures]
        assert ended.count(Status.OK) == 64
        assert ended.count(Status.BUSY) == 300 - 64
        assert all(answer.ok for answer in greedy[0].generate(["a", "slow b"]))


def test_a_caller_that_does_not_read_keeps_nobody_waiting(served):
    prompts = [f"{i} " + "x" * 100_000 for i in range(100)]  # 10 MB, more than the buffers on the way
    with (
        Proxy(served.address) as proxy,
        Client(proxy.address, served.token) as stalled,
        Client(served.address, served.token) as client,
    ):
        assert all(answer.ok for answer in client.generate(prompts))
        assert stalled.generate(["a"])[0].ok
        proxy.unread.set()  # what the server sends
        stuck = stalled.later(stalled.generate, prompts, deadline=1.0)
        for i in range(50):
            assert client.generate([f"meanwhile {i}"])[0].ok
        assert {answer.status for answer in stuck.result(20)} == {Status.EXPIRED}
        assert all(answer.ok for answer in client.generate(prompts))


def test_callers_that_vanish_leave_nothing_behind(served):
    code = "import sys; from llm_service.client import connect\n"
    code += "door = connect(sys.argv[1]); print(flush=True); door.generate(['slow'])"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    callers = [
        subprocess.Popen([sys.executable, "-c", code, str(served.folder)], stdout=subprocess.PIPE, env=environment)
        for _ in range(2)
    ]
    with Client(served.address, served.token) as client:
        while served.echo.entered < 2:
            threading.Event().wait(0.005)
        for caller in callers:
            caller.kill()
            caller.communicate()
        assert client.stats()["server/running"] == 2  # the work goes on: others may want it
        served.release()
        while client.stats()["server/running"]:
            threading.Event().wait(0.005)
        assert client.generate(["slow"])[0].ok
        assert served.echo.entered == 2
