"""Makes what shows metrics to people, of the table and the alerts alone: the same bytes each time.

    python -m cluster.metrics.dashboard
    table.py: TABLE ────┬──> docker/grafana/dashboards/cairn.json     a row a role, a panel a title
    alerts.py: ALERTS ──┼──> docker/alerts.yaml                       rules of Prometheus
                        └──> docs/metrics.md                          the tables in it, between two lines each:
                                                                      <!-- made: ROLE or alerts --> and <!-- end -->

A test compares these files with what would be made now.
"""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from cluster.config.overrides import ROOT
from cluster.metrics.alerts import ALERTS, series
from cluster.metrics.exporting import PREFIX
from cluster.metrics.table import RAY, TABLE
from learner.files import replace_file
from llm_service.metrics import Metric

DASHBOARD, RULES, PAGE = "docker/grafana/dashboards/cairn.json", "docker/alerts.yaml", "docs/metrics.md"
_MADE = re.compile(r"(?ms)^<!-- made: (\w+) -->\n.*?^<!-- end -->\n")
ROLES = {
    "controller": "Training: the controller",
    "actor": "Actors",
    "learner": "Learner",
    "policy": "Policy server",
    "llm": "Language models",
    "search": "Novelty search",
    "player": "Evaluators of a search",
    "fitter": "Fitting",
    "ray": "Ray",
}
"""Titles of the dashboard's rows, in order."""
UNITS = {"seconds": "s", "time": "s", "share": "percentunit", "bytes": "bytes", "dollars": "currencyUSD", "": "short"}
SEVERAL = ("actor", "learner", "policy", "player")
"""Roles that are shown worker by worker."""
ACROSS, WIDTH, HEIGHT = 3, 8, 8
"""Panels in a line; each one's size in Grafana's grid, which is 24 wide."""
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
RUNS = f'label_values({{__name__=~"({PREFIX})?cairn_.+"}}, run)'
VARIABLES = (
    {
        "name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus",
        "current": {}, "hide": 0, "includeAll": False, "multi": False, "options": [], "refresh": 1, "regex": "",
    },
    {
        "name": "run", "label": "Run", "type": "query", "datasource": SOURCE, "definition": RUNS,
        "query": {"query": RUNS, "refId": "runs"}, "current": {"text": "All", "value": "$__all"}, "hide": 0,
        "includeAll": True, "allValue": ".*", "multi": True, "options": [], "refresh": 2, "regex": "", "sort": 1,
    },
)  # fmt: skip
"""The data source, and the runs that it knows."""


def query(metric: Metric) -> str:
    """The PromQL that shows a metric on the dashboard."""
    if metric.role == "ray":
        return f"sum by (NodeAddress) ({series(metric.name)})"
    labels = ["run", *(["worker"] if metric.role in SEVERAL else []), *([metric.label] if metric.label else [])]
    found, how = series(metric.name, 'run=~"$run"'), "sum" if metric.kind == "counter" else "max"
    counted = metric.query or ("rate({}[$__rate_interval])" if metric.kind == "counter" else "{}")
    if counted.startswith("time() - "):
        return f"time() - {how} by ({', '.join(labels)}) ({found})"
    return f"{how} by ({', '.join(labels)}) ({counted.replace('{}', found)})"


def dashboard() -> dict[str, Any]:
    """Grafana's model of the dashboard."""
    panels: list[dict[str, Any]] = []
    top = 0
    for role, title in ROLES.items():
        panels.append({
            "id": len(panels) + 1, "type": "row", "title": title, "collapsed": False, "panels": [],
            "gridPos": {"h": 1, "w": 24, "x": 0, "y": top},
        })  # fmt: skip
        drawn: dict[str, list[Metric]] = {}  # by the title of their panel, in the table's order
        for metric in (*TABLE, *RAY):
            if metric.role == role and metric.panel:
                drawn.setdefault(metric.panel, []).append(metric)
        for i, (name, metrics) in enumerate(drawn.items()):
            place = {"h": HEIGHT, "w": WIDTH, "x": i % ACROSS * WIDTH, "y": top + 1 + i // ACROSS * HEIGHT}
            panels.append(_panel(len(panels) + 1, name, metrics, place))
        top += 1 + -(-len(drawn) // ACROSS) * HEIGHT
    return {
        "title": "Cairn",
        "uid": "cairn",
        "description": "Made by python -m cluster.metrics.dashboard: change cluster/metrics/table.py, make it again.",
        "tags": ["cairn"],
        "schemaVersion": 39,  # from Grafana 10.1 on
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "annotations": {"list": []},
        "links": [],
        "templating": {"list": list(VARIABLES)},
        "panels": panels,
    }


def _panel(number: int, title: str, metrics: list[Metric], place: dict[str, int]) -> dict[str, Any]:
    counts_seconds = metrics[0].unit == "seconds" and metrics[0].kind == "counter"
    unit = "percentunit" if counts_seconds else UNITS[metrics[0].unit]  # seconds in a second are a share of time
    return {
        "id": number,
        "type": "timeseries",
        "title": title,
        "description": " ".join(dict.fromkeys(metric.help for metric in metrics)),
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {
            "defaults": {"unit": unit, "custom": {"drawStyle": "line", "fillOpacity": 5, "lineWidth": 1}},
            "overrides": [],
        },
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {"refId": chr(ord("A") + i), "datasource": SOURCE, "expr": query(metric), "legendFormat": legend}
            for i, (metric, legend) in enumerate(zip(metrics, _legends(metrics), strict=True))
        ],
    }


def _legends(metrics: list[Metric]) -> list[str]:
    """What a line is called: what differs between metrics of a panel, the further label, the run, the worker."""
    words = [metric.name.removesuffix("_total").removesuffix("_seconds").split("_") for metric in metrics]
    same = 0
    while len(words) > 1 and len({tuple(w[: same + 1]) for w in words}) == 1:
        same += 1
    found = []
    for metric, own in zip(metrics, words, strict=True):
        parts = [" ".join(own[same:])] if len(words) > 1 else []
        parts += [f"{{{{{metric.label}}}}}"] if metric.label else []
        parts += ["{{NodeAddress}}"] if metric.role == "ray" else ["{{run}}"]
        parts += [f"{metric.role} {{{{worker}}}}"] if metric.role in SEVERAL else []
        found.append(" ".join(part for part in parts if part))
    return found


def rules() -> dict[str, Any]:
    """Prometheus's model of the alerts."""
    return {
        "groups": [{
            "name": "cairn",
            "rules": [
                {
                    "alert": alert.name, "expr": alert.query, "for": alert.wait,
                    "labels": {"severity": alert.severity},
                    "annotations": {"summary": alert.summary, "description": alert.action},
                }
                for alert in ALERTS
            ],
        }]
    }  # fmt: skip


def page(text: str) -> str:
    """The page `text` with its tables as they are now; a `ValueError` if a role has no table there."""
    missing = {metric.role for metric in (*TABLE, *RAY)} | {"alerts"}

    def table(found: re.Match[str]) -> str:
        missing.discard(found[1])
        lines = _alerts() if found[1] == "alerts" else _metrics(found[1])
        return "\n".join([f"<!-- made: {found[1]} -->", *lines, "<!-- end -->", ""])

    made = _MADE.sub(table, text)
    if missing:
        raise ValueError(f"docs/metrics.md: there is no place for {', '.join(sorted(missing))}")
    return made


def _metrics(role: str) -> list[str]:
    lines = ["| name | type | unit | meaning |", "|---|---|---|---|"]
    for metric in (metric for metric in (*TABLE, *RAY) if metric.role == role):
        unit = {"time": "seconds since 1970", "share": "0 to 1", "": "-"}.get(metric.unit, metric.unit)
        label = f" Label `{metric.label}`." if metric.label else ""
        lines.append(f"| `{metric.name}` | {metric.kind} | {unit} | {metric.help}{label} |")
    return lines


def _alerts() -> list[str]:
    lines = ["| alert | when | what to do |", "|---|---|---|"]
    for alert in ALERTS:
        summary = alert.summary.replace("{{ $labels.run }}", "R")
        after = "" if alert.wait == "0m" else f", after {alert.wait}"
        lines.append(f"| `{alert.name}`, {alert.severity}{after} | {summary} | {alert.action} |")
    return lines


def files() -> dict[str, str]:
    """The text of every file that is made, by its path in the repository."""
    head = "# Made by python -m cluster.metrics.dashboard, of cluster/metrics/alerts.py.\n"
    return {
        DASHBOARD: json.dumps(dashboard(), indent=1) + "\n",
        RULES: head + yaml.safe_dump(rules(), sort_keys=False, width=120),
        PAGE: page((ROOT / PAGE).read_text(encoding="utf-8")),
    }


if __name__ == "__main__":
    for path, text in files().items():
        replace_file(ROOT / path, text.encode())
        print(path)
