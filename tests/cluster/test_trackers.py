"""Sinks of `run.sinks`: real runs whose numbers are read back with what W&B's and MLflow's own clients have written."""

import json
import os
import signal
import sqlite3
import struct
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from cluster import run as controller
from cluster.config.overrides import ConfigError, flatten
from cluster.config.tree import compose, load
from cluster.metrics import sinks, tracker
from cluster.runs.folder import RunError
from tests.llm_service.processes import until

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["experiment=toy", "cluster=inline", "policy.hidden=8", "actors.n=1", "actors.envs=8", "actors.steps=32"]
SMALL += ["learner.minibatch=256", "evaluate.episodes=8", "evaluate.videos=0", "evaluate.validation_episodes=4"]
SMALL += ["evaluate.every=512"]
BOTH = "run.sinks=[wandb,mlflow]"


@pytest.fixture
def patient(monkeypatch):
    """Runs wait as long as the clients need on a busy machine."""
    monkeypatch.setattr(tracker, "END_S", 400.0)
    monkeypatch.setattr(tracker, "CLOSE_S", 100.0)


@pytest.fixture
def offline(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith(("WANDB_", "MLFLOW_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))  # no key of whoever runs the tests


def play(folder, *words):
    return controller.run(compose([*SMALL, f"run.folder={folder}", "run.name=a", *words]))


def rows(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def expected(run):
    """What a tracker should hold: name -> env steps -> value, of rows and of results."""
    found = defaultdict(dict)
    told = [{"kind": "results", "env_steps": rows(run)[-1]["env_steps"]}]
    for file in run.glob("stages/*/results.json"):
        table = flatten(json.loads(file.read_text()))
        told[0] |= {f"results/{file.parent.name}/{key.replace('.', '/')}": value for key, value in table.items()}
    for row in rows(run) + told:
        for key, value in sinks.numbers(row).items():
            found[key][row["env_steps"]] = pytest.approx(value, abs=1e-6, nan_ok=True)
    return found


def records(run):
    """Records that W&B's client has written for its upload, in LevelDB's log format: a list for each file, by age."""
    from wandb.proto.wandb_internal_pb2 import Record

    for path in sorted(run.glob("trackers/wandb/offline-run-*/*.wandb")):
        data, at, record, found = path.read_bytes(), 7, b"", []
        while at + 7 <= len(data):
            if (left := 32768 - at % 32768) < 7:
                at += left
                continue
            length, kind = struct.unpack_from("<HB", data, at + 4)
            record += data[at + 7 : at + 7 + length]
            at += 7 + length
            if kind in (1, 4):  # whole, or its last part
                found.append(Record.FromString(record))
                record = b""
        yield [getattr(record, record.WhichOneof("record_type")) for record in found]


def of_kind(found, name):
    return [record for record in found if type(record).__name__ == name]


def logged(found):
    """name -> [(env steps, value)], in order, of records."""
    curves = defaultdict(list)
    for record in of_kind(found, "HistoryRecord"):
        values = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.item}
        for key in set(values) - {"env_steps", "_step", "_runtime", "_timestamp"}:
            curves[key].append((values["env_steps"], float(values[key])))
    return curves


def tracked(run):
    """MLflow's run, the only one, and name -> [(env steps, value)] in the order of time."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{run.parent}/mlflow.db")
    (found,) = client.search_runs([client.get_experiment_by_name("cairn").experiment_id])
    curves = {
        name: [(m.step, m.value) for m in sorted(client.get_metric_history(found.info.run_id, name), key=by_time)]
        for name in found.data.metrics
    }
    return found, curves


def by_time(metric):
    return metric.timestamp


def failed(run):
    """Whether MLflow knows how the run ended; its client would lock the database for too long to ask often."""
    with sqlite3.connect(run.parent / "mlflow.db") as database:
        return database.execute("select status from runs").fetchall() == [("FAILED",)]


@pytest.mark.trackers
def test_trackers_hold_what_metrics_jsonl_holds_and_a_resume_continues_the_same_run(tmp_path, offline, patient):
    (tmp_path / "home").mkdir()
    words = [BOTH, "learner.env_steps=1024", "seed=3"]
    assert play(tmp_path, *words, "run.max_wall_seconds=1e-6") == 3
    run = tmp_path / "a"
    first, _ = tracked(run)
    assert first.info.status == "KILLED"
    assert controller.resume(run, ["run.max_wall_seconds=none"], False) == 0
    truth = expected(run)
    assert len(truth["losses/policy"]) == 4
    assert len(truth["evaluate/success_rate"]) == 2
    assert truth["results/evaluate/success/rate"]

    found, curves = tracked(run)
    assert {name: dict(points) for name, points in curves.items()} == {
        name.replace(":", "_"): points for name, points in truth.items()
    }
    assert all(len(points) == len(dict(points)) for points in curves.values()), "no step is there twice"
    assert (found.info.run_id, found.info.run_name, found.info.status) == (first.info.run_id, "a", "FINISHED")
    assert {key: found.data.tags[key] for key in ("method", "experiment", "seed")} == {
        "method": "ppo", "experiment": "toy", "seed": "3",
    }  # fmt: skip
    assert found.data.params["learner.env_steps"] == "1024"
    assert found.data.params["env.id"] == "toy/Line"

    stopped, done = records(run)
    curves = logged(stopped + done)
    assert {name: dict(points) for name, points in curves.items()} == truth
    assert all(len(points) == len(dict(points)) for points in curves.values())
    assert [exit.exit_code for exit in of_kind(stopped + done, "RunExitRecord")] == [3, 0]
    assert len(of_kind(stopped, "RunPreemptingRecord")) == 1
    assert not of_kind(done, "RunPreemptingRecord")
    begun = of_kind(stopped + done, "RunRecord")
    assert len({record.run_id for record in begun}) == 1
    assert {record.display_name for record in begun} == {"a"}
    assert "seed=3" in begun[0].tags
    config = {item.key: json.loads(item.value_json) for item in begun[0].config.update}
    saved = flatten(load(run / "config.yaml").model_dump())
    assert config["learner.env_steps"] == saved["learner.env_steps"] == 1024
    assert set(saved) <= set(config)
    axes = of_kind(done, "MetricRecord")
    assert ["*", "env_steps"] in [[record.glob_name, record.step_metric] for record in axes]


@pytest.mark.trackers
def test_a_killed_run_failed_and_after_a_resume_only_what_was_learned_again_is_there_twice(tmp_path, offline, patient):
    (tmp_path / "home").mkdir()
    run, words = tmp_path / "a", [BOTH, f"run.folder={tmp_path}", "run.name=a", "learner.env_steps=100000000"]
    words += ["evaluate.every=0", "run.checkpoint_every_s=10000"]  # one checkpoint, after the first update
    code = "import runpy, sys, time; from cluster.stages.train import Engine; real = Engine._learned\n"
    code += "Engine._learned = lambda *args: (time.sleep(0.3), real(*args))[1]\n"  # or too many rows would wait
    code += "sys.argv[0] = 'launch.py'; runpy.run_path('launch.py', run_name='__main__')"
    process = subprocess.Popen([sys.executable, "-c", code, "run", *SMALL, *words], cwd=ROOT, stdout=subprocess.DEVNULL)
    assert until(lambda: all((run / f"trackers/{name}.json").exists() for name in ("wandb", "mlflow")), seconds=400)
    seen = len(rows(run))
    assert until(lambda: len(rows(run)) > seen + 3, seconds=100)
    process.kill()
    process.wait()
    assert until(lambda: failed(run), seconds=200)
    assert until(lambda: of_kind(next(records(run)), "RunExitRecord"), seconds=200)
    assert controller.resume(run, ["learner.env_steps=1024"], True) == 0
    truth = expected(run)
    found, curves = tracked(run)
    assert found.info.status == "FINISHED"
    crashed, done = records(run)
    assert [exit.exit_code for exit in of_kind(crashed + done, "RunExitRecord")] == [1, 0]
    for points in (curves["losses/policy"], logged(crashed + done)["losses/policy"]):
        times = Counter(step for step, _ in points)
        assert [times[step] for step in (256, 512, 768, 1024)] == [1, 2, 2, 2]
        assert max(times.values()) == 2
        latest = dict(points)  # the later of two
        assert {step: latest[step] for step in truth["losses/policy"]} == truth["losses/policy"]


@pytest.mark.trackers
def test_a_tracker_that_is_away_delays_nothing_and_secrets_are_nowhere(tmp_path, offline, monkeypatch):
    (tmp_path / "home").mkdir()
    secrets = {"WANDB_API_KEY": 4 * "012planted", "MLFLOW_TRACKING_PASSWORD": "planted-secret"}
    address = "http://someone:planted-in-the-address@127.0.0.1:9"
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert play(tmp_path, BOTH, "learner.env_steps=1024", "stages=[train]") == 0
    run = tmp_path / "a"
    assert len([row for row in rows(run) if row["kind"] == "train"]) == 4
    about = [line for line in (run / "run.log").read_text().splitlines() if "mlflow" in line]
    assert about[-1].endswith("mlflow lacks 6 of 6 rows; metrics.jsonl has them all")
    assert len(about) <= 2, "its reason is told once, if the client was up before the end"
    for file in tmp_path.rglob("*"):
        if file.is_file() and not file.is_symlink():
            content = file.read_bytes()
            for secret in (*secrets.values(), "planted-in-the-address"):
                assert secret.encode() not in content, file


def test_a_tracker_whose_folder_cannot_be_written_stops_no_run_and_is_told_once(tmp_path, monkeypatch):
    monkeypatch.setattr(tracker, "CLOSE_S", 1.0)
    monkeypatch.setattr(sinks, "missing", lambda name: "")
    words = ["learner.env_steps=512", "stages=[train]", "evaluate.every=0"]
    assert play(tmp_path, *words) == 0
    run = tmp_path / "a"
    (run / "trackers").write_text("in the way")
    assert controller.resume(run, [BOTH, "learner.env_steps=1024"], True) == 0
    assert [row["env_steps"] for row in rows(run)] == [256, 512, 768, 1024]
    log = (run / "run.log").read_text()
    for name in ("wandb", "mlflow"):
        assert log.count(f"{name}: FileExistsError") == 1
        assert log.count(f"{name} lacks 2 of 2 rows; metrics.jsonl has them all") == 1


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_missing_package_is_one_sentence_before_anything_is_written(tmp_path, monkeypatch, name):
    monkeypatch.setattr("importlib.util.find_spec", lambda package: None)
    with pytest.raises(RunError, match=rf"run.sinks=\[{name}\] needs the package {name}.*requirements-trackers.txt$"):
        play(tmp_path, f"run.sinks=[{name}]")
    assert not list(tmp_path.iterdir())


def test_an_unknown_sink_is_one_sentence():
    with pytest.raises(ConfigError, match=r"run\.sinks: there is no 'wandbb': did you mean wandb"):
        compose(["experiment=toy", "run.sinks=[wandbb]"])
    assert sinks.names() == ["mlflow", "tensorboard", "wandb"]


def test_what_does_not_fit_into_the_queue_is_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(tracker, "WAITING", 5)
    monkeypatch.setattr(tracker, "CLOSE_S", 1.0)
    (tmp_path / "trackers").write_text("in the way")
    told = []
    sink = tracker.Tracker("mlflow", sinks.Followed("a", tmp_path, {}, {}, told.append))
    for step in range(20_000):
        sink({"kind": "train", "env_steps": step, "losses/policy": 0.5})
        sink({"kind": "now", "advancing": 1.0})
    assert sink._waiting.qsize() <= 5
    sink.close()
    assert told[-1] == "mlflow lacks 20000 of 20000 rows; metrics.jsonl has them all"
    assert sink._process.returncode == -signal.SIGKILL


def test_no_secret_is_in_what_is_told(monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "planted-key")
    told = tracker.masked("no answer from http://me:secret@host:80/api, key planted-key")
    assert told == "no answer from http://host:80/api, key ***"
