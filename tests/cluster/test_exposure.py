"""What answers beyond this machine, asked of real processes: 127.0.0.2 stands for an address that others reach."""

import contextlib
import os
import socket
import subprocess
import sys
from ipaddress import ip_address
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from cluster.cli import doctor, exposure
from cluster.cli.exposure import Answer, ask, exposed, external_addresses, listeners
from learner.optim.collective import Group, free_address
from llm_service.durable.redis_server import find_binary
from tests.llm_service.processes import service

ROOT = Path(__file__).resolve().parents[2]
LOOPBACK, ELSEWHERE = ip_address("127.0.0.1"), ip_address("127.0.0.2")
SERVER = """
import socket, sys, threading
host, said = sys.argv[1], sys.argv[2].encode().decode("unicode_escape").encode()
family = socket.AF_INET6 if ":" in host else socket.AF_INET
listener = socket.create_server((host, 0), family=family, dualstack_ipv6=host == "::")
print(listener.getsockname()[1], flush=True)
while True:
    line, _ = listener.accept()
    heard = line.recv(100)
    line.sendall(said if said else b"")
    threading.Timer(9.0 if not said else 0.0, line.close).start()
"""
GRPC = """
import sys
from concurrent.futures import ThreadPoolExecutor
import grpc

class Handler(grpc.GenericRpcHandler):
    def service(self, call):
        if call.method != sys.argv[2]:
            return None
        return grpc.unary_unary_rpc_method_handler(lambda request, context: b"" if sys.argv[3] == "open" else
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "no token"))

server = grpc.server(ThreadPoolExecutor(2), handlers=[Handler()])
print(server.add_insecure_port(sys.argv[1] + ":0"), flush=True)
server.start()
server.wait_for_termination()
"""
BARE = """
import os
os.environ |= {"CAIRN_RAY_ADDRESS": "another", "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
from cluster.roles.local import ray, stay_on_loopback
with stay_on_loopback():
    ray.init(num_cpus=1, include_dashboard=False, _node_ip_address="127.0.0.1", object_store_memory=100_000_000)
print("up", flush=True)
input()
ray.shutdown()
"""


@contextlib.contextmanager
def process(title, code, *words, **environment):
    """A Python that runs `code` under another name. Yields its pid and the port that it prints."""
    path = os.pathsep.join(filter(None, sys.path))
    clean = {k: v for k, v in os.environ.items() if k not in ("CAIRN_JOB", "RAY_AUTH_TOKEN_PATH")}
    running = subprocess.Popen(
        [title, "-c", code, *words],
        executable=sys.executable,
        env={**clean, "PYTHONPATH": path, **environment},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield running.pid, int(running.stdout.readline())
    finally:
        running.kill()
        running.wait()
        running.stdout.close()


def found_at(port):
    """What is exposed at this port on an address that stands for an external one."""
    return [one for one in exposed([ELSEWHERE], listeners()) if one.listener.port == port]


@pytest.mark.parametrize(
    "title", ["ray::Learner.update", "/opt/ray/core/src/ray/gcs/gcs_server", "redis-server *:6380"]
)
def test_a_listener_on_all_interfaces_is_found_with_its_process_and_port(title):
    with process(title, SERVER, "0.0.0.0", "") as (pid, port):
        (one,) = found_at(port)
        assert (one.listener.pid, one.listener.of, one.answer) == (pid, "", Answer.SILENT)
        kind = "Redis" if "redis" in title else "Ray"
        assert str(one) == f"{kind} (pid {pid}) answers on 127.0.0.2:{port} {Answer.SILENT.value}"
    assert not found_at(port)


def test_one_that_listens_on_ipv6_answers_to_ipv4_too():
    with process("ray::Learner", SERVER, "::", "hello") as (pid, port):
        assert [one.listener.pid for one in found_at(port)] == [pid]
    with process("ray::Learner", SERVER, "::1", "hello") as (_, port):
        assert not found_at(port)


def test_one_on_loopback_is_not_found_and_one_of_others_is_left_alone():
    with process("ray::Learner", SERVER, "127.0.0.1", "hello") as (pid, port):
        assert pid in {listener.pid for listener in listeners() if listener.kind == "Ray"}
        assert not found_at(port)
    with process("somebody-else", SERVER, "0.0.0.0", "hello") as (_, port):
        assert ask(ELSEWHERE, port) is Answer.SILENT
        assert not found_at(port)


def free_on_both():
    """A port that is free on both addresses: calls of other tests hold some of one for a minute."""
    while True:
        with socket.create_server((str(ELSEWHERE), 0)) as one:
            port = one.getsockname()[1]
            with contextlib.suppress(OSError), socket.create_server((str(LOOPBACK), port)):
                return port


def test_of_two_at_one_port_the_one_who_is_asked_is_named():
    port = free_on_both()
    with process("ray::Learner", SERVER.replace("(host, 0)", f"(host, {port})"), "127.0.0.1", "hello"):
        other = SERVER.replace("(host, 0)", f"(host, {port})")
        with process("somebody-else", other, "127.0.0.2", "hello"):
            assert not found_at(port)
        with process("ray::Rollout", other, "127.0.0.2", "hello") as (pid, _):
            assert [one.listener.pid for one in found_at(port)] == [pid]


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("+PONG\\r\\n", Answer.OPEN),
        ("-NOAUTH Authentication required.\\r\\n", Answer.GUARDED),
        ("-DENIED Redis is running in protected mode\\r\\n", Answer.GUARDED),
        ("HTTP/1.1 401 Unauthorized\\r\\n\\r\\n", Answer.GUARDED),
        ("HTTP/1.0 200 OK\\r\\n\\r\\n# HELP ray_x x\\n# TYPE ray_x gauge\\nray_x 1\\n", Answer.NUMBERS),
        ("HTTP/1.0 200 OK\\r\\n\\r\\na page # HELP of another kind", Answer.OPEN),
        ('HTTP/1.1 200 OK\\r\\n\\r\\n{"result": true}', Answer.OPEN),
        ("HTTP/1.1 404 Not Found\\r\\n\\r\\n", Answer.SILENT),
        ("SSH-2.0-OpenSSH_9.2\\r\\n", Answer.SILENT),
    ],
)
def test_what_a_port_says_decides(said, answer):
    with process("x", SERVER, "127.0.0.1", said) as (_, port):
        assert ask(LOOPBACK, port) is answer


@pytest.mark.parametrize("method", exposure.METHODS)
@pytest.mark.parametrize(("how", "answer"), [("open", Answer.OPEN), ("guarded", Answer.GUARDED)])
def test_a_server_of_grpc_is_asked_by_its_own_method(method, how, answer):
    with process("x", GRPC, "127.0.0.1", f"/{method}", how) as (_, port):
        assert ask(LOOPBACK, port) is answer


@pytest.mark.parametrize(("words", "answer"), [([], Answer.OPEN), (["--requirepass", "x" * 9], Answer.GUARDED)])
def test_a_real_redis_is_found_and_whether_it_asks_for_a_password(tmp_path, words, answer):
    with process("x", SERVER, "127.0.0.2", "") as (_, port):
        pass  # a port that is free
    host = "0.0.0.0" if words else "127.0.0.2"  # one without a password is not for others, even in a test
    command = [find_binary(), "--port", str(port), "--bind", host, "--protected-mode", "no", "--dir", tmp_path, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        try:
            for line in running.stdout:
                if "ready to accept" in line.lower():
                    break
            (one,) = found_at(port)
            assert (one.listener.pid, one.listener.kind, one.answer) == (running.pid, "Redis", answer)
        finally:
            running.kill()


def test_the_llm_service_asks_for_its_token(tmp_path):
    with service(tmp_path / "llm", "name=scripted"):
        host, _, port = (tmp_path / "llm" / "address").read_text().rpartition(":")
        assert ask(ip_address(host), int(port)) is Answer.GUARDED
        (one,) = [listener for listener in listeners() if listener.port == int(port)]
        assert (one.kind, one.of) == ("LLM service", "run")


class Rank:
    """A role that is one of a learner's ranks."""

    def __init__(self, rank, address):
        self.group = Group(rank, 2, address)

    def mean(self, number):
        return self.group.mean([number])


@pytest.mark.slow
def test_ray_of_a_run_answers_to_no_stranger_and_one_without_a_token_to_all(tmp_path):
    from cluster.roles.local import Local

    local = Local(2, tmp_path / "token", dashboard=True)
    try:
        address = free_address()
        ranks = [local.start(f"learner-{rank}", Rank, rank, address) for rank in range(2)]
        means = [local.submit(rank, "mean", float(i)) for i, rank in enumerate(ranks)]
        assert [local.result(mean) for mean in means] == [[0.5], [0.5]]
        ours = [one for one in listeners() if one.kind == "Ray" and _child(one.pid)]
        assert {one.of for one in ours} == {"run"}
        assert int(address.rpartition(":")[2]) in {one.port for one in ours}, "where the ranks met is looked at too"
        assert not exposed([ELSEWHERE, *external_addresses()], ours)
        answers = {ask(one.host, one.port) for one in ours}
        assert Answer.GUARDED in answers
        assert Answer.OPEN not in answers
    finally:
        local.shutdown()
    command, text = [sys.executable, "-c", BARE], {"text": True, "cwd": ROOT}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **text) as running:
        assert "up" in running.stdout.readline()
        theirs = [one for one in listeners() if one.kind == "Ray" and _child(one.pid, running.pid)]
        answers = [ask(one.host, one.port) for one in theirs]
        assert answers.count(Answer.OPEN) >= 3  # GCS, raylet, worker
        assert Answer.GUARDED not in answers
        running.communicate("\n", timeout=60)


def _child(pid, parent=None):
    """Whether a process descends from this one, or from `parent`."""
    while pid > 1:
        if pid == (parent or os.getpid()):
            return True
        pid = psutil.Process(pid).ppid()
    return False


# ---- whose it is ----------------------------------------------------------------------------------------------------


def test_who_a_process_is_of_is_in_its_environment_or_its_parents(tmp_path):
    token, job = f"{tmp_path}/cairn-a1b2c3d4/token", f"{tmp_path}/token"
    for environment, of in (
        ({"RAY_AUTH_TOKEN_PATH": token}, "run"),
        ({"RAY_AUTH_TOKEN_PATH": token, "CAIRN_JOB": "4180"}, "run"),
        ({"RAY_AUTH_TOKEN_PATH": job, "CAIRN_JOB": "4180"}, "job"),
        ({"RAY_AUTH_TOKEN_PATH": job}, ""),
    ):
        with process("ray::Learner", SERVER, "127.0.0.1", "", **environment) as (pid, _):
            assert {one.of for one in listeners() if one.pid == pid} == {of}
    parent = "import os, subprocess, sys; subprocess.run(['ray::Child', '-c', sys.argv[1], '127.0.0.1', ''], "
    parent += "executable=os.environ['PYTHON'], env={'PYTHONPATH': os.environ['PYTHONPATH']})"
    with process("raylet", parent, SERVER, RAY_AUTH_TOKEN_PATH=token, PYTHON=sys.executable) as (pid, port):
        (child,) = [one for one in listeners() if one.port == port]
        assert (child.kind, child.of) == ("Ray", "run")
        assert child.pid != pid
        os.kill(child.pid, 9)


# ---- the doctor's line ----------------------------------------------------------------------------------------------


@pytest.fixture
def elsewhere(monkeypatch):
    """Only what the test starts, and 127.0.0.2 as the address that others reach."""
    before = {(one.host, one.port) for one in listeners()}
    everything = listeners

    def only_new():
        return [one for one in everything() if (one.host, one.port) not in before and (not one.pid or _child(one.pid))]

    monkeypatch.setattr(exposure, "external_addresses", lambda: [ELSEWHERE])
    monkeypatch.setattr(exposure, "listeners", only_new)
    return lambda: doctor.CHECKS["exposure"](ROOT)


def test_the_doctor_names_who_answers_and_what_to_do(elsewhere, tmp_path):
    assert elsewhere() == doctor.Finding("ok", "nothing of Cairn answers on 127.0.0.2")
    run = {"RAY_AUTH_TOKEN_PATH": f"{tmp_path}/cairn-a1b2c3d4/token"}
    open_, guarded = "+PONG\\r\\n", "-NOAUTH\\r\\n"
    for title, said, environment, state, fix in (
        ("ray::Learner", open_, run, "fail", "start its run again"),
        ("ray::Learner", open_, {"CAIRN_JOB": "41"}, "fail", "start its run again"),
        ("ray::Learner", guarded, run, "warn", "start its run again"),
        ("ray::Learner", open_, {}, "warn", "RAY_AUTH_MODE=token"),
        ("redis-server *:1", open_, {}, "warn", "requirepass"),
        ("grafana", "hello", {}, "warn", "ss -ltnp"),
    ):
        with process(title, SERVER, "0.0.0.0", said, **environment) as (pid, port):
            finding = elsewhere()
            assert finding.state == state, finding
            assert f"(pid {pid}) answers on 127.0.0.2:{port}" in finding.text
            assert fix in finding.fix
    for title, said, environment, text in (
        ("ray::Learner", guarded, {"CAIRN_JOB": "41"}, "a job's Ray answers on 127.0.0.2 at 1 ports"),
        ("redis-server *:1", guarded, {}, "nothing of Cairn answers on 127.0.0.2"),
    ):
        with process(title, SERVER, "0.0.0.0", said, **environment):
            assert elsewhere().state == "ok"
            assert text in elsewhere().text
    with process("ray::Learner", SERVER, "127.0.0.1", open_, **run):
        assert elsewhere().text == "nothing of Cairn answers on 127.0.0.2; 1 ports stay on loopback"


def test_of_many_the_worst_are_named(elsewhere):
    with contextlib.ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(process("redis-server *:1", SERVER, "0.0.0.0", "+PONG\\r\\n"))
        pid, _ = stack.enter_context(process("ray::A", SERVER, "0.0.0.0", "+PONG\\r\\n", CAIRN_JOB="41"))
        finding = elsewhere()
    assert finding.state == "fail"
    assert finding.text.startswith(f"Ray (pid {pid}) answers")
    assert finding.text.endswith("; and 2 more")


def test_a_well_known_port_is_reported_whoever_has_it(elsewhere, monkeypatch):
    with process("somebody-else", SERVER, "0.0.0.0", "+PONG\\r\\n") as (_, port):
        monkeypatch.setitem(exposure.WELL_KNOWN, port, "Redis or Ray")
        finding = elsewhere()
    assert (finding.state, finding.text) == (
        "warn",
        f"Redis or Ray answers on 127.0.0.2:{port} {Answer.OPEN.value}",
    )
    assert f"port {port}" in finding.fix


def test_a_machine_without_an_external_address_says_so():
    code = "from pathlib import Path; from cluster.cli import doctor, exposure\n"
    isolated = ["unshare", "-rn"]  # a network of its own, which has loopback only
    if subprocess.run([*isolated, "true"], capture_output=True).returncode:
        isolated, code = [], code + "exposure.external_addresses = lambda: []\n"
    code += "print(doctor.CHECKS['exposure'](Path('.')))"
    done = subprocess.run([*isolated, sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert "state='ok', text='this machine has only a loopback address" in done.stdout, done.stderr


def test_addresses_of_loopback_and_of_one_link_are_not_external(monkeypatch):
    def address(text):
        family = socket.AF_INET6 if ":" in text else socket.AF_INET
        return SimpleNamespace(family=family, address=text)

    hardware = SimpleNamespace(family=psutil.AF_LINK, address="02:42:ac:11:00:02")
    addresses = {
        "lo": [address("127.0.0.1"), address("::1")],
        "eth0": [address("fd00::2"), address("10.0.0.5"), address("fe80::fc:ff:fe00:1%eth0"), hardware],
        "eth1": [address("10.0.0.5")],
    }
    here = {one.address for of in psutil.net_if_addrs().values() for one in of}
    assert {str(one) for one in external_addresses()} <= here - {"127.0.0.1", "::1"}
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: addresses)
    assert external_addresses() == [ip_address("10.0.0.5"), ip_address("fd00::2")]
