"""From roles to Ray: numbers and heartbeats are told while a role lives, and a run on Ray exports all of the table."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

import cluster.roles.local  # noqa: F401 - makes Ray's token: some tests import Ray, and later ones may start it
from cluster.metrics import exporting as exporting_module
from cluster.metrics.exporting import Shown, beats, exporting, forget
from cluster.metrics.rows import Metrics
from cluster.metrics.table import ACTOR, CONTROLLER, LEARNER, RAY, TABLE
from cluster.runs import folder

ROOT = Path(__file__).resolve().parents[2]
TOY = [
    *("experiment=toy", "policy.hidden=16", "actors.envs=8", "actors.steps=16", "evaluate.every=0"),
    *("learner.env_steps=1000000000", "run.checkpoint_every_s=1"),
]


# one role


class Recorded:
    """Stands for Ray's gauges."""

    def __init__(self, monkeypatch):
        self.set = {}
        recorded = self

        class Gauge:
            def __init__(self, name, description, tag_keys):
                self.name, self.tag_keys = name, tag_keys

            def set(self, value, tags):
                assert set(tags) == set(self.tag_keys)
                recorded.set[self.name, tuple(sorted(tags.items()))] = value

        import ray.util.metrics

        monkeypatch.setattr(ray.util.metrics, "Gauge", Gauge)
        monkeypatch.setattr("cluster.metrics.exporting.EVERY_S", 0.01)

    def wait_for(self, name, **tags):
        wanted = tuple(sorted(tags.items()))
        end = time.monotonic() + 20
        while (name, wanted) not in self.set:
            assert time.monotonic() < end, (name, wanted, self.set)
            time.sleep(0.005)
        return self.set[name, wanted]


class Role:
    def __init__(self, steps):
        self.steps = steps

    def numbers(self):
        return {"actor/steps": self.steps, "actor/seconds/idle": 2.5, "actor/unheard of": 1.0}


class Mute:
    pass


def test_a_role_with_numbers_exports_them(monkeypatch):
    recorded = Recorded(monkeypatch)
    kind = exporting(Role, "actor-3.1#2", "r")
    assert (kind.__name__, issubclass(kind, Role)) == ("Role", True)
    role = kind(7)
    place = {"run": "r", "role": "actor", "worker": "3"}
    assert recorded.wait_for("cairn_actor_env_steps_total", **place) == 7.0
    assert recorded.wait_for("cairn_actor_seconds_total", **place, doing="idle") == 2.5
    assert {name for name, _ in recorded.set} == {"cairn_actor_env_steps_total", "cairn_actor_seconds_total"}
    role._exporter.close()
    assert exporting(Mute, "actor-0", "r") is Mute
    role = exporting(Role, "policy", "r")(8)
    assert recorded.wait_for("cairn_actor_env_steps_total", run="r", role="actor", worker="0") == 8.0
    role._exporter.close()


def test_a_heartbeat_is_told_at_once_and_read_with_others(monkeypatch):
    rows, actor = {}, iter(["a1", "b2", "b2"])

    class Head:
        def internal_kv_put(self, key, value, overwrite, namespace, timeout):
            rows[namespace, key] = value

        def internal_kv_multi_get(self, keys, namespace, timeout):
            return {key: rows[namespace, key] for key in keys if (namespace, key) in rows}

        def internal_kv_del(self, key, by_prefix, namespace, timeout):
            return rows.pop((namespace, key), None) is not None

    class Busy:
        def heartbeat(self):
            return {"phase": "rollout", "seconds": 1.5}

    class Context:
        def get_actor_id(self):
            return next(actor)

    monkeypatch.setattr(exporting_module, "_head", Head)
    monkeypatch.setattr("ray.get_runtime_context", Context)
    for n in (1, 2):
        role = exporting(Busy, "actor-0", "r")()
        end = time.monotonic() + 20
        while len(rows) < n:
            assert time.monotonic() < end, "no heartbeat is told"
            time.sleep(0.005)
        role._exporter.close()
    assert beats(["a1", "b2", "c3"]) == {name: {"phase": "rollout", "seconds": 1.5} for name in ("a1", "b2")}
    forget("a1")
    forget("c3")
    assert set(beats(["a1", "b2"])) == {"b2"}


def test_a_head_out_of_reach_has_no_heartbeats_and_costs_nobody_anything(monkeypatch):
    import ray

    class Gone:
        def __getattr__(self, name):
            raise ray.exceptions.RpcError("unavailable")

    class Context:
        def get_actor_id(self):
            return "a1"

    monkeypatch.setattr(exporting_module, "_head", Gone)
    monkeypatch.setattr("ray.get_runtime_context", Context)
    exporting_module._tell({"phase": "rollout"})
    forget("a1")
    assert beats(["a1"]) == {}


def test_rows_are_exported_until_the_end_and_those_of_evaluations_are_not(monkeypatch, tmp_path):
    recorded = Recorded(monkeypatch)
    metrics = Metrics(tmp_path / "metrics.jsonl")
    metrics.sinks.append(Shown("r"))
    metrics.write({"kind": "train", "version": 3, "env_steps": 64, "charts/SPS": 10.5, "bottleneck": "env"})
    metrics.write({"kind": "evaluate", "version": 1, "env_steps": 32})
    metrics.show(training=1.0)
    place = {"run": "r", "role": "controller", "worker": "0"}
    assert recorded.wait_for("cairn_training", **place) == 1.0
    assert recorded.wait_for("cairn_steps_per_second", **place) == 10.5
    assert recorded.wait_for("cairn_env_steps", **place) == 64.0
    metrics.close()
    recorded.set.clear()
    time.sleep(0.05)
    assert not recorded.set
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 2, "what is only shown is no row"


# a real run

# each is sampled by its own role every few seconds: at first some are still 0 while others are far on
COUNTED = (
    *("cairn_env_steps", "cairn_actor_rollouts_total", "cairn_actor_env_steps_total"),
    *("cairn_learner_env_steps_total", "cairn_learner_updates_total", "cairn_last_update_time_seconds"),
)


def scrape(address):
    with urllib.request.urlopen(address, timeout=10) as answer:
        text = answer.read().decode()
    found = {}
    for family in parse(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


@pytest.mark.slow
def test_a_run_on_ray_exports_all_of_it():
    short = Path(tempfile.mkdtemp(prefix="r", dir="/tmp"))  # Ray's sockets want a short name
    # Sooner than Ray's 10 s; two of its intervals must still span `EVERY_S`, or gauges are forgotten between two looks.
    environment = {**os.environ, "RAY_TMPDIR": str(short), "RAY_metrics_report_interval_ms": "4000"}
    words = ["run", *TOY, f"run.folder={short}", "run.name=story"]
    with open(short / "printed", "w") as printed:
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "launch.py"), *words],
            cwd=ROOT, env=environment, stdout=printed, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    path, wanted = short / "story", [*CONTROLLER, *ACTOR, *LEARNER]
    try:
        found, missing = {}, {"all"}
        end = time.monotonic() + 240
        while missing:
            assert time.monotonic() < end, f"not exported: {sorted(missing)}"
            assert process.poll() is None, (short / "printed").read_text()
            time.sleep(1.0)
            status = folder.RunFolder(path).read_status()
            before = status.get("env_steps", 0)
            if before and "metrics" in status:
                found = scrape(status["metrics"])
                missing = {m.name for m in wanted if f"ray_{m.name}" not in found}
                at_work = [value for name in COUNTED for _, value in found.get(f"ray_{name}", ())]
                missing |= set() if len(at_work) == len(COUNTED) + 2 and all(at_work) else {"work of every role"}
        rows = path / "metrics.jsonl"
        written = len(rows.read_text().splitlines())
        while len(rows.read_text().splitlines()) < written + 2:  # a row that began after what was scraped
            assert time.monotonic() < end, "no more rows are written"
            assert process.poll() is None, (short / "printed").read_text()
            time.sleep(0.1)
        after = json.loads(rows.read_text().splitlines()[written + 1])
        for metric in wanted:
            for labels, value in found[f"ray_{metric.name}"]:
                assert {name: labels.get(name) for name in ("run", "role")} == {"run": "story", "role": metric.role}
                assert metric.label in labels or not metric.label
                assert np.isfinite(value)
        assert {m for m in found if m.startswith("ray_cairn_")} <= {f"ray_{m.name}" for m in TABLE}
        assert all(f"ray_{m.name}" in found for m in RAY)
        ((_, steps),) = found["ray_cairn_env_steps"]
        assert 0 < steps <= after["env_steps"]
        assert {labels["worker"] for labels, _ in found["ray_cairn_actor_env_steps_total"]} == {"0", "1"}
        played = sum(value for _, value in found["ray_cairn_actor_env_steps_total"])
        assert 0 < played <= after["env_steps"] + 8 * 8 * 16, "as much as was learned, and a few chunks on their way"
        ((_, learned),) = found["ray_cairn_learner_env_steps_total"]
        ((_, updates),) = found["ray_cairn_learner_updates_total"]
        assert learned % 128 == 0
        assert 0 < updates <= after["version"]
        for name, value in (("actors_wanted", 2), ("actors_alive", 2), ("training", 1), ("learner_restarts_total", 0)):
            assert found[f"ray_cairn_{name}"][0][1] == value, name
        ((_, at),) = found["ray_cairn_last_update_time_seconds"]
        assert abs(time.time() - at) < 120
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 3
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        shutil.rmtree(short, ignore_errors=True)
