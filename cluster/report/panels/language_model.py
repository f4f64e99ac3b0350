"""What a report says of asking a language model: whether it agrees with people, how questions ended, what that cost."""

from __future__ import annotations

from collections.abc import Sequence

from cluster.report.calibration import calibration_section, comparison
from cluster.report.outcome import Arms
from cluster.report.page import count, join, section, table, text
from cluster.runs.run_data import Run, number, part, stand_in

SUBJECT, ORDER = "agents", 80
COLUMNS = ("questions", "cache_hits", "calls", "failures", "tokens", "dollars")
ENDS = {
    "backend": "answered by the model itself",
    "memory": "from memory",
    "redis": "from Redis",
    "journal": "from the journal",
    "flight": "with an equal question under way",
}
"""How questions end that were answered, as `llm_service.records.Source` names it; other ends are those of `Status`."""


def panel(runs: Sequence[Run], groups: Arms) -> str:
    """What asking the language model came to, as HTML; "" where none was asked."""
    compared = calibration_section(runs)
    sums: dict[str, float] = {}
    for run in runs:
        for name, value in part(run.results or comparison(run), "language_model").items():
            sums[name] = sums.get(name, 0.0) + (number(value) or 0.0)
    if not sums and not any(run.asked for run in runs):
        return compared
    ends = {name.removeprefix("answers_"): n for name, n in sums.items() if name.startswith("answers_") and n}
    order = [*ENDS, *(name for name in ends if name not in ENDS)]
    shown = [f"{count(ends[name])} {ENDS.get(name, name)}" for name in order if name in ends]
    words = f"{count(sum(ends.values()))} questions{': ' if shown else ''}{', '.join(shown)}."
    words += f" The model was called {count(sums.get('calls', 0))} times."
    if tokens := sums.get("tokens"):
        words += f" That took {count(tokens)} tokens and {sums.get('dollars', 0):.2f} dollars."
    models = sorted({stand_in(run.config) for run in runs} - {""})
    said = section("Language model", text(words) if sums else "", _counted(runs), *map(text, models))
    return join(compared, said)


def _counted(runs: Sequence[Run]) -> str:
    """What each run asked and paid, over all its stages, services and attempts; as HTML."""
    rows = [(run.name, *(_shown(name, run.asked.get(name)) for name in COLUMNS)) for run in runs if run.asked]
    if not rows:
        return ""
    words = "Over all stages and attempts. A cache hit is an answer without a call of its own, a failure a question "
    words += "without an answer. Calls include those that failed; tokens and dollars are those of replies."
    return join(table(["run", *(name.replace("_", " ") for name in COLUMNS)], rows), text(words))


def _shown(name: str, value: object) -> str:
    found = number(value)
    return f"{found:,.4f}" if name == "dollars" and found else count(found)
