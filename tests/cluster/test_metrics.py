"""Metrics: one table, everything in it emitted and nothing beside it, and what is made of it is up to date."""

import asyncio
import json
import os
import re
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
import yaml
from prometheus_client.parser import text_string_to_metric_families as parse

from cluster import alerts, dashboard, folder, kubernetes
from cluster import exporting as exporting_module
from cluster.backend import Inline
from cluster.config import compose
from cluster.exporting import Shown, beats, exporting, forget
from cluster.metrics import ACTOR, CONTROLLER, LEARNER, RAY, SEARCH, TABLE, Metrics
from cluster.metrics_page import page
from llm_service import assembly
from llm_service.metrics import LABELS, LLM, Metric, families
from llm_service.server import Server
from llm_service.settings import LLMConfig
from tests.cluster import promql

ROOT = Path(__file__).resolve().parents[2]
TOY = [
    *("experiment=toy", "policy.hidden=16", "actors.envs=8", "actors.steps=16", "evaluate.every=0"),
    *("learner.env_steps=1000000000", "run.checkpoint_every_s=1"),
]


# the table


def test_the_table_is_well_formed():
    names, keys = [m.name for m in TABLE], [m.key for m in TABLE]
    assert len(set(names)) == len(names)
    assert len(set(keys)) == len(keys), "whose number it is follows from its key"
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
    from actors.novelty import NoveltyPlayer, PlayerSetup

    player = NoveltyPlayer(PlayerSetup("", 10))
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


# from roles to Ray


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
        monkeypatch.setattr("cluster.exporting.EVERY_S", 0.01)

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


def test_a_search_tells_all_of_its_rows(monkeypatch, tmp_path):
    from cluster.progress import Progress
    from cluster.search import Searching

    told = []

    class Told:
        def write(self, row):
            told.append(row)

    class Stop:
        reason = ""

    config = compose(["method=lgqd", "env=navigation", "env.length=10", "actors.n=2", "cluster=inline"])
    run = folder.RunFolder.create(tmp_path / "run")
    sizes = {"generations": 3, "population": 16, "offspring": 8}
    settings = config.method.search.model_copy(update=sizes)
    search = Searching(config, settings, run.stage("search"), run, Inline(), Told(), Progress(run, 1, 1e9))
    assert search.run(Stop())
    row = told[-1]
    assert [m.name for m in SEARCH if not list(m.read(row))] == []
    assert {key for key in row if key.startswith("search/")} - {m.key for m in SEARCH} == {"search/threshold"}
    assert row["search/novelty"] > 0
    assert (row["actors"], row["actors_alive"], row["restarts"]) == (2, 2, 0)


# what is made of it


def test_what_is_made_is_up_to_date():
    """`python -m cluster.dashboard` would change nothing."""
    for path, text in dashboard.files().items():
        assert (ROOT / path).read_text() == text, f"{path}: run python -m cluster.dashboard"


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
        folder.print_status(tmp_path, "r")
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
    environment = {**os.environ, "RAY_TMPDIR": str(short), "RAY_metrics_report_interval_ms": "1000"}
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
