"""Alerts fire on what they are for and not beside it: a run that dies, stalls or stops learning, and one that ends."""

import math
import time
from pathlib import Path

import pytest
import yaml

from cluster.cli.status import print_status
from cluster.metrics import alerts, dashboard, exporting
from cluster.metrics.exporting import Shown
from cluster.metrics.rows import Metrics
from cluster.runs.folder import RunFolder
from tests.cluster import promql_values
from tests.cluster.promql import tree
from tests.cluster.promql_values import firing, labelled, samples, seconds, value

HERE = Path(__file__).parent
SCENARIOS = yaml.safe_load((HERE / "alerts.yaml").read_text())["tests"]


def rules():
    (group,) = yaml.safe_load((HERE.parents[1] / dashboard.RULES).read_text())["groups"]
    return group["rules"]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario["name"])
def test_alerts_fire_on_what_they_are_for(scenario):
    interval = seconds(scenario["interval"])
    series = [(labelled(s["series"]), samples(s["values"], interval)) for s in scenario["input_series"]]
    for case in scenario["promql_expr_test"]:
        wanted = {tuple(labelled(s["labels"])[key] for key in ("alertname", "run", "severity"))
                  for s in case["exp_samples"]}  # fmt: skip
        assert firing(rules(), series, seconds(case["eval_time"])) == wanted, case["eval_time"]


def test_every_alert_fires_in_a_scenario():
    fired = {labelled(sample["labels"])["alertname"] for scenario in SCENARIOS
             for case in scenario["promql_expr_test"] for sample in case["exp_samples"]}  # fmt: skip
    assert fired == {alert.name for alert in alerts.ALERTS}


def test_queries_have_the_values_that_prometheus_gives_them():
    """As `promtool test rules` of Prometheus 2.42 gave them."""
    series = [
        (labelled('x{run="a", worker="0"}'), samples("0+2x10", 60)),
        (labelled('x{run="a", worker="1"}'), samples("5x3 _x7", 60)),
        (labelled('y{run="a"}'), samples("4x10", 60)),
        (labelled('y{run="b"}'), samples("1x10", 60)),
    ]

    def at(query, minutes):
        return {dict(labels).get("run"): number for labels, number in value(tree(query), series, 60 * minutes).items()}

    assert at("max by (run) (x)", 10) == {"a": 20.0}
    assert at("max by (run) (x)", 4) == {"a": 8.0}
    assert at("sum by (run) (x)", 3) == {"a": 11.0}
    assert at("sum by (run) (last_over_time(x[1h]))", 10) == {"a": 25.0}
    assert at("max by (run) (avg_over_time(x[150s] offset 5m))", 10) == {"a": 8.0}
    assert at("y > on (run) 2 * sum by (run) (last_over_time(x[1h]))", 10) == {}
    assert at("y - 1 > 2 * 1", 10) == {"a": 3.0}
    assert at("y unless on (run) max by (run) (x) > 3", 10) == {"b": 1.0}
    assert at("time() - y > 597", 10) == {"b": 599.0}
    assert at('{__name__=~"(ray_)?y",run!="a"} == 1', 10) == {"b": 1.0}
    assert promql_values.samples("1 _ 3-1x2", 10) == [(0, 1.0), (20, 3.0), (30, 2.0), (40, 1.0)]


# what the rules go by


@pytest.fixture
def exported(monkeypatch):
    """What would be exported, by key."""
    told = {}
    monkeypatch.setattr(exporting, "EVERY_S", 0.01)
    monkeypatch.setattr(exporting.Exporter, "_set", lambda self, numbers: told.update(numbers))
    return told


def wait_for(true):
    end = time.monotonic() + 20
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_an_end_is_told_for_as_long_as_it_takes_to_be_seen(exported, monkeypatch, tmp_path):
    monkeypatch.setattr(exporting, "GROWN_S", -1.0)
    monkeypatch.setattr(exporting, "SEEN_S", 0.5)
    metrics = Metrics(tmp_path / "metrics.jsonl")
    metrics.sinks += [Shown("r"), lambda row: None]
    wait_for(lambda: exported.get("alive"))
    assert abs(exported["alive"] - time.time()) < 20
    assert exported["started"] <= exported["alive"]
    assert exported["ended"] == 0
    began = time.monotonic()
    metrics.end(lambda: False)
    assert time.monotonic() - began >= 0.5
    wait_for(lambda: exported["ended"] > exported["started"])
    monkeypatch.setattr(exporting, "SEEN_S", math.inf)
    metrics.end(lambda: True)  # or this would last for ever
    monkeypatch.setattr(exporting, "GROWN_S", math.inf)
    metrics.end(lambda: False)  # nobody misses a young one
    metrics.close()


def test_what_stands_beside_a_run_says_nothing_of_its_life(exported):
    shown = Shown("r", own=False)
    shown({"kind": "now", "actors": 2.0})
    wait_for(lambda: "actors" in exported)
    shown.end(lambda: False)
    shown.close()
    assert not {"alive", "started", "ended"} & set(exported)


@pytest.mark.parametrize("kind", ["search", "fit"])
def test_rows_of_searches_and_fits_are_their_updates(exported, kind):
    shown = Shown("r")
    shown({"kind": kind, "version": 0})
    wait_for(lambda: exported.get("advancing") == 1)
    assert abs(exported["last_update"] - time.time()) < 20
    shown({"kind": "now", "advancing": 0.0})  # the stage is over
    wait_for(lambda: exported["advancing"] == 0)
    shown.close()


# without Prometheus


def test_status_names_runs_that_died_or_stalled_for_cron(tmp_path, capsys):
    def make(name, **status):
        folder = RunFolder.create(tmp_path / name)
        (folder.path / "config.yaml").write_text("")
        folder.write_status(**status)
        return folder

    now = time.time()
    make("ended", state="done")
    make("stopped", state="stopped")
    make("works", state="running", last_update=now)
    make("evaluates", state="running", last_update=None)
    assert print_status(tmp_path, None, check=True) == 0
    assert capsys.readouterr().out == ""
    make("stalls", state="running", last_update=now - 2 * alerts.QUIET_S)
    make("crashes", state="crashed")
    gone = make("gone", state="running")
    gone.write_json(gone.path / "status.json", gone.read_status() | {"pid": 2**22 + 1})
    old = make("old", state="crashed")
    old.write_json(old.path / "status.json", old.read_status() | {"updated": now - 2 * 86400})
    assert print_status(tmp_path, None, check=True) == 1
    lines = ["crashes: crashed", "gone: died (starts over)", "stalls: stalled (30 min)"]
    assert capsys.readouterr().out.splitlines() == lines
    assert print_status(tmp_path, "works", check=True) == 0
    assert print_status(tmp_path, None) == 0
    assert "stalled (30 min)" in capsys.readouterr().out
