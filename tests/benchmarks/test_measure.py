"""The harness: rounds, ratios, rows, skips, children. No real peer and no timing."""

import json
import os
import sys
import time
from dataclasses import asdict

import numpy as np
import psutil
import pytest

from benchmarks import measure
from benchmarks.measure import (
    Case,
    DifferentOutputs,
    Options,
    OutOfTime,
    PeerFailed,
    Report,
    Skip,
    assert_equal,
    compare,
    make_row,
    run_peer,
    save,
)

CASE = Case("bench", "case", "env_steps", headline=frozenset({"peer"}))
KEYS = ["benchmark", "case", "metric", "ours", "peer", "ratio", "ratio_min", "ratio_max", "headline"]


def counter(log, name, values):
    """A run that notes its turn and yields the next value."""
    left = iter(values)

    def run():
        log.append(name)
        return next(left)

    return run


def test_ratio_is_the_median_of_per_round_ratios_not_the_ratio_of_medians():
    row = make_row(CASE, "peer", ours=[10.0, 40.0, 30.0], theirs=[5.0, 10.0, 30.0], loads=[1.0, 3.0, 2.0])
    assert (row.ratio, row.ratio_min, row.ratio_max) == (2.0, 1.0, 4.0)
    assert (row.ours, row.peer_value, row.rounds, row.load) == (30.0, 10.0, 3, 2.0)


def test_a_time_is_turned_round_so_that_larger_is_better_for_us():
    case = Case("bench", "case", "wall", lower_is_better=True)
    assert make_row(case, "peer", ours=[10.0], theirs=[30.0], loads=[0.0]).ratio == 3.0


def test_row_has_the_fixed_keys_first_and_is_json():
    row = make_row(CASE, "peer", [2.0], [1.0], [0.5])
    assert list(asdict(row))[:9] == KEYS
    assert json.loads(json.dumps(asdict(row)))["headline"] is True
    assert make_row(CASE, "other", [2.0], [1.0], [0.5]).headline is False
    assert row.id == "bench/case/env_steps/peer"


def test_systems_take_turns():
    log = []
    peers = {"b": counter(log, "B", [1.0] * 3), "c": counter(log, "C", [1.0] * 3)}
    report = compare(CASE, counter(log, "A", [1.0] * 3), peers, Options(rounds=3))
    assert "".join(log) == "ABCABCABC"
    assert [row.rounds for row in report.rows] == [3, 3]


def test_a_failing_peer_is_skipped_with_its_reason_and_the_others_go_on():
    def fails():
        raise PeerFailed("its wheel is missing")

    report = compare(CASE, lambda: 4.0, {"bad": fails, "peer": lambda: 2.0}, Options(rounds=2))
    assert [(row.peer, row.ratio) for row in report.rows] == [("peer", 2.0)]
    assert report.skips == [Skip("bench", "case", "env_steps", "bad", "its wheel is missing")]


def test_a_peer_that_fails_late_leaves_no_row():
    values = iter([1.0])

    def fails_later():
        for value in values:
            return value
        raise PeerFailed("gone")

    report = compare(CASE, lambda: 1.0, {"peer": fails_later}, Options(rounds=3))
    assert report.rows == []
    assert [skip.reason for skip in report.skips] == ["gone"]


def test_after_the_deadline_nothing_begins():
    log = []
    options = Options(rounds=3, deadline=time.monotonic() - 1.0)
    report = compare(CASE, counter(log, "A", [1.0]), {"peer": counter(log, "B", [1.0])}, options)
    assert log == []
    assert [skip.reason for skip in report.skips] == ["no time was left for it"]


def test_our_own_time_out_skips_the_case():
    def ours():
        raise OutOfTime("ours gave no answer in 3 s")

    report = compare(CASE, ours, {"peer": lambda: 1.0, "other": lambda: 1.0}, Options(rounds=2))
    assert report.rows == []
    assert [skip.peer for skip in report.skips] == ["peer", "other"]


def test_no_round_begins_that_would_pass_the_deadline(monkeypatch):
    clock = iter(range(0, 1000, 10))
    monkeypatch.setattr(measure.time, "monotonic", lambda: float(next(clock)))
    report = compare(CASE, lambda: 1.0, {"peer": lambda: 1.0}, Options(rounds=50, deadline=200.0))
    assert 1 <= report.rows[0].rounds < 10


def test_a_crash_of_ours_is_not_hidden():
    def ours():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        compare(CASE, ours, {"peer": lambda: 1.0}, Options(rounds=1))


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        (np.array([1, 2, 3]), np.array([1, 9, 3]), r"at \(1,\)"),
        (np.zeros(3), np.zeros(4), "shape"),
        ("go left", "go right", "go right"),
        (("a", "b"), ("a", "c"), "'c'"),
    ],
)
def test_different_outputs_fail_and_say_where(ours, theirs, said):
    with pytest.raises(DifferentOutputs, match=said):
        assert_equal("output", ours, theirs)
    assert_equal("output", ours, ours)


def test_a_missing_environment_is_a_reason_that_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setattr(measure, "ENVIRONMENTS", tmp_path)
    with pytest.raises(PeerFailed, match="make setup-bench"):
        run_peer("sb3", "train_sb3", [], 10.0)


@pytest.fixture
def peer(monkeypatch, tmp_path):
    """Runs a script as the family `fake`, whose interpreter is this one."""

    def run(source, timeout=30.0):
        (tmp_path / "fake" / "bin").mkdir(parents=True)
        (tmp_path / "fake" / "bin" / "python").symlink_to(sys.executable)
        (tmp_path / "peers_of_test").mkdir()
        (tmp_path / "peers_of_test" / "script.py").write_text(source)
        monkeypatch.setattr(measure, "ENVIRONMENTS", tmp_path)
        monkeypatch.setattr(measure, "PEERS", "peers_of_test")
        monkeypatch.setattr(measure, "ROOT", tmp_path)
        return run_peer("fake", "script", ["--word"], timeout)

    return run


def test_a_peer_answers_with_its_last_line_and_has_one_thread(peer):
    answer = peer(
        "import json, os, sys\n"
        "print('chatter')\n"
        "print(json.dumps({'words': sys.argv[1:], 'threads': os.environ['OMP_NUM_THREADS']}))\n"
    )
    assert answer == {"words": ["--word"], "threads": "1"}


def test_a_peers_crash_is_a_reason(peer):
    with pytest.raises(PeerFailed, match="code 1: RuntimeError: no such env"):
        peer("raise RuntimeError('no such env')")


def test_a_silent_peer_is_a_reason(peer):
    with pytest.raises(PeerFailed, match="printed no result"):
        peer("print('done')")


def test_a_hanging_peer_is_ended_with_its_children(peer, tmp_path):
    source = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid))\n"
        "time.sleep(600)\n"
    )
    with pytest.raises(PeerFailed, match="no answer in"):
        peer(source, timeout=1.5)
    child = int((tmp_path / "pid").read_text())
    for _ in range(100):  # what was killed may take a moment to be gone
        gone = not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE
        if gone:
            break
        time.sleep(0.1)
    assert gone


def test_results_keep_rows_that_were_not_measured_again(tmp_path):
    path = tmp_path / "results" / "bench.json"
    first = Report([make_row(CASE, "peer", [2.0], [1.0], [0.0]), make_row(CASE, "other", [3.0], [1.0], [0.0])])
    save(path, "bench", first)
    again = Report([make_row(CASE, "peer", [5.0], [1.0], [0.0])], [Skip("bench", "case", "env_steps", "third", "why")])
    save(path, "bench", again)
    result = json.loads(path.read_text())
    assert {row["peer"]: row["ratio"] for row in result["rows"]} == {"other": 3.0, "peer": 5.0}
    assert [skip["reason"] for skip in result["skips"]] == ["why"]
    assert result["machine"]["cores"] >= 1
    assert result["machine"]["load"] <= os.cpu_count() * 1000
