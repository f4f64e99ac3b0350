"""The tables of docs/metrics.md, made of the table of metrics and the alerts; the words around them stand there.

<!-- made: actor -->     what stands between the two lines is replaced: a table of the metrics of a role,
<!-- end -->             or, of `alerts`, of all alerts
"""

from __future__ import annotations

import re

from cluster.metrics.alerts import ALERTS
from cluster.metrics.table import RAY, TABLE
from llm_service.metrics import Metric

_MADE = re.compile(r"(?ms)^<!-- made: (\w+) -->\n.*?^<!-- end -->\n")


def page(text: str) -> str:
    """The page `text` with its tables as they are now.

    Raises:
        ValueError: a role has no table there.
    """
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
    found = [metric for metric in (*TABLE, *RAY) if metric.role == role]
    return ["| name | type | unit | meaning |", "|---|---|---|---|", *map(_line, found)]


def _line(metric: Metric) -> str:
    unit = {"time": "seconds since 1970", "share": "0 to 1", "": "-"}.get(metric.unit, metric.unit)
    label = f" Label `{metric.label}`." if metric.label else ""
    return f"| `{metric.name}` | {metric.kind} | {unit} | {metric.help}{label} |"


def _alerts() -> list[str]:
    lines = ["| alert | when | what to do |", "|---|---|---|"]
    for alert in ALERTS:
        summary = alert.summary.replace("{{ $labels.run }}", "R")
        after = "" if alert.wait == "0m" else f", after {alert.wait}"
        lines.append(f"| `{alert.name}`, {alert.severity}{after} | {summary} | {alert.action} |")
    return lines
