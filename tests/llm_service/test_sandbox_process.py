"""Written programs in their process: what it answers, what ends it, and that nothing of it is left."""

import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from llm_service.sandbox import connection, lockdown, process
from llm_service.sandbox.grammar import CodeRefused, normalise
from llm_service.sandbox.interpreter import Program
from llm_service.sandbox.process import Sandbox, SandboxBroken
from tests.llm_service.escapes import looped

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "llm_service" / "sandbox"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="these are protections of Linux")


def returning(value):
    return f"def potential(observations, actions):\n    return {value}"


PROGRAMS = [
    returning("1.5"),
    returning("len(observations) / 4 + actions[0]"),
    returning("1 / observations[0][0][0][0]"),
    returning("observations[0][9]"),
    returning("((10 ** 4) ** 4) ** 4"),
    returning("observations"),
    returning("min([x for x in actions if x > 99])"),
    returning("sum(cell[0] == 5 for view in observations for column in view for cell in column) ** 0.5"),
    returning("max([[i, j] for i in range(256) for j in range(256) if i + j > actions[0]][7])"),
    "def potential(observations, actions):\n    total = 0\n    for a in actions:\n        if a > 3:\n"
    "            continue\n        total += round(a / 7, 2)\n    return total // 0.3 % 5",
    "def potential(observations, actions):\n    if actions[0] > 3:\n        return 1.0",
]


def rows(n, window=3, dtype=np.uint8, seed=0):
    random = np.random.default_rng(seed)
    observations = random.integers(0, 11, (n, window, 7, 7, 3)).astype(dtype)
    return observations, random.integers(0, 7, (n, window - 1))


@pytest.fixture
def sandbox():
    with Sandbox(wall_s=60.0) as made:
        yield made


def pid(sandbox):
    return sandbox._child.process.pid


def gone(number, seconds=20.0):
    """Whether no process has this id; a zombie is one."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not Path(f"/proc/{number}").exists():
            return True
        time.sleep(0.02)
    return False


PLANTED = """
import sys, types
sys.path.insert(0, {folder!r})
import child
prepare = child._prepare

def planted(packages, root):
    prepare(packages, root)
    import os, time, numpy as np
    from llm_service.sandbox import lockdown

    class Program:
        def __init__(self, code):
            self.code, self.calls = code, 0

        def __call__(self, observations, actions):
            self.calls += 1
            n, faults = len(observations), {{}}
            values = np.ones(n, np.float32)
            if self.code.endswith("return 1"):
                {body}
            return types.SimpleNamespace(values=values, faults=faults)

    sys.modules["llm_service.sandbox.interpreter"] = types.SimpleNamespace(Program=Program)
    {setup}

child._prepare = planted
child.main()
child.os._exit(0)
"""


@pytest.fixture
def plant(tmp_path, monkeypatch):
    """A real child, locked down, whose interpreter is one line of Python, as if a program had found a hole."""

    def make(body="pass", setup="pass"):
        path = tmp_path / "planted.py"
        path.write_text(PLANTED.format(folder=str(FOLDER), body=body, setup=setup))
        monkeypatch.setattr(connection, "_CHILD", path)
        return path

    return make


# What it answers


@pytest.mark.parametrize("code", PROGRAMS)
def test_values_are_the_interpreters(sandbox, code):
    observations, actions = rows(20)
    done, alone = sandbox.phi(code, observations, actions), Program(code)(observations, actions)
    assert done.values.dtype == np.float32
    np.testing.assert_array_equal(done.values, alone.values)
    assert done.faults == dict(alone.faults)
    assert sandbox.phi(PROGRAMS[0], observations, actions).values[0] == 1.5  # by the same child
    assert not sandbox._deaths


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int64, ">i4"])
def test_integers_of_any_size_and_order(sandbox, dtype):
    code = "def potential(observations, actions):\n    return observations[-1][3][5][0] + actions[1] / 2"
    observations, actions = rows(9)
    expected = Program(code)(observations, actions)
    other = np.repeat(observations.astype(dtype), 2, axis=0)[::2]  # in pieces of memory
    np.testing.assert_array_equal(sandbox.phi(code, other, actions.astype(dtype)).values, expected.values)


def test_many_rows_are_sent_in_pieces(sandbox, plant, monkeypatch):
    monkeypatch.setattr(process, "PIECE_ROWS", 10)
    plant("values[:] = self.calls; faults['odd'] = 1")
    done = sandbox.phi(returning("1"), *rows(25))
    assert done.values.tolist() == [1] * 10 + [2] * 10 + [3] * 5
    assert done.faults == {"odd": 3}


def test_no_rows(sandbox):
    done = sandbox.phi(PROGRAMS[0], *rows(0))
    assert done.values.shape == (0,)
    assert done.faults == {}


def test_text_outside_the_grammar_reaches_no_process(sandbox):
    with pytest.raises(CodeRefused):
        sandbox.phi("import os", *rows(3))
    assert sandbox._child is None


def test_rows_may_share_observations(sandbox):
    observations, random = rows(60)[0][:, 0], np.random.default_rng(2)
    index, actions = random.integers(0, 60, (2_500, 3)), random.integers(0, 7, (2_500, 2))
    for code in PROGRAMS:
        done, alone = (
            sandbox.phi(code, observations, actions, index),
            sandbox.phi(code, observations[index], actions),
        )
        assert np.array_equal(done.values, alone.values)
        assert done.faults == alone.faults
    for wrong in (index + 1, index[:-1], index[:, :2], -1 - index):
        with pytest.raises(ValueError, match="observations"):
            sandbox.phi(PROGRAMS[0], observations, actions, wrong)


def test_what_the_child_writes_later_changes_no_value(sandbox):
    done = sandbox.phi(PROGRAMS[0], *rows(4))
    sandbox._child._shared[:16] = bytes(16)  # the child's own mapping is of the same memory
    assert done.values.tolist() == [1.5] * 4


def test_the_shared_memory_cannot_be_cut_off_under_the_parent():
    descriptor = connection._shared_file()
    for size in (0, 1 << 30):
        with pytest.raises(PermissionError):
            os.ftruncate(descriptor, size)
    os.close(descriptor)


@pytest.mark.parametrize(
    ("observations", "actions", "said"),
    [
        (np.zeros((3, 2, 4)), np.zeros((3, 1), int), "integers"),
        (np.full((3, 2, 4), -(2**63)), np.zeros((3, 1), int), "integers up to"),
        (np.zeros((3, 2, 4), int), np.zeros((3, 2), int), "N, K - 1"),
        (np.zeros(3, int), np.zeros((3, 0), int), "N, K - 1"),
        (np.zeros((1, 1, 20_000_000), np.uint8), np.zeros((1, 0), int), "bytes"),
    ],
)
def test_wrong_arrays_are_the_callers_error(sandbox, observations, actions, said):
    with pytest.raises(ValueError, match=said):
        sandbox.phi(PROGRAMS[0], observations, actions)


@pytest.mark.parametrize("limits", [{"wall_s": 0}, {"wall_s": 9, "cpu_s": 5}, {"memory_bytes": 1000}])
def test_limits_without_room_are_refused(limits):
    with pytest.raises(ValueError, match="must be"):
        Sandbox(**limits)


def test_a_row_with_two_answers_counts_nothing(sandbox, plant):
    plant("values[:] = np.arange(n); faults['odd'] = 1")
    done = sandbox.check(returning("1"), *rows(3))
    assert done.values.tolist() == [0, 1, 0]
    assert done.faults == {"odd": 1, "not deterministic": 2}
    assert sandbox.check(returning("2"), *rows(3)).faults == {}


# What ends it


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("time.sleep(0)", "process"),  # a system call: the filter kills
        ("open('/etc/passwd')", "process"),
        ("os._exit(0)", "process"),
        ("1 / 0", "process"),
        ("bytearray(1 << 40)", "memory"),
        ("values = values[1:]", "process"),
        ("values[0] = np.nan", "process"),
        ("faults['odd'] = n + 1", "process"),
        ("faults['x' * 70000] = 1", "process"),
        ("os.write(1, b'nonsense' * 9)", "process"),
    ],
)
def test_a_program_that_ends_its_process_gives_zeros(sandbox, plant, body, fault, caplog):
    plant(body)
    bad, good = returning("1"), returning("2")
    assert sandbox.phi(good, *rows(3)).values.tolist() == [1, 1, 1]
    done = sandbox.phi(bad, *rows(4))
    assert done.values.dtype == np.float32
    assert done.values.tolist() == [0, 0, 0, 0]
    assert done.faults == {fault: 4}
    assert f": {fault}; its process is ended" in caplog.text
    assert sandbox.phi(good, *rows(3)).values.tolist() == [1, 1, 1]


def test_what_is_not_answered_in_time(plant):
    plant("while True: pass")
    with Sandbox(wall_s=2.0) as sandbox:
        sandbox.phi(returning("2"), *rows(1))
        first = pid(sandbox)
        assert sandbox.phi(returning("1"), *rows(4)).faults == {"wall": 4}
        assert gone(first, 0.1)
        assert sandbox.phi(returning("2"), *rows(2)).values.tolist() == [1, 1]


def test_a_child_that_does_not_listen(sandbox, monkeypatch):
    """It is stopped in the middle: more is sent than a pipe holds, and nobody reads."""
    sandbox.phi(PROGRAMS[0], *rows(1))
    monkeypatch.setattr(sandbox, "_wall_s", 1.0)
    os.kill(pid(sandbox), signal.SIGSTOP)
    assert sandbox.phi(PROGRAMS[0], *rows(1000)).faults == {"wall": 1000}


def test_a_program_that_ends_three_processes_is_not_run_again(sandbox, plant):
    plant("os._exit(0)")
    bad = returning("1")
    faults = [sandbox.phi(bad, *rows(2)).faults for _ in range(5)]
    assert faults == [{"process": 2}] * 3 + [{"banned": 2}] * 2
    assert sandbox.phi(bad + "  # in other words", *rows(2)).faults == {"banned": 2}
    assert sandbox.phi(returning("2"), *rows(2)).faults == {}


def test_a_child_killed_during_a_call(sandbox, plant):
    plant("while True: pass")
    sandbox.phi(returning("2"), *rows(1))
    threading.Timer(0.5, os.kill, [pid(sandbox), signal.SIGKILL]).start()
    assert sandbox.phi(returning("1"), *rows(2)).faults == {"process": 2}
    assert sandbox.phi(returning("2"), *rows(1)).values.tolist() == [1]


def test_an_interrupted_call_leaves_no_answer_behind(sandbox, plant):
    def interrupt(*_):
        raise KeyboardInterrupt

    plant("while True: pass")
    sandbox.phi(returning("2"), *rows(1))
    first, before = pid(sandbox), signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        with pytest.raises(KeyboardInterrupt):
            sandbox.phi(returning("1"), *rows(1))
    finally:
        signal.signal(signal.SIGALRM, before)
    assert gone(first, 0.1)
    assert not sandbox._deaths


def test_a_child_killed_between_calls_costs_nothing(sandbox):
    sandbox.phi(PROGRAMS[0], *rows(2))
    os.kill(pid(sandbox), signal.SIGKILL)
    time.sleep(0.2)
    assert sandbox.phi(PROGRAMS[0], *rows(2)).faults == {}


FAKE = """
import mmap, os, sys, time
sys.path.insert(0, {folder!r})
from child import SHARED_BYTES, _receive

shared = mmap.mmap(int(sys.argv[5]), SHARED_BYTES)
os.write(1, {first!r})
while True:
    _receive(int.from_bytes(_receive(4), "little"))
    shared[:len({values!r})] = {values!r}
    os.write(1, {answer!r})
    if {once}:
        break
    if {later!r}:
        time.sleep(0.2)
        os.write(1, {later!r})
"""


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """A child that says these bytes first, and those whatever it is asked; the values are what it leaves in memory."""

    def make(first, answer=b"", values=b"", once=False, later=b""):
        path = tmp_path / "fake.py"
        told = {"first": first, "answer": answer, "values": values, "once": once, "later": later}
        path.write_text(FAKE.format(folder=str(FOLDER), **told))
        monkeypatch.setattr(connection, "_CHILD", path)

    return make


def frame(header):
    return len(header).to_bytes(4, "little") + header


HELLO = frame(b'{"protections": []}')
GOOD = np.ones(2, "<f4").tobytes()


@pytest.mark.parametrize(
    ("said", "values"),
    [
        (b"garbage that is no message at all", GOOD),
        (b"\xff\xff\xff\xff" + b"x" * 100, GOOD),
        (frame(b"[1, 2]"), GOOD),
        (frame(b"\xff\xfe"), GOOD),
        (frame(b"[" * 60_000), GOOD),
        (frame(b"{}"), GOOD),
        (frame(b'{"rows": 3, "faults": {}}'), GOOD + GOOD),
        (frame(b'{"rows": 2, "faults": []}'), GOOD),
        (frame(b'{"rows": 2, "faults": {"odd": -1}}'), GOOD),
        (frame(b'{"rows": 2, "faults": {"odd": true}}'), GOOD),
        (frame(b'{"rows": 2, "faults": {"odd": 1e0}}'), GOOD),
        (frame(b'{"rows": 2, "faults": {"\\u001b[31m": 1}}'), GOOD),
        (
            frame(
                json.dumps(
                    {"rows": 2, "faults": {"a" * i: 1 for i in range(1, 40)} | {"b" * i: 1 for i in range(1, 40)}}
                ).encode()
            ),
            GOOD,
        ),
        (frame(b'{"rows": 2, "faults": {}}') + b"more", GOOD),
        (frame(b'{"rows": 2, "faults": {}}'), np.float32([1, np.nan]).tobytes()),
        (frame(b'{"rows": 2, "faults": {}}'), np.float32([1, np.inf]).tobytes()),
        (frame(b'{"rows": 2, "faults": {}}'), GOOD[:4]),  # the second value is missing
        (frame(b'{"rows": 2, "faults": {}}'), b""),
        (frame(b'{"fault": {"a": 1}}'), GOOD),
    ],
)
def test_an_answer_out_of_form_is_contained(sandbox, fake, said, values):
    fake(HELLO, said, values, once=True)
    done = sandbox.phi(PROGRAMS[0], *rows(2))
    assert done.values.tolist() == [0, 0]
    assert done.faults == {"process": 2}


def test_what_is_said_after_an_answer_is_no_answer_to_the_next(sandbox, fake):
    answer = frame(b'{"rows": 2, "faults": {"odd": 1}}')
    fake(HELLO, answer, GOOD)
    for _ in range(2):
        assert sandbox.phi(PROGRAMS[0], *rows(2)).faults == {"odd": 1}  # this fake is believed
    sandbox.close()
    fake(HELLO, answer, GOOD, later=answer)
    sandbox.phi(PROGRAMS[0], *rows(2))
    first = pid(sandbox)
    time.sleep(0.5)
    sandbox.phi(PROGRAMS[0], *rows(2))
    assert pid(sandbox) != first


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (frame(b""), "does not start"),
        (frame(b"{}"), "does not start"),
        (frame(b'{"protections": [[]]}'), "does not start"),
        (frame(b'{"error": "no NumPy"}'), "no NumPy"),
    ],
)
def test_a_child_that_does_not_start_is_an_error(sandbox, fake, first, said):
    fake(first)
    with pytest.raises(SandboxBroken, match=said):
        sandbox.phi(PROGRAMS[0], *rows(2))
    assert sandbox._child is None


def test_a_child_that_ends_at_once_is_an_error(sandbox, tmp_path, monkeypatch):
    monkeypatch.setattr(connection, "_CHILD", tmp_path / "missing.py")
    with pytest.raises(SandboxBroken, match="ended before its first word"):
        sandbox.phi(PROGRAMS[0], *rows(2))


# What it holds


def test_it_says_once_which_protections_hold(sandbox, caplog):
    caplog.set_level("INFO")
    held = sandbox.protections
    assert set(held) <= set(lockdown.PROTECTIONS)
    assert {"limits", "memory limit", "no new privileges", "not dumpable", "dies with its parent"} <= set(held)
    sandbox.close()
    assert sandbox.protections == held
    assert len([record for record in caplog.records if "behind" in record.message]) == 1


REFUSING = (
    "real = lockdown._call;lockdown._call = lambda name, *given: real(name, *given) if {allowed} else real('prctl', -1)"
)


@pytest.mark.parametrize(
    ("missing", "allowed"), [("seccomp", "(name, *given[:1]) != ('prctl', 22)"), ("namespaces", "name != 'unshare'")]
)
def test_where_the_kernel_refuses_a_protection_it_works_and_says_so(sandbox, plant, caplog, missing, allowed):
    plant(setup=REFUSING.format(allowed=allowed))
    assert missing not in sandbox.protections
    assert {"limits", "no new privileges"} <= set(sandbox.protections)
    assert f"without: {missing}" in caplog.text
    assert sandbox.phi(returning("2"), *rows(2)).values.tolist() == [1, 1]


def test_secrets_of_the_parent_are_not_in_its_environment(sandbox, plant, monkeypatch):
    monkeypatch.setenv("CAIRN_LLM_TOKEN", "secret")
    plant("faults['variables'] = len([x for x in os.environ if not x.endswith('_NUM_THREADS')])")
    assert sandbox.phi(returning("1"), *rows(4)).faults == {"variables": 0}


def test_what_the_kernel_says_of_it(sandbox, monkeypatch):
    monkeypatch.setenv("CAIRN_LLM_TOKEN", "secret")
    if not set(lockdown.PROTECTIONS) <= set(sandbox.protections):
        pytest.skip(f"of all protections this machine allows {sandbox.protections}")
    folder = Path(f"/proc/{pid(sandbox)}")
    status = dict(line.split(":\t", 1) for line in (folder / "status").read_text().splitlines())
    assert {status[name].strip("0") for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")} == {""}
    assert (status["NoNewPrivs"], status["Seccomp"], status["Threads"]) == ("1", "2", "1")
    user = int(status["Uid"].split()[0])
    assert user == (os.getuid() or 65534)
    assert (folder / "maps").stat().st_uid != user  # so the kernel marks what is not dumpable
    if os.getuid() == 0:
        assert b"secret" not in (folder / "environ").read_bytes()
        assert {int(x) for x in os.listdir(folder / "fd")} == {0, 1}
        assert os.listdir(folder / "root") == []
        for name in ("net", "ipc", "mnt"):
            assert os.readlink(folder / "ns" / name) != os.readlink(f"/proc/self/ns/{name}")


def test_it_has_of_ours_only_what_it_needs():
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); import child; child._prepare(*sys.argv[2:]);"
        "from llm_service.sandbox import lockdown; child._program(child._FIRST); print(*sorted(sys.modules))"
    )
    words = [str(FOLDER), str(Path(np.__file__).parents[1]), str(ROOT)]
    command = [sys.executable, "-I", "-S", "-c", script, *words]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.split()
    ours = {name for name in loaded if name.split(".")[0] in ("llm_service", "cluster", "actors", "learner", "envs")}
    assert {"llm_service.sandbox.interpreter", "llm_service.sandbox.lockdown"} < ours
    assert all(name == "llm_service" or name.startswith("llm_service.sandbox") for name in ours)
    assert not {"torch", "ray", "pydantic", "grpc", "socket", "subprocess", "site"} & set(loaded)
    assert "numpy" in loaded


def test_after_its_time_a_fresh_child_takes_over(sandbox):
    sandbox.phi(PROGRAMS[0], *rows(2))
    first = pid(sandbox)
    sandbox.phi(PROGRAMS[0], *rows(2))
    assert pid(sandbox) == first
    sandbox._child.spent_s = 299.0
    assert sandbox.phi(PROGRAMS[0], *rows(2)).faults == {}
    assert pid(sandbox) != first
    assert gone(first, 0.1)


# Machine code


@pytest.fixture
def often(monkeypatch):
    """Programs get machine code when they are asked for the second row."""
    monkeypatch.setattr(process, "COMPILED_AFTER", 2)


def own(sandbox):
    """The programs that have a process with machine code, the last used one at the end."""
    return [key[0] for key, child in sandbox._own.items() if child.compiled]


def test_a_program_that_is_asked_for_often_gets_machine_code(sandbox, often):
    observations, actions = rows(40)
    for code in PROGRAMS[:4]:
        alone = Program(code)(observations, actions)
        for wait in (False, True, False):
            if wait:
                assert sandbox.await_code() > 0
            done = sandbox.phi(code, observations, actions)
            assert done.values.tobytes() == alone.values.tobytes()
            assert done.faults == dict(alone.faults)
        assert own(sandbox)[-1] == code
        assert len(sandbox._alive) == len(own(sandbox)) <= process.MAX_OWN  # the one that interprets is not needed
        index = np.arange(120).reshape(40, 3)
        assert np.array_equal(
            sandbox.phi(code, observations.reshape(120, 7, 7, 3), actions, index).values, alone.values
        )
    assert own(sandbox) == PROGRAMS[2:4]
    assert not sandbox._deaths
    processes = [child.process.pid for child in sandbox._alive]
    sandbox.close()
    assert all(gone(number, 0.1) for number in processes)


def test_until_its_machine_code_is_there_a_program_is_interpreted(sandbox, often, monkeypatch):
    monkeypatch.setattr(connection.Connection, "may_greet", lambda child: False)
    for _ in range(3):
        assert sandbox.phi(PROGRAMS[0], *rows(2)).values.tolist() == [1.5, 1.5]
    assert len(sandbox._alive) == 2
    assert own(sandbox) == []


def test_other_shapes_of_a_program_have_code_of_their_own(sandbox, often):
    small, large = rows(2), rows(2, window=4)
    for asked in (small, large):
        sandbox.phi(PROGRAMS[1], *asked)
        assert sandbox.await_code()
    alone = [Program(PROGRAMS[1])(*asked).values for asked in (small, large)]
    assert [sandbox.phi(PROGRAMS[1], *asked).values.tolist() for asked in (small, large)] == [a.tolist() for a in alone]
    assert own(sandbox) == [PROGRAMS[1]] * 2


def test_a_program_without_machine_code_is_interpreted(sandbox, often):
    code = "def potential(observations, actions):\n    x = 1 if actions[0] > 2 else (1, 2)\n    return x"
    observations, actions = rows(9)
    first = sandbox.phi(code, observations, actions)
    assert sandbox.await_code() == 0
    assert (
        sandbox.phi(code, observations, actions).faults == first.faults == Program(code)(observations, actions).faults
    )
    assert len(sandbox._alive) == 1
    sandbox.phi(code, observations, actions)
    assert sandbox._own == {}


def test_where_no_machine_code_can_be_made_programs_are_interpreted(sandbox, often, monkeypatch, caplog):
    def broken(child):
        child.kill()
        raise SandboxBroken("no LLVM here")

    sandbox.phi(PROGRAMS[0], *rows(2))
    monkeypatch.setattr(connection.Connection, "greet", broken)
    assert sandbox.await_code() == 0
    assert "no LLVM here" in caplog.text
    monkeypatch.undo()
    assert sandbox.phi(PROGRAMS[0], *rows(2)).values.tolist() == [1.5, 1.5]
    assert len(sandbox._alive) == 1


def test_a_process_with_machine_code_that_is_killed_costs_one_answer_at_most(sandbox, often):
    sandbox.phi(PROGRAMS[0], *rows(2))
    sandbox.await_code()
    sandbox.phi(PROGRAMS[0], *rows(2))
    (child,) = sandbox._alive
    child.process.kill()
    child.process.wait()
    assert sandbox.phi(PROGRAMS[0], *rows(2)).values.tolist() == [1.5, 1.5]
    assert sandbox.phi(PROGRAMS[0], *rows(2)).values.tolist() == [1.5, 1.5]
    assert child not in sandbox._alive
    assert not sandbox._deaths


def test_machine_code_that_stands_still_is_ended(sandbox, often, monkeypatch):
    sandbox.phi(PROGRAMS[0], *rows(2))
    sandbox.await_code()
    sandbox.phi(PROGRAMS[0], *rows(2))
    monkeypatch.setattr(sandbox, "_wall_s", 1.0)
    (child,) = sandbox._alive
    os.kill(child.process.pid, signal.SIGSTOP)
    assert sandbox.phi(PROGRAMS[0], *rows(3)).faults == {"wall": 3}
    assert gone(child.process.pid, 0.1)
    monkeypatch.setattr(sandbox, "_wall_s", 60.0)
    assert sandbox.phi(PROGRAMS[0], *rows(2)).values.tolist() == [1.5, 1.5]


def test_machine_code_that_runs_away_ends_by_its_steps(sandbox, often):
    code = normalise(looped("n = n * 0.5 + 1", depth=2, over="range(actions[0] * 99)"))
    observations, actions = rows(40)
    sandbox.phi(code, observations, actions)
    assert sandbox.await_code() == 1
    done, alone = sandbox.phi(code, observations, actions), Program(code)(observations, actions)
    assert own(sandbox) == [code]
    assert done.faults == alone.faults
    assert done.faults["steps"] > 20


def test_a_process_with_machine_code_is_locked_down_as_the_other(sandbox, often):
    held = sandbox.protections
    sandbox.phi(PROGRAMS[0], *rows(2))
    assert sandbox.await_code() == 1
    (child,) = sandbox._own.values()
    assert child.greet() == held
    if os.getuid() == 0 and "seccomp" in held:
        folder = Path(f"/proc/{child.process.pid}")
        status = dict(line.split(":\t", 1) for line in (folder / "status").read_text().splitlines())
        assert (status["NoNewPrivs"], status["Seccomp"], status["Threads"]) == ("1", "2", "1")
        assert {int(x) for x in os.listdir(folder / "fd")} == {0, 1}
        rights = [line.split()[1] for line in (folder / "maps").read_text().splitlines()]
        assert not [right for right in rights if "w" in right and "x" in right]


# Threads, forks, ends


def test_a_child_that_dies_with_the_thread_that_started_it_costs_nothing(sandbox, plant):
    plant("sum(range(10**8))")  # a second or more

    def start():
        sandbox.phi(returning("2"), *rows(1))
        started.set()
        ended.wait()

    started, ended = threading.Event(), threading.Event()
    threading.Thread(target=start).start()
    started.wait()
    first = pid(sandbox)
    threading.Timer(0.2, ended.set).start()
    done = sandbox.phi(returning("1"), *rows(2))
    assert pid(sandbox) != first
    assert done.values.tolist() == [1, 1]
    assert done.faults == {}
    assert not sandbox._deaths


def test_threads_take_turns(sandbox):
    answers = [None] * 8

    def ask(index):
        answers[index] = {sandbox.phi(returning(index), *rows(3)).values[0] for _ in range(5)}

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [{index} for index in range(8)]


def test_nothing_is_left_of_it():
    with Sandbox() as sandbox:
        sandbox.phi(PROGRAMS[0], *rows(1))
        first = pid(sandbox)
    assert gone(first, 0.1)
    sandbox = Sandbox()
    sandbox.phi(PROGRAMS[0], *rows(1))
    second = pid(sandbox)
    del sandbox
    gc.collect()
    assert gone(second, 0.1)


PARENT = """
import os, sys, time
sys.path.insert(0, sys.argv.pop(1))
from pathlib import Path
import numpy as np
from llm_service.sandbox import connection, process
if len(sys.argv) > 1:
    connection._CHILD = Path(sys.argv[1])
sandbox = process.Sandbox(wall_s=60.0)
code = "def potential(observations, actions):\\n    return "
ask = lambda value: sandbox.phi(code + value, np.zeros((1, 1), int), np.zeros((1, 0), int))
ask('2')
if len(sys.argv) <= 1:
    if os.fork() == 0:  # a copy starts a child of its own, and ends that alone
        first = sandbox._child.process.pid
        ask('3')
        assert sandbox._child.process.pid != first
        sandbox.close()
        os._exit(0)
    assert os.wait()[1] == 0
assert sandbox._child.process.poll() is None
print(sandbox._child.process.pid, flush=True)
ask('1') if len(sys.argv) > 1 else sys.stdin.read()
"""


def parent(*words):
    command = [sys.executable, "-c", PARENT, *map(str, (ROOT, *words))]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("busy", [True, False])
def test_a_killed_parent_leaves_no_child(plant, busy):
    with parent(*[plant("while True: pass")] * busy) as process:
        number = int(process.stdout.readline())
        time.sleep(0.3)
        assert Path(f"/proc/{number}").exists()
        process.kill()
        assert gone(number)


def test_a_parent_that_ends_without_closing_leaves_no_child():
    with parent() as process:
        number = int(process.stdout.readline())
        process.stdin.close()
        assert process.wait(60) == 0
        assert gone(number, 0.1)
