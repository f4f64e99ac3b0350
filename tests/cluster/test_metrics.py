"""Metrics: one table, everything in it emitted and nothing beside it, and what is made of it is up to date."""

import asyncio
import json
import re
from pathlib import Path

import numpy as np
import pytest
import yaml

from cluster.cli.status import print_status
from cluster.config.tree import compose
from cluster.jobs.kubernetes import launcher as kubernetes
from cluster.metrics import alerts, dashboard
from cluster.metrics.dashboard import page
from cluster.metrics.table import RAY, SEARCH, TABLE
from cluster.roles.backend import Inline
from cluster.runs import folder
from llm_service.metrics import LABELS, LLM, Metric, families
from llm_service.server import assembly
from llm_service.server.process import Server
from llm_service.settings import LLMConfig
from tests.cluster import promql

ROOT = Path(__file__).resolve().parents[2]


# the table


def test_the_table_is_well_formed():
    names, keys = [m.name for m in TABLE], [m.key for m in TABLE]
    assert len(set(names)) == len(names)
    assert len(set(keys)) == len(keys), "a key alone identifies the role"
    for metric in (*TABLE, *RAY):
        assert re.fullmatch(r"[a-z][a-z0-9_]*", metric.name)
        assert metric.name.startswith("cairn_") or metric in RAY
        assert metric.help.endswith("."), metric.name
        assert metric.role in dashboard.ROLES
        assert metric.unit != "seconds" or "seconds" in metric.name, "Prometheus's names hold the unit"
    prefixes = [m.key for m in TABLE if m.label]
    assert not [key for key in keys for prefix in prefixes if key.startswith(prefix) and key != prefix]


def test_a_row_finds_its_values():
    assert list(Metric("cairn_x", "actor", "x", "", "X.").read({"x": 2, "y": 3})) == [({}, 2.0)]
    assert list(Metric("cairn_x", "actor", "x", "", "X.").read({"x": None})) == []
    by_outcome = Metric("cairn_x_total", "llm", "a_", "", "X.", label="outcome")
    assert list(by_outcome.read({"a_memory": 1, "a_busy": 2, "b": 3})) == [
        ({"outcome": "memory"}, 1.0),
        ({"outcome": "busy"}, 2.0),
    ]
    assert by_outcome.labels == (*LABELS, "outcome")
    assert by_outcome.kind == "counter"


def known(numbers, role):
    """Assert that each of a role's numbers is in the table, and the other way round."""
    rows = [metric for metric in TABLE if metric.role == role]
    read = {key for key in numbers for m in rows if key == m.key or (m.label and key.startswith(m.key))}
    assert read == set(numbers), "emitted, and not in the table"
    unheard = {m.name for m in rows if not list(m.read(numbers))}
    return unheard


def test_every_number_of_a_player_of_a_search_is_in_the_table():
    from actors.behaviours.novelty import EvaluatorSetup, NoveltyEvaluator

    player = NoveltyEvaluator(EvaluatorSetup("", 10))
    assert known(player.numbers(), "player") == set()
    player.play(np.zeros((3, 302), np.float32))
    assert player.numbers()["player/evaluations"] == 3
    assert player.numbers()["player/seconds"] > 0


def test_every_number_of_the_llm_service_is_in_the_table(tmp_path):
    """Of the whole service with its server, also after questions; by its endpoint as Prometheus reads it."""

    async def served():
        config = LLMConfig(name="scripted")
        server = Server(await assembly.start(config, tmp_path / "svc"), config.server, tmp_path / "svc", "scripted")
        await server.start()
        stats = server.stats()
        await server.drain()
        return stats

    numbers = asyncio.run(served())
    jobs = {f"jobs_{name}": 1.0 for name in ("waiting", "taken", "oldest", "dead", "answers")}  # once Redis was asked
    assert known(numbers | jobs | {"answers_busy": 2.0, "answers_memory": 5.0}, "llm") == set()
    found = {m.name for m in LLM if list(m.read(numbers | jobs | {"answers_busy": 2.0}))}
    assert found == {m.name for m in LLM}
    lines = {f.name: f for f in families(numbers | {"answers_busy": 2.0, "secret text": 1.0}, "r")}
    assert "secret text" not in str(lines)
    (sample,) = lines["cairn_llm_answers"].samples
    assert (sample.name, sample.value) == ("cairn_llm_answers_total", 2.0)
    assert sample.labels == {"run": "r", "role": "llm", "worker": "0", "outcome": "busy"}


def test_a_search_tells_all_of_its_rows(monkeypatch, tmp_path):
    from cluster.runs.progress import Progress
    from cluster.runs.stage import Run
    from cluster.stages.search import Engine
    from learner.methods import Stage

    told = []

    class Told:
        def write(self, row):
            told.append(row)

    class Stop:
        reason = ""

    sizes = {"generations": 3, "population": 16, "offspring": 8, "cells": 4}
    words = [f"method.search.{key}={value}" for key, value in sizes.items()]
    config = compose(["method=lgqd", "env=navigation", "env.length=10", "actors.n=2", "cluster=inline", *words])
    there = folder.RunFolder.create(tmp_path / "run")
    run = Run(config, there, Inline(), Told(), Progress(there, 1, 1e9), Stop())
    assert Engine(run, Stage("search", "search", "random")).run()
    row = told[-1]
    assert [m.name for m in SEARCH if not list(m.read(row))] == []
    assert {key for key in row if key.startswith("search/")} - {m.key for m in SEARCH} == {"search/threshold"}
    assert row["search/novelty"] > 0
    assert (row["actors"], row["actors_alive"], row["restarts"]) == (2, 2, 0)


# what is made of it


def test_what_is_made_is_up_to_date():
    """`python -m cluster.metrics.dashboard` would change nothing."""
    for path, text in dashboard.files().items():
        assert (ROOT / path).read_text() == text, f"{path}: run python -m cluster.metrics.dashboard"


def test_a_page_without_a_place_for_a_role_is_refused():
    text = (ROOT / dashboard.PAGE).read_text()
    assert page(text.replace("| `cairn_env_steps` |", "| `changed` |")) == text
    with pytest.raises(ValueError, match="no place for learner"):
        page(text.replace("<!-- made: learner -->\n", ""))


def test_the_dashboard_is_as_grafana_wants_it():
    made = json.loads((ROOT / dashboard.DASHBOARD).read_text())
    assert made["schemaVersion"] >= 39
    assert {v["name"]: v["type"] for v in made["templating"]["list"]} == {"datasource": "datasource", "run": "query"}
    panels = made["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {(place["x"] + i, place["y"] + j) for i in range(place["w"]) for j in range(place["h"])}
        assert not cells & taken, f"{panel['title']} lies on another panel"
        assert max(x for x, _ in cells) < 24
        taken |= cells
        if panel["type"] == "row":
            continue
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert [t["refId"] for t in panel["targets"]] == [chr(ord("A") + i) for i in range(len(panel["targets"]))]
        legends = [t["legendFormat"] for t in panel["targets"]]
        assert len(set(legends)) == len(legends), panel["title"]
    shown = {name for panel in panels for t in panel.get("targets", ()) for name in promql.selectors(t["expr"])}
    assert len(shown) > 50


def queries():
    made = json.loads((ROOT / dashboard.DASHBOARD).read_text())
    found = {f"{p['title']} {t['refId']}": t["expr"] for p in made["panels"] for t in p.get("targets", ())}
    rules = yaml.safe_load((ROOT / dashboard.RULES).read_text())
    return found | {rule["alert"]: rule["expr"] for group in rules["groups"] for rule in group["rules"]}


def test_every_query_can_be_read_and_names_metrics_that_there_are():
    exported = {f"ray_{m.name}" for m in (*TABLE, *RAY)} | {m.name for m in LLM}
    for where, query in queries().items():
        for name in promql.selectors(query):
            assert any(re.fullmatch(name, known) for known in exported), f"{where}: there is no {name}"
    (run,) = [v for v in dashboard.dashboard()["templating"]["list"] if v["name"] == "run"]
    (pattern,) = promql.selectors(run["definition"])
    assert all(re.fullmatch(pattern, f"ray_{m.name}") for m in TABLE)


@pytest.mark.parametrize(
    "wrong",
    [
        "rate(ray_cairn_x)", "ray_cairn_x[1h]", "sum by run (x)", "sum by (run) (x", "x > ", "increase(x[1hour])",
        "x{run='a'}", 'x{run=~"("}', "nothing_known(x[1h])", "x y", "a and and b", "{}", 'x{run="a" role="b"}',
    ],
)  # fmt: skip
def test_the_reader_of_queries_finds_what_is_wrong(wrong):
    with pytest.raises((promql.Wrong, re.error)):
        promql.selectors(wrong)


def test_alerts_say_what_to_do():
    assert len({alert.name for alert in alerts.ALERTS}) == len(alerts.ALERTS)
    for alert in alerts.ALERTS:
        assert "{{ $labels.run }}" in alert.summary
        assert alert.summary.endswith(".")
        assert len(alert.action) > 40
        assert re.fullmatch(r"\d+[smh]", alert.wait)
        assert "by (run)" in alert.query
    compose_file = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())
    (mounted,) = [v for v in compose_file["services"]["prometheus"]["volumes"] if "alerts" in v]
    scraped = yaml.safe_load((ROOT / "docker" / "prometheus.yaml").read_text())
    assert mounted.split(":")[1] in scraped["rule_files"]
    assert (ROOT / "docker" / mounted.split(":")[0]).is_file()


def test_links_are_shown_while_a_run_is_on(tmp_path, capsys):
    path = tmp_path / "r"
    path.mkdir()
    (path / "config.yaml").write_text("")
    run = folder.RunFolder(path)
    links = {"dashboard": "http://127.0.0.1:1", "metrics": "http://127.0.0.1:2/metrics"}
    for state, shown in (("running", True), ("done", False)):
        run.write_status(state=state, **links)
        print_status(tmp_path, "r")
        said = capsys.readouterr().out
        assert [f"{name}: {link}" in said for name, link in links.items()] == [shown, shown]


@pytest.mark.parametrize("monitor", [True, False])
def test_the_llm_service_shows_its_metrics_where_the_monitor_looks(monitor):
    words = ["experiment=ellm_crafter_small", "run.name=asks", "cluster=kubernetes", "cluster.kubernetes.image=cairn:1"]
    things = kubernetes.objects(
        kubernetes.named(compose([*words, f"cluster.kubernetes.monitor={str(monitor).lower()}"]))
    )
    (service,) = [t for t in things if t["kind"] == "Deployment"]
    (container,) = service["spec"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    opened = [word for word in container["args"] if word.startswith("server.metrics")]
    (rules,) = [t["spec"]["ingress"] for t in things if t["metadata"]["name"] == "asks-llm" and "ingress" in t["spec"]]
    if not monitor:
        assert (ports, opened, len(rules)) == ({"grpc": 50051}, [], 1)
        return
    prometheus = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    assert rules[1] == {"from": [prometheus], "ports": [{"port": 9100, "protocol": "TCP"}]}
    assert ports == {"grpc": 50051, "metrics": 9100}
    assert opened == ["server.metrics_port=9100", 'server.metrics_host="0.0.0.0"']
    (watching,) = [t for t in things if t["kind"] == "PodMonitor"]
    assert watching["spec"]["podMetricsEndpoints"][0]["port"] in ports
    wanted = watching["spec"]["selector"]["matchLabels"].items()
    assert wanted <= service["spec"]["template"]["metadata"]["labels"].items()
