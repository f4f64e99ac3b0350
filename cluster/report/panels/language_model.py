"""What a report says of asking a language model: whether it agrees with people, how questions ended, what that cost."""

from __future__ import annotations

from collections.abc import Sequence

from cluster.report.calibration import calibration_section, comparison
from cluster.report.outcome import Arms
from cluster.report.page import count, section, text
from cluster.runs.run_data import Run, number, part, stand_in

SUBJECT, ORDER = "agents", 80
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
    if not sums:
        return compared
    ends = {name.removeprefix("answers_"): n for name, n in sums.items() if name.startswith("answers_") and n}
    order = [*ENDS, *(name for name in ends if name not in ENDS)]
    shown = [f"{count(ends[name])} {ENDS.get(name, name)}" for name in order if name in ends]
    words = f"{count(sum(ends.values()))} questions{': ' if shown else ''}{', '.join(shown)}."
    words += f" The model was called {count(sums.get('calls', 0))} times."
    if tokens := sums.get("tokens"):
        words += f" That took {count(tokens)} tokens and {sums.get('dollars', 0):.2f} dollars."
    said = section("Language model", text(words), *map(text, sorted({stand_in(run.config) for run in runs} - {""})))
    return compared + said
