"""scaling: rates, what must not be lost, whose processes may be killed, the cases and their ids."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest

from benchmarks import scaling
from benchmarks.measure import ROOT, Options, OursFailed, OutOfTime, PeerFailed
from benchmarks.peers import common
from benchmarks.train import Launched
from cluster.config.tree import compose
from learner.algorithms.ppo import PPOConfig


def rows(n, rate=400.0, chunk=200, first=5.0, **columns):
    """n updates at an even rate, of which each has all counters."""
    return [
        dict.fromkeys(scaling.COUNTERS, 0)
        | {"env_steps": chunk * (i + 1), "version": i + 1, "wall_seconds": first + chunk * i / rate}
        | {"actors_alive": 8, "learner_restarts": 0}
        | {name: column[i] for name, column in columns.items()}
        for i in range(n)
    ]


def test_the_rate_is_between_two_updates():
    assert scaling.rate(rows(100), begin=7.2, seconds=10.0) == pytest.approx(400.0)


def test_the_rate_sees_a_gap():
    """Ten seconds in which nothing was learned, in a window of twenty."""
    gap = rows(200)
    for row in gap[40:]:
        row["wall_seconds"] += 10.0
    assert scaling.rate(gap, begin=gap[20]["wall_seconds"], seconds=20.0) == pytest.approx(200.0, rel=0.03)


def test_a_window_without_updates_fails():
    with pytest.raises(OursFailed, match="no update"):
        scaling.rate(rows(4), begin=5.0, seconds=30.0)
    with pytest.raises(OursFailed, match="no update"):
        scaling.rate(rows(4), begin=300.0, seconds=1.0)


def test_what_is_lost_is_noticed():
    scaling.assert_nothing_lost(rows(5))
    with pytest.raises(OursFailed, match="update 2 is followed by 4"):
        scaling.assert_nothing_lost(rows(4, version=[1, 2, 4, 5]))
    with pytest.raises(OursFailed, match="chunks went back from 9 to 8"):
        scaling.assert_nothing_lost(rows(3, chunks=[3, 9, 8]))
    with pytest.raises(OursFailed, match="learner was restarted"):
        scaling.assert_nothing_lost(rows(2, learner_restarts=[0, 1]))


PARENT = """
import subprocess
child = subprocess.Popen(["sleep", "60"])
print(child.pid, flush=True)
print(child.wait(), flush=True)
input()
"""


@pytest.fixture
def family():
    """A process, and one that it has started."""
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    child = int(parent.stdout.readline())
    yield parent, child
    for pid in (child, parent.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    parent.communicate()


def run_of(process, folder, actors):
    return scaling.Training(Launched(process, None, folder), actors, time.monotonic() + 5.0, [])


def beats(folder, pids):
    entries = ", ".join(f'"actor-{i}": {{"pid": {pid}}}' for i, pid in enumerate(pids))
    (folder / "status.json").write_text(f'{{"heartbeats": {{{entries}, "learner-0": {{"pid": 1}}}}}}')


def test_only_a_runs_own_actors_are_killed(family, tmp_path):
    parent, child = family
    beats(tmp_path, [child])
    assert scaling.descends(child, parent.pid)
    assert scaling.descends(child, os.getpid())
    assert not scaling.descends(os.getpid(), parent.pid)
    assert not scaling.descends(2**22 + 1, parent.pid)
    assert run_of(parent, tmp_path, 1).kill(0.25) == 1
    assert int(parent.stdout.readline()) == -signal.SIGKILL


def test_others_processes_are_let_alone(family, tmp_path):
    parent, child = family
    beats(tmp_path, [os.getppid()])
    with pytest.raises(OursFailed, match="no child of this run"):
        run_of(parent, tmp_path, 1).kill(1.0)
    assert scaling.descends(child, parent.pid)


def test_a_run_that_ends_by_itself_fails_with_its_last_words(tmp_path):
    output = open(tmp_path / "output", "w+b")  # noqa: SIM115 - read by the run
    process = subprocess.Popen([sys.executable, "-c", "print('no such experiment')"], stdout=output)
    process.wait()
    run = scaling.Training(Launched(process, output, tmp_path), 4, time.monotonic() + 5.0, [])
    with pytest.raises(OursFailed, match="no such experiment"):
        run.wait()


def test_a_run_that_takes_too_long_is_out_of_time(family, tmp_path):
    run = scaling.Training(Launched(family[0], None, tmp_path), 4, time.monotonic() - 1.0, [])
    with pytest.raises(OutOfTime, match="4 actors"):
        run.wait()


@pytest.fixture
def no_processes(monkeypatch):
    """Ours takes no time; what was asked of peers is kept."""
    asked = []

    def run_peer(family, script, words, timeout):
        asked.append((family, script, words))
        if script == "scaling_rllib":
            return {"steps_per_second": 25.0 * int(words[words.index("--runners") + 1])}
        return {"steps_per_second": 240.0}

    monkeypatch.setattr(scaling, "run_peer", run_peer)
    monkeypatch.setattr(scaling, "efficiency", lambda actors, seconds, options: 0.95)
    monkeypatch.setattr(scaling, "available_gb", lambda: 20.0)
    return asked


def test_rows_and_headlines(no_processes):
    report = scaling.run(Options(rounds=2, cases=(*map(str, scaling.SIZES), "llm")))
    found = {row.id: row for row in report.rows}
    assert {name: row.headline for name, row in found.items()} == {
        "scaling/1/efficiency/ideal": False,
        "scaling/8/efficiency/ideal": False,
        "scaling/8/efficiency/rllib": False,
        "scaling/16/efficiency/ideal": False,
        "scaling/32/efficiency/ideal": True,
        "scaling/32/efficiency/rllib": True,
        "scaling/64/efficiency/ideal": True,
        "scaling/64/efficiency/rllib": True,
        "scaling/llm/env_steps/ideal": True,
    }
    assert found["scaling/32/efficiency/ideal"].ratio == pytest.approx(0.95)
    assert found["scaling/32/efficiency/rllib"].ratio == pytest.approx(0.95 / 0.5)
    assert found["scaling/llm/env_steps/ideal"].ratio == pytest.approx(240.0 * (0.05 + 64 * 0.002) / 64)


def test_rllib_has_as_many_runners_as_memory_permits_and_its_best_algorithm(no_processes):
    report = scaling.run(Options(rounds=1, cases=("32", "64")))
    notes = {row.id: row.note for row in report.rows}
    most = int(20.0 / scaling.RUNNER_GB) - 2
    assert 32 < most < 64
    assert f"{most} env runners" in notes["scaling/64/efficiency/rllib"]
    assert "no memory for 64" in notes["scaling/64/efficiency/rllib"]
    assert "no memory" not in notes["scaling/32/efficiency/rllib"]
    tried = [words[words.index("--algorithm") + 1] for _, _, words in no_processes]
    assert tried == [*scaling.ALGORITHMS] * 2


def test_a_peer_that_is_missing_is_skipped(no_processes, monkeypatch):
    def missing(*words):
        raise PeerFailed("no environment .bench/rllib: run make setup-bench")

    monkeypatch.setattr(scaling, "run_peer", missing)
    report = scaling.run(Options(rounds=1, cases=("32",)))
    assert [row.id for row in report.rows] == ["scaling/32/efficiency/ideal"]
    assert [skip.id for skip in report.skips] == ["scaling/32/efficiency/rllib"]


def test_quick_measures_a_few_unless_others_are_named(no_processes, monkeypatch):
    monkeypatch.setattr(scaling, "kill", lambda name, options, seconds: scaling.Report())
    report = scaling.run(Options(quick=True, rounds=1))
    assert {row.case for row in report.rows} == {"8", "llm"}
    assert {skip.case for skip in report.skips} == set(scaling.CASES) - set(scaling.QUICK_CASES)
    named = scaling.run(Options(quick=True, rounds=1, cases=("32",)))
    assert {row.case for row in named.rows} == {"32"}
    assert not named.skips


def test_both_sides_do_equal_work():
    source = (ROOT / "benchmarks" / "peers" / "scaling_rllib.py").read_text()
    config = compose([scaling.EXPERIMENT])
    learner = config.learner
    told = (
        scaling.STEP_S,
        config.actors.steps,
        learner.minibatch,
        learner.part(PPOConfig).epochs,
        config.policy.hidden,
    )
    assert f"STEP_S, ROLLOUT, MINIBATCH, EPOCHS, HIDDEN = {', '.join(map(str, told))}\n" in source
    assert config.env.options["step_seconds"] == scaling.STEP_S
    assert (config.actors.envs, config.policy.reads, config.evaluate.every) == (1, ["position"], 0)
    assert learner.chunks == 0  # one of each actor an update, as RLlib's batch has
    assert 0.2 <= config.actors.steps * scaling.STEP_S <= 1.0
    assert config.policy.hidden == common.HIDDEN
