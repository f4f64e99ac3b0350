"""The server: who may speak to it and where it listens, what it refuses, what it passes on, and how it ends."""

import logging
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import grpc
import pytest

from llm_service.client import Client, Tls, connect
from llm_service.errors import UsageError
from llm_service.proto import llm_pb2, wire
from llm_service.records import Ask, Status
from llm_service.server import guard
from llm_service.server.guard import ServerConfig
from llm_service.server.process import Server
from tests.llm_service.echo import Echo, Running
from tests.llm_service.processes import Process

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _no_token_around(monkeypatch):
    monkeypatch.delenv("CAIRN_LLM_TOKEN", raising=False)


def raw(address):
    """A stub that sends what it is told, without the client's care."""
    return wire.stub(grpc.insecure_channel(address, [("grpc.max_send_message_length", -1)]))


def bearer(running):
    return (("authorization", f"Bearer {(running.folder / 'token').read_text()}"),)


def refusal(call, *args, **kwargs):
    """(code, sentence, trailers) of a call that fails."""
    with pytest.raises(grpc.RpcError) as failure:
        call(*args, timeout=20, **kwargs)
    error = failure.value
    return error.code().name, error.details(), dict(error.trailing_metadata() or ())


# who may speak


@pytest.mark.parametrize(
    "metadata",
    [
        (),
        (("authorization", ""),),
        (("authorization", "Bearer "),),
        (("authorization", "Bearer wrong"),),
        (("authorization", "Bearer " + "a" * 4000),),
        (("authorization-bin", b"\xff"),),
    ],
)
def test_without_the_token_nothing_is_looked_at(tmp_path, metadata):
    with Running(tmp_path) as running:
        channel = grpc.insecure_channel(running.address)
        generate = channel.unary_unary("/cairn.llm.v1.LLM/Generate")
        refused = refusal(generate, b"\xff\xff", metadata=metadata)  # a body that does not parse: it comes not to that
        assert refused[:2] == ("UNAUTHENTICATED", "the token is missing or wrong")
        for name, request in (("Health", llm_pb2.Empty()), ("Stats", llm_pb2.Empty()), ("Submit", llm_pb2.Job())):
            assert refusal(getattr(raw(running.address), name), request, metadata=metadata)[0] == "UNAUTHENTICATED"
        assert running.echo.seen == []


def test_without_the_token_no_body_is_received_however_large(tmp_path):
    with Process("tests.llm_service.echo", tmp_path) as server:
        channel = grpc.insecure_channel(server.first, [("grpc.max_send_message_length", -1)])
        generate = channel.unary_unary("/cairn.llm.v1.LLM/Generate")
        assert refusal(generate, b"")[0] == "UNAUTHENTICATED"
        before = most_memory(server.process.pid)
        body = b"x" * (60 << 20)  # allowed by `max_message_mb`
        calls = [generate.future(body, timeout=60) for _ in range(5)]
        assert {call.code().name for call in calls} == {"UNAUTHENTICATED"}
        assert most_memory(server.process.pid) - before < 40, "MiB: less than one of the bodies"


def most_memory(pid):
    """The most memory that a process has had so far, MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024


def test_a_token_that_begins_or_goes_on_like_the_right_one_is_wrong(tmp_path):
    assert guard.matches("abcdef", [("x", "y"), ("authorization", "Bearer abcdef")])
    for wrong in (
        "Bearer abcde",
        "Bearer abcdefg",
        "bearer abcdef",
        "abcdef",
        "Bearer  abcdef",
        "Bearer \xff\udcff",
        b"\xff",
    ):
        assert not guard.matches("abcdef", [("authorization", wrong)])
    assert not guard.matches("abcdef", [("authorization", "Bearer wrong"), ("authorization", "Bearer abcdef")])


def test_a_token_is_made_once_for_its_owner_only(tmp_path):
    with Running(tmp_path):
        token = (tmp_path / "token").read_text()
        assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600
        assert len(token) >= 40
    with Running(tmp_path):
        assert (tmp_path / "token").read_text() == token
    (tmp_path / "token").chmod(0o640)
    with pytest.raises(UsageError, match="others may read"):
        Running(tmp_path)


@pytest.mark.parametrize("damage", [b"", b"\n", b"\0" * 43, b"\xff\xfe"], ids=["empty", "blank", "zeros", "foreign"])
def test_a_token_that_a_crash_left_empty_is_set_aside_and_a_new_one_made(tmp_path, caplog, damage):
    (tmp_path / "token").write_bytes(damage)
    (tmp_path / "token").chmod(0o600)
    token = guard.folder_token(tmp_path)
    assert guard.folder_token(tmp_path) == (tmp_path / "token").read_text() == token
    assert len(token) >= 40
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "token.damaged").read_bytes() == damage
    assert ["set aside in token.damaged" in record.getMessage() for record in caplog.records] == [True]


def test_a_token_file_that_is_a_link_is_not_followed(tmp_path):
    (tmp_path / "elsewhere").write_text("chosen")
    (tmp_path / "elsewhere").chmod(0o600)
    (tmp_path / "token").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="token"):
        guard.folder_token(tmp_path)


def test_a_given_token_is_used_and_none_is_made(tmp_path, monkeypatch):
    (tmp_path / "secret").write_text("from-a-file\n")
    with (
        Running(tmp_path / "a", token_file=str(tmp_path / "secret")) as running,
        Client(running.address, "from-a-file") as client,
    ):
        assert client.health() == (True, "")
    monkeypatch.setenv("CAIRN_LLM_TOKEN", "from-the-environment")
    with Running(tmp_path / "b", token_file=str(tmp_path / "secret")) as running:
        with Client(running.address, "from-the-environment") as client:
            assert client.health() == (True, "")
        with Client(running.address, "from-a-file") as client, pytest.raises(UsageError, match="refuses this caller"):
            client.generate(["a"])
    assert not list(tmp_path.glob("*/token"))


@pytest.mark.parametrize("content", [b"", b"  \n", b"two words", "ключ".encode(), b"\xff"])
def test_a_token_that_cannot_travel_is_refused(tmp_path, content):
    (tmp_path / "secret").write_bytes(content)
    with pytest.raises(UsageError, match="token"):
        guard.chosen_token("", str(tmp_path / "secret"))
    with pytest.raises(UsageError, match="cannot read"):
        guard.chosen_token("", str(tmp_path / "missing"))


# where it listens


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "10.0.0.1:0", "example.org:0", ":0", "127.0.0.1.example:0"])
@pytest.mark.parametrize("given", ["nothing", "token", "tls"])
def test_beyond_loopback_it_wants_a_given_token_and_tls(tmp_path, monkeypatch, listen, given):
    if given == "token":
        monkeypatch.setenv("CAIRN_LLM_TOKEN", "chosen")
    tls = {"tls_certificate": "c.pem", "tls_key": "k.pem"} if given == "tls" else {}
    with pytest.raises(UsageError, match="can be reached by others"):
        Running(tmp_path, listen=listen, **tls)
    assert not (tmp_path / "address").exists()
    assert not (tmp_path / "token").exists()


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.9.9.9:1", "localhost:1", "[::1]:1", "unix:/tmp/x"])
def test_loopback_is_known(address):
    assert guard.loopback(address)


@pytest.mark.parametrize("fields", [{"tls_certificate": "c.pem"}, {"tls_key": "k.pem"}, {"tls_client_ca": "ca.pem"}])
def test_half_of_tls_is_none(tmp_path, fields):
    with pytest.raises(UsageError, match="both"):
        Running(tmp_path, **fields)
    with pytest.raises(UsageError, match="cannot read"):
        Running(tmp_path, tls_certificate="missing.pem", tls_key="missing.pem")


def test_a_taken_port_is_an_error(tmp_path):
    with Running(tmp_path / "a") as running, pytest.raises(UsageError, match="is another server there"):
        Running(tmp_path / "b", listen=running.address)
    with Running(tmp_path / "a") as running, pytest.raises(UsageError, match="metrics_port"):
        Running(tmp_path / "b", metrics_port=int(running.address.rpartition(":")[2]))


def test_it_listens_at_a_unix_socket(tmp_path):
    with Running(tmp_path, listen=f"unix:{tmp_path}/door") as running, connect(tmp_path) as client:
        assert running.address == f"unix:{tmp_path}/door"
        assert client.generate(["a"])[0].value == "a"


def certificates(folder, name, authority=None):
    """Make NAME.pem and NAME.key: an authority, or signed by one."""
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "1",
    ]
    command += ["-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem"]
    if authority:
        command += ["-CA", f"{authority}.pem", "-CAkey", f"{authority}.key", "-addext", "subjectAltName=IP:127.0.0.1"]
        command += ["-addext", "basicConstraints=critical,CA:FALSE"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


def test_tls_in_both_directions(tmp_path):
    certificates(tmp_path, "authority")
    certificates(tmp_path, "stranger")
    for name in ("server", "caller"):
        certificates(tmp_path, name, "authority")
    file = {name: str(tmp_path / name) for name in ("authority.pem", "stranger.pem", "caller.pem", "caller.key")}
    fields = {"tls_certificate": str(tmp_path / "server.pem"), "tls_key": str(tmp_path / "server.key")}
    trusting, doubting = Tls(ca=file["authority.pem"]), Tls(ca=file["stranger.pem"])
    with Running(tmp_path, **fields):
        assert connect(tmp_path, tls=trusting).generate(["a"])[0].value == "a"
        for tls in (doubting, Tls(), None):
            assert connect(tmp_path, tls=tls).generate(["a"])[0].status is Status.AWAY
    with Running(tmp_path, **fields, tls_client_ca=file["authority.pem"]):
        known = Tls(file["authority.pem"], file["caller.pem"], file["caller.key"])
        assert connect(tmp_path, tls=known).generate(["a"])[0].value == "a"
        assert connect(tmp_path, tls=trusting).generate(["a"])[0].status is Status.AWAY


# what it refuses


def test_too_much_is_refused_with_a_sentence(tmp_path):
    with Running(tmp_path, max_items=3, max_characters=10, max_message_mb=1) as running:
        stub, token = raw(running.address), bearer(running)
        for request in (
            llm_pb2.Ask(contents=["a"] * 4),
            llm_pb2.Ask(contents=["a"], candidates=[{"texts": ["x"] * 4}]),
        ):
            code, sentence, trailers = refusal(stub.Score, request, metadata=token)
            assert (code, trailers["x-cairn-status"]) == ("RESOURCE_EXHAUSTED", "2")
            assert sentence == "the request has 4 items, the limit is 3: send several requests"
        for request in (
            llm_pb2.Ask(contents=["a" * 11]),
            llm_pb2.Ask(contents=["a"], candidates=[{"texts": ["x" * 11]}]),
        ):
            code, sentence, _ = refusal(stub.Score, request, metadata=token)
            assert (code, sentence) == ("RESOURCE_EXHAUSTED", "a text has 11 characters, the limit is 10")
        assert refusal(stub.Fetch, llm_pb2.Keys(keys=["a"] * 4), metadata=token)[0] == "RESOURCE_EXHAUSTED"
        job = llm_pb2.Job(ask=llm_pb2.Ask(contents=["a"] * 4))
        assert refusal(stub.Submit, job, metadata=token)[0] == "RESOURCE_EXHAUSTED"
        huge = llm_pb2.Ask(contents=["x" * (2 << 20)])
        assert refusal(stub.Generate, huge, metadata=token)[0] == "RESOURCE_EXHAUSTED"
        assert running.echo.seen == []
        assert stub.Generate(llm_pb2.Ask(contents=["fine"]), metadata=token).payload == [b'"fine"']


def test_misuse_is_told(tmp_path):
    with Running(tmp_path) as running:
        stub, token = raw(running.address), bearer(running)
        code, sentence, _ = refusal(stub.Generate, llm_pb2.Ask(task="none", contents=["a"]), metadata=token)
        assert (code, sentence) == ("INVALID_ARGUMENT", "unknown task 'none'")
        cold = llm_pb2.Ask(contents=["a"], parameters=llm_pb2.Parameters(temperature=-1))
        assert refusal(stub.Generate, cold, metadata=token)[0] == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    "body", [b"\x12\x06prompt\xff\xff", b"\x12\x08prompt\xff\xff", b"\xff" * 100, b"\x12\xff\xff\xff\x7f"]
)
def test_a_body_that_is_not_ours_is_told_without_its_text(tmp_path, body):
    with Running(tmp_path) as running:
        method = grpc.insecure_channel(running.address).unary_unary("/cairn.llm.v1.LLM/Generate")
        refused = refusal(method, body, metadata=bearer(running))
        assert refused[:2] == ("INVALID_ARGUMENT", "the body is not cairn.llm.v1")
        assert running.echo.seen == []


def test_a_failure_inside_tells_no_prompt(tmp_path, caplog):
    with Running(tmp_path) as running, caplog.at_level(logging.DEBUG):
        request = llm_pb2.Ask(task="raises", contents=["my diary"])
        code, sentence, _ = refusal(raw(running.address).Generate, request, metadata=bearer(running))
    assert (code, sentence) == ("INTERNAL", "the service failed: ZeroDivisionError")
    assert re.search(r"ZeroDivisionError at .*echo.py:\d+", caplog.text)
    assert "diary" not in caplog.text


def test_other_methods_and_reflection_are_not_there(tmp_path):
    with Running(tmp_path) as running:
        channel = grpc.insecure_channel(running.address)
        for name in ("/cairn.llm.v1.LLM/Delete", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"):
            assert refusal(channel.unary_unary(name), b"", metadata=bearer(running))[0] == "UNIMPLEMENTED"


# what it passes on


def test_verb_lane_caller_and_deadline_reach_the_service(tmp_path):
    with Running(tmp_path, max_deadline_s=50) as running, connect(tmp_path, caller="actor 7" * 20) as client:
        client.generate(["a"], deadline=10)
        client.score(["a"], ["x"], deadline=400)
        raw(running.address).Embed(llm_pb2.Ask(contents=["a"]), metadata=bearer(running))
        first, second, third = running.echo.seen
        assert [ask.verb for ask in running.echo.seen] == ["generate", "score", "embed"]
        assert 8 < first.deadline < 10  # shorter than the caller's own: what is there by then still arrives
        assert second.deadline == third.deadline == 50
        assert first.caller == ("actor 7" * 20)[:64]
        assert third.caller == ""
        assert first.lane == "interactive"


def test_answers_that_are_late_by_the_service_still_arrive(tmp_path):
    with Running(tmp_path), connect(tmp_path) as client:
        (answer,) = client.generate(["slow"], deadline=1.0)
        assert (answer.status, answer.reason) == (Status.EXPIRED, "too slow")  # the service's own words


def test_a_caller_has_so_many_requests_at_once_and_no_more(tmp_path):
    with Running(tmp_path, per_caller=3, in_all=5) as running, connect(tmp_path, caller="a") as client:
        assert client.generate(["known"])[0].ok
        waiting = [client.later(client.generate, [f"slow {i}"]) for i in range(8)]
        eventually(lambda: sum(f.done() for f in waiting) == 5)
        done = [f for f in waiting if f.done()]
        assert [f.result()[0].status for f in done] == [Status.BUSY] * 5
        assert "already wait" in done[0].result()[0].reason
        assert client.generate(["known"])[0].ok  # memory is always open
        with connect(tmp_path, caller="b") as other:
            assert other.generate(["mine"])[0].ok
            others = [other.later(other.generate, [f"slow b{i}"]) for i in range(3)]  # two fit into the limit of all
            eventually(lambda: any(f.done() for f in others))
            assert [f.result()[0].status for f in others if f.done()] == [Status.BUSY]
            running.release()
            assert sum(f.result()[0].ok for f in others) == 2
        assert sum(f.result()[0].ok for f in waiting) == 3
        assert all(a.ok for a in client.generate(["slow again", "and more"]))
        assert client.stats()["server/running"] == 0


def test_so_many_calls_are_open_at_once_and_what_comes_then_is_busy_and_is_not_received(tmp_path):
    with Running(tmp_path, max_calls=2) as running, connect(tmp_path, caller="a") as client:
        waiting = [client.later(client.generate, [f"slow {i}"]) for i in range(2)]
        eventually(lambda: running.echo.entered == 2)
        method = grpc.insecure_channel(running.address).unary_unary("/cairn.llm.v1.LLM/Generate")
        code, sentence, trailers = refusal(method, b"\xff\xff", metadata=bearer(running))  # does not parse
        assert (code, sentence) == ("RESOURCE_EXHAUSTED", "2 calls are already open; ask again a little later")
        assert trailers[wire.STATUS] == str(int(Status.BUSY))
        assert refusal(method, b"")[0] == "UNAUTHENTICATED"  # these take no place of others
        assert client.generate(["new"])[0].status is Status.BUSY
        assert client.health() == (False, sentence)
        with connect(tmp_path, caller="b", when_away="wait") as patient:
            late = patient.later(patient.generate, ["late"], deadline=30.0)
            busy = running.server.stats()["server/busy"]
            eventually(lambda: running.server.stats()["server/busy"] > busy)  # turned away, and comes again
            running.release()
            assert late.result()[0].value == "late"
        assert all(call.result()[0].ok for call in waiting)
        assert client.generate(["new"])[0].ok


def eventually(reached):
    """Wait until something that no event tells of has happened."""
    until = time.monotonic() + 20
    while not reached():
        assert time.monotonic() < until, "it never happened"
        time.sleep(0.005)


def test_work_outlives_the_caller_that_gives_up(tmp_path):
    with Running(tmp_path) as running, connect(tmp_path) as client:
        stub = raw(running.address)
        call = stub.Generate.future(llm_pb2.Ask(contents=["slow"]), metadata=bearer(running))
        eventually(lambda: running.echo.entered == 1)
        call.cancel()
        assert client.stats()["server/running"] == 1
        running.release()
        eventually(lambda: running.echo.memory)
        assert not running.echo.cancelled
        assert client.generate(["slow"])[0].value == "slow"
        assert running.echo.entered == 1  # from memory


def test_metrics_are_for_prometheus_on_loopback(tmp_path):
    with Running(tmp_path, metrics_port=0) as running, connect(tmp_path) as client:
        client.generate(["a", "b"])
        with urllib.request.urlopen(f"http://127.0.0.1:{running.server.metrics_port}/metrics", timeout=10) as reply:
            lines = reply.read().decode().splitlines()
        labels = f'{{role="llm",run="{tmp_path.name}",worker="0"}}'
        assert f"cairn_llm_items_total{labels} 2.0" in lines
        assert not [line for line in lines if "echo" in line]  # it has the names of the table, and no other
        assert client.stats()["server/requests"] == 1.0
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", running.server.metrics_port), timeout=10)


# how it ends


def test_the_address_is_there_while_it_is_ready(tmp_path):
    with Running(tmp_path) as running:
        assert (tmp_path / "address").read_text() == running.address
        assert re.fullmatch(r"127\.0\.0\.1:\d+", running.address)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["token"]
    with Running(tmp_path) as running:
        (tmp_path / "address").write_text("a successor's")
    assert (tmp_path / "address").read_text() == "a successor's"


def test_draining_ends_what_is_under_way_and_takes_no_more(tmp_path):
    with Running(tmp_path) as running, connect(tmp_path) as client:
        assert client.generate(["known"])[0].ok
        slow = client.later(client.generate, ["slow"])
        eventually(lambda: running.echo.entered == 2)
        drained = client.later(running.call, running.server.drain())
        eventually(lambda: not client.health()[0])
        assert not drained.done()
        assert client.health() == (False, "the service is ending")
        for request in (["new"], ["known"]):
            (answer,) = client.generate(request)
            assert answer.status is Status.AWAY
            assert "ending" in answer.reason
        assert client.accept(Ask("generate", ("job",)))[1] == [Status.AWAY]
        assert client.fetch(["key"])[0].status is Status.AWAY
        running.release()
        assert slow.result()[0].value == "slow"
        running.drained = drained.result()
        assert running.drained is True
        assert running.echo.closed


def test_draining_gives_up_after_its_time(tmp_path):
    with Running(tmp_path, drain_s=0.1) as running, connect(tmp_path) as client:
        slow = client.later(client.generate, ["slow"])
        eventually(lambda: running.echo.entered == 1)
        running.drained = running.call(running.server.drain())
        assert running.drained is False
        assert slow.result()[0].status is Status.AWAY
        assert running.echo.closed


def start(folder, *words):
    command = [sys.executable, "-m", "llm_service.server", "--folder", str(folder), *words]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_the_command_serves_until_it_is_told_to_end(tmp_path):
    process = start(tmp_path, "name=scripted", "server.metrics_port=0")
    line = process.stdout.readline()
    ready = r"ready on 127\.0\.0\.1:\d+, backend scripted, metrics at (http://127\.0\.0\.1:\d+/metrics)\n"
    said = re.fullmatch(ready, line)
    assert said, process.stderr.read()
    with urllib.request.urlopen(said[1], timeout=10) as reply:
        assert b"cairn_llm_calls" in reply.read()
    with connect(tmp_path) as client:
        assert client.health()[0] is True
    token = (tmp_path / "token").read_text()
    process.terminate()
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, "ended\n", "")
    assert token not in line
    assert not (tmp_path / "address").exists()


@pytest.mark.parametrize("words", [["server.listen=0.0.0.0:0"], ["server.nothing=1"], ["server.max_items=many"]])
def test_a_wrong_setup_is_one_sentence_and_exit_code_2(tmp_path, words):
    process = start(tmp_path, "name=scripted", *words)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err.count("\n")) == (2, "", 1), err
    assert "server." in err


def test_the_configuration_is_read_without_grpc():
    code = "import sys; from llm_service.server.guard import ServerConfig; ServerConfig()\n"
    code += "assert not {'grpc', 'torch', 'prometheus_client'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, env={**os.environ})
    assert all(field.description for field in ServerConfig.model_fields.values())
    assert Server(Echo(), ServerConfig(), Path("unused")).address == ""
