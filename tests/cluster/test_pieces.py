"""Small parts of the controller: stopping, metrics, status, evaluation queues, the drawing."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from actors import Played
from cluster.cli.status import print_status, request_stop
from cluster.config.tree import compose
from cluster.metrics.rows import Metrics
from cluster.metrics.sinks import Followed, tensorboard
from cluster.roles.backend import Inline, RoleDied
from cluster.runs import folder as run_folders
from cluster.runs.stop import Stop
from cluster.stages._shared.evaluation import BATCH, Evaluation, results
from cluster.topology import draw, topology
from envs.api import EnvSpec, Episodes
from llm_service.errors import UsageError


def test_every_way_to_stop_is_seen(tmp_path):
    file = tmp_path / "STOP"
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2):
        with Stop(file, None) as stop:
            assert stop.reason == ""
            os.kill(os.getpid(), number)
            assert stop.reason == number.name
    with Stop(file, None) as stop:
        file.touch()
        assert stop.reason == "STOP file"
    assert not file.exists()
    with Stop(file, 1e-9) as stop:
        assert stop.reason == "max_wall_seconds"


def test_a_stale_stop_file_does_not_stop_the_next_run_and_handlers_are_given_back(tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    (tmp_path / "STOP").touch()
    with Stop(tmp_path / "STOP", None) as stop:
        assert stop.reason == ""
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_second_signal_leaves_at_once(tmp_path):
    code = f"""
import os, pathlib, signal, time
from cluster.runs.stop import Stop
with Stop(pathlib.Path({str(tmp_path / "STOP")!r}), None):
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)
"""
    assert subprocess.run([sys.executable, "-c", code], cwd=run_folders.ROOT, timeout=50).returncode == 3


def test_metrics_rewind_to_a_version_and_survive_a_cut_line(tmp_path):
    path = tmp_path / "metrics.jsonl"
    metrics = Metrics(path)
    for version in range(1, 6):
        metrics.write({"kind": "train", "version": version, "env_steps": 10 * version})
    metrics.close()
    with open(path, "ab") as file:
        file.write(b'{"kind": "train", "vers')  # killed in mid-write
    metrics = Metrics(path, after=3)
    metrics.write({"kind": "train", "version": 4, "env_steps": 41})
    metrics.rewind(4)
    metrics.close()
    assert [json.loads(line)["env_steps"] for line in path.read_text().splitlines()] == [10, 20, 30, 41]


@pytest.mark.parametrize("damage", [b"nonsense", b"\0\xff\r", b"[]", b"7", b"{}", b'{"version": "x"}'])
def test_a_damaged_row_is_set_aside_told_once_and_the_others_stay(tmp_path, damage):
    path = tmp_path / "metrics.jsonl"
    rows = [json.dumps({"kind": "train", "version": version}).encode() + b"\n" for version in (1, 2, 3)]
    path.write_bytes(rows[0] + damage + b"\n" + rows[1] + damage + b"\n" + rows[2] + b'{"torn')
    metrics = Metrics(path, after=2)
    metrics.close()
    assert metrics.warning == f"2 damaged lines of {path} are set aside in metrics.damaged.jsonl"
    assert path.read_bytes() == rows[0] + rows[1]
    assert (tmp_path / "metrics.damaged.jsonl").read_bytes() == 2 * (damage + b"\n")
    metrics = Metrics(path, after=2)
    metrics.close()
    assert metrics.warning == ""


def test_tensorboard_gets_the_rows(tmp_path):
    metrics = Metrics(tmp_path / "metrics.jsonl")
    metrics.sinks.append(tensorboard.make(Followed("a", tmp_path, {}, {}, print)))
    metrics.write({"kind": "train", "version": 1, "env_steps": 64, "losses/policy": 0.25, "bottleneck": "env"})
    metrics.close()
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("losses/policy")] == [(64, 0.25)]


def test_a_dead_controller_is_told_from_a_living_one(tmp_path, capsys):
    path = tmp_path / "run"
    folder = run_folders.RunFolder.create(path)
    (path / "config.yaml").write_text("")
    folder.write_status(state="running", env_steps=1234)
    assert run_folders.is_running(folder.read_status())
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    status = folder.read_status() | {"pid": ended.pid}
    run_folders.write_json(path / "status.json", status)
    assert not run_folders.is_running(folder.read_status())
    print_status(tmp_path, None)
    assert "died" in capsys.readouterr().out
    with pytest.raises(UsageError, match="not running"):
        request_stop(path)


def test_an_unknown_run_is_one_sentence(tmp_path):
    with pytest.raises(UsageError, match="no run 'x'; there are no runs"):
        run_folders.find("x", tmp_path)


def episodes(seeds, success):
    n = len(seeds)
    return Episodes(
        env=np.arange(n, dtype=np.int32),
        episode=np.zeros(n, np.int64),
        seed=np.asarray(seeds),
        length=np.full(n, 3, np.int32),
        total=np.asarray(success, np.float32),
        success=np.asarray(success, np.bool_),
        kind=(np.asarray(seeds) % 2).astype(np.int16),
        away=np.zeros(n, np.int32),
        counts=np.zeros((n, 0), np.int32),
    )


class Taker:
    """Stands for the crew: remembers what it was given."""

    def __init__(self):
        self.given = []

    def give(self, actor, job, method, *args):
        self.given.append((actor, job, args))


def test_a_lost_batch_of_an_evaluation_is_played_by_another_actor():
    seeds = np.arange(2 * BATCH + 10)
    evaluation, crew = Evaluation(None, 0, 0, seeds, True, record=70), Taker()
    while evaluation.give(crew, len(crew.given)):
        pass
    assert [len(job.seeds) for _, job, _ in crew.given] == [46, 46, 46]
    assert [job.record for _, job, _ in crew.given] == [46, 24, 0]
    for _, job, _ in reversed(crew.given[1:]):
        evaluation.take(job, Played(episodes(job.seeds, job.seeds % 3 == 0)))
    lost = crew.given[0][1]
    evaluation.take(lost, None)
    assert not evaluation.done
    assert evaluation.give(crew, 9)
    assert crew.given[-1][1] is lost
    evaluation.take(lost, Played(episodes(lost.seeds, lost.seeds % 3 == 0)))
    assert evaluation.done
    np.testing.assert_array_equal(evaluation.episodes.seed, seeds)


def test_results_count_each_kind():
    spec = EnvSpec("made/Kinds", {}, ("stay",), task_kinds=("even", "odd", "never"))
    table = results(episodes(np.arange(10), [1, 0] * 5), spec)
    assert table["success"]["rate"] == 0.5
    assert {kind: row["rate"] for kind, row in table["by_kind"].items()} == {"even": 1.0, "odd": 0.0}
    assert table["seeds"] == [0, 9]


def test_inline_reports_failures_as_a_cluster_would():
    class Role:
        def work(self):
            raise ValueError("broken")

    backend = Inline()
    ticket = backend.submit(backend.start("role", Role), "work")
    with pytest.raises(RoleDied, match="ValueError: broken"):
        backend.result(ticket)


def test_the_drawing_names_roles_and_flows():
    config = compose(["env=toy/Line", "actors.n=4", "learner.n=2"])
    assert topology(config).processes == 6
    text = draw(config)
    for word in ("actor       x 4", "learner     x 2", "chunks [64, 32, ...]", "weights by argument"):
        assert word in text
    assert "learner" not in draw(compose(["env=babyai/GoToLocal", "method=expert"])).split("\n", 1)[1]
