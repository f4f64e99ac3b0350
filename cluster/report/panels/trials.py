"""What a report says of trials: how returns rise from trial to trial, without a change of weights.

stages/trials*/returns.safetensors ──> a line an arm, with its band and its interquartile mean, and a row of figures
                                   ──> what was looked at: a line an arm again
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import safetensors.numpy

from cluster.metrics.statistics import Estimate
from cluster.metrics.trials import RETURN, RETURNS, TASK, lead, retrieved, summary
from cluster.report import plots
from cluster.report.outcome import Arms
from cluster.report.page import decimal, figure, grid, join, section, subtitle, table, text
from cluster.runs.run_data import Run, read_mapping
from learner.context.config import ARMS

SUBJECT, ORDER = "agents", 27

Arrays = Mapping[str, Any]
LOOKED = {
    "similarity": "Cosine of query and key.",
    "return": "Return of the chunk's episode.",
    "age": "Trials ago.",
    "found": "Share of queries that found something.",
}
"""What is drawn of looking, by its name in `cluster.metrics.trials.retrieved`."""
BAND = "95 % stratified bootstrap over seeds and tasks"


def panel(runs: Sequence[Run], groups: Arms) -> str:
    """Curves and figures, as HTML; "" where there were no trials."""
    told = [
        (arm, _name(told), arrays) for arm, group in groups.items() for run in group for told, arrays in _trials(run)
    ]
    of = {name: {arm for arm, other, _ in told if other == name} for _, name, _ in told}
    found: dict[str, list[Arrays]] = {}
    for arm, name, arrays in told:  # settings are told where the arm alone does not tell runs apart
        found.setdefault(f"{name}: {arm}" if len(of[name]) > 1 else name, []).append(arrays)
    if not found:
        return ""
    joined = {name: _joined(parts) for name, parts in found.items()}
    figures = {name: summary(arrays[RETURN]) for name, arrays in joined.items()}
    lines = [line for i, (name, of_arm) in enumerate(figures.items()) for line in _lines(name, of_arm, i)]
    shown = plots.curves("trials", lines, title="Return over trials", x_label="trial", zero=True)
    shape = {arrays[RETURN].shape for arrays in joined.values()}
    seeds, tasks, trials = next(iter(shape))
    size = f"{tasks} tasks, {seeds} seeds each" if len(shape) == 1 else "numbers of tasks and seeds differ"
    words = f"Mean return of an episode in each trial, weights as they are ({size}). Bands and intervals: {BAND}. "
    words += "Thin lines: interquartile means."
    rows = [(name, *_row(of_arm)) for name, of_arm in figures.items()]
    head = ["arm", "trial 1", "trial 10", f"last of {trials}", "mean of all", "IQM of the last"]
    if len(joined) > 1:
        first = next(iter(joined))
        rows = [(*row, _lead(joined[first], joined[row[0]]) if row[0] != first else "") for row in rows]
        head.append(f"{first} less this, last")
    looked = {name: retrieved(arrays) for name, arrays in joined.items()}
    return section("Trials", figure(shown, words), table(head, rows), _looked(looked))


def own(runs: Sequence[Run]) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """What the first trials stage of the first of some runs told, and the figures of all of them; None if none played.

    Of a run that played controls, too, these are the trials that it began with.
    """
    found = [of[0] for run in runs if (of := _trials(run))]
    return (found[0][0], summary(_joined([arrays for _, arrays in found])[RETURN])) if found else None


def _name(told: Mapping[str, Any]) -> str:
    """Of an arm, with the control, if it was one."""
    looks = told["arm"] in ARMS and ARMS[told["arm"]].looks != "nowhere"
    control = {"others": ", memories of others", "none": ", no memory"} if looks else {}
    return str(told["arm"]) + control.get(told["memory"], "")


def _trials(run: Run) -> list[tuple[dict[str, Any], Arrays]]:
    """What each trials stage of a run told, and its arrays."""
    found: list[tuple[dict[str, Any], Arrays]] = []
    for path in sorted((run.folder / "stages").glob("trials*/results.json")):
        told = read_mapping(path)
        if told and (path.parent / RETURNS).exists():
            found.append((told, safetensors.numpy.load_file(path.parent / RETURNS)))
    return found


def _joined(parts: Sequence[Arrays]) -> Arrays:
    """Runs of one arm, as further seeds; of other tasks or trials than the first has, none."""
    first = parts[0]
    alike = [
        part
        for part in parts
        if part[RETURN].shape[1:] == first[RETURN].shape[1:] and np.array_equal(part[TASK], first[TASK])
    ]
    names = [name for name, array in parts[0].items() if array.ndim == 3]
    return {name: np.concatenate([part[name] for part in alike]) for name in names} | {TASK: parts[0][TASK]}


def _lines(name: str, told: Mapping[str, Any], place: int) -> list[plots.Line]:
    """Means with their band, and interquartile means."""
    curve = {key: np.array(values) for key, values in told["curve"].items()}
    x = np.arange(1.0, len(curve["mean"]) + 1)
    middle = plots.Line("", x, curve["iqm"], colour=place, faint=True)
    return [plots.Line(name, x, curve["mean"], curve["low"], curve["high"], colour=place, dash=place), middle]


def _row(told: Mapping[str, Any]) -> list[str]:
    names = ("first", "tenth", "last", "area", "iqm")
    return [decimal(Estimate(told[n]["mean"], told[n]["low"], told[n]["high"])) if n in told else "–" for n in names]


def _lead(one: Arrays, other: Arrays) -> str:
    """By how much one is above another in the last trial; "–" where tasks, seeds or trials differ."""
    alike = np.array_equal(one[TASK], other[TASK])
    found = lead(one[RETURN], other[RETURN]) if alike else None
    return "–" if found is None else decimal(Estimate(found["mean"], found["low"], found["high"]))


def _looked(found: Mapping[str, Mapping[str, Sequence[float | None]]]) -> str:
    """What was looked at, over trials and in a few of them; "" where nobody looked."""
    rows = []
    for name, told in found.items():
        trials = len(told.get("found", ()))
        for trial in sorted({1, 9, trials - 1} & set(range(trials))):
            cells = [told[key][trial] for key in ("similarity", "return", "age", "task")]
            if any(cell is not None for cell in cells):
                rows.append((name, trial + 1, *("–" if cell is None else f"{cell:.2f}" for cell in cells)))
    if not rows:
        return ""
    head = ["arm", "trial", "similarity", "return", "trials ago", "of the own task"]
    words = "What was looked at, lines as above: cosine of query and key, return and age of the chunk's episode, "
    words += "share of the own task."
    drawn = [_looked_figure(found, key, caption) for key, caption in LOOKED.items()]
    return join(subtitle("What was retrieved"), grid("small", drawn), text(words), table(head, rows, dense=True))


def _looked_figure(found: Mapping[str, Mapping[str, Sequence[float | None]]], key: str, caption: str) -> str:
    """A number of what was looked at, a line an arm; a gap where nothing was found. It is too small for
    names: an arm has the colour and the dashes that it has in the curve of returns."""
    lines = []
    for place, told in enumerate(found.values()):
        if any(value is not None for value in told.get(key, ())):
            y = np.array([np.nan if value is None else value for value in told[key]])
            lines.append(plots.Line("", np.arange(1.0, len(y) + 1), y, colour=place, dash=place))
    svg = plots.curves(
        f"retrieved-{key}", lines, title=caption, x_label="trial",
        percent=key == "found", zero=key in ("return", "age"), size=plots.SMALL,
    )  # fmt: skip
    return figure(svg, caption)
