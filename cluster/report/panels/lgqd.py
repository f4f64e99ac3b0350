"""What a report says of behaviours asked for in words: how near they came, how well they obeyed, how they look.

    stages/deploy/results.json ──> headline, tables of results          (arms: means over seeds)
    report/archive_sections.py ──> scores, maps and a browser of archives  (of the first run)
    report/deployed.py ──> ways through the house, distances, agreement   (of the first run)

A run shows what it worked with, also where `from` names another run. The first episode of a trial counts as single.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cluster.metrics.statistics import Estimate, spread_name
from cluster.report import deployed, house_plan, plots
from cluster.report.agreement import agreement_section
from cluster.report.deployed import Deployed, find_stage
from cluster.report.outcome import FEW_ARMS, Arms, Measure, overall
from cluster.report.page import (
    below,
    count,
    decimal,
    figure,
    grid,
    headline,
    join,
    percent,
    quiet,
    rate,
    section,
    subtitle,
    table,
    text,
    tiles,
)  # fmt: skip
from cluster.runs.run_data import Run, between, number, read_mapping, seeds
from llm_service.errors import UsageError

SUBJECT, ORDER = "behaviours", 10
BINS = 30  # of the distances
SHOWN = {"nearer than 9 of 10": 0.1, "in the middle": 0.5, "farther than 9 of 10": 0.9}
"""Which trials are drawn: by the share of trials whose single episode ends nearer to the target."""
EACH = 2  # trials drawn of each
CASES = {
    "all": "all trials",
    "plain": "a behaviour's own text and end",
    "how": "one end, two routes",
    "described": "in the describer's words",
    "reworded": "in other words",
    "paraphrased": "in another grammar",
    "map": "from the map's start",
    "nearby": "from nearby",
}
REPLAYS = {
    "text_blind_replay": "archive, without text",
    "text_aware_replay": "archive, looked up by text",
    "random": "archive, at random",
}
MEASURES = {
    "two_alternative": (
        "Own text or the rival's",
        "Of pairs of routes to one end, the share of episodes that fit their own text better than the other's; as well "
        "counts half. Chance, and whoever reads no text, is 50 %.",
        rate,
    ),
    "normalised_obedience": (
        "Normalised obedience",
        "0: as the nearest behaviour of the archive, which reads no text; 1: as the described behaviours themselves.",
        decimal,
    ),
    "obedience": (
        "Obedience",
        "Of the places that the text names, the share that was visited in its order; being at the last of them in the "
        "end counts as one more. The mean, 0 to 1.",
        decimal,
    ),
    "distance": (
        "Distance",
        "Between the end of an episode and the target: the median, a share of the house's diagonal.",
        rate,
    ),
    "best_distance": ("Distance, best", "The same of the nearest of a trial's episodes.", rate),
}


def panel(runs: Sequence[Run], groups: Arms) -> str:
    runs = [run for arm in groups.values() for run in arm]
    first = next((run for run in runs if find_stage(run, "deploy")), runs[0])
    note = text(f"Shown for {first.name}, the first of {len(runs)} runs.") if len(runs) > 1 else ""
    parts = [_results(groups)]
    try:
        if find_stage(first, "deploy"):
            found = deployed.read(first)
            parts += [_ways(found, note), _distances(found, note), agreement_section(found, note)]
    except UsageError as error:
        parts.append(section("Episodes", text(f"They cannot be shown: {error}.")))
    from cluster.report.archive_sections import archive_sections  # here: most reports need no tables

    return join(*parts, archive_sections(first, note))


def _results(groups: Arms) -> str:
    told = {arm: [run for run in runs if _rows(run)] for arm, runs in groups.items()}
    if not any(told.values()):
        return section("Behaviours asked for", text("They were not tried: there is no finished deploy stage."))
    few = {arm: runs for arm, runs in told.items() if runs}
    spread = spread_name(seeds(max(few.values(), key=len)), "95 % bootstrap intervals over behaviours")
    if len(few) <= FEW_ARMS:
        return join(*(_of_arm(arm, runs, spread) for arm, runs in few.items()))
    rows = [
        (arm, *(cell(_value(runs, _arm(runs), "all", name)) for name, (*_, cell) in MEASURES.items()))
        for arm, runs in few.items()
    ]
    head = ["settings", *(what.lower() for what, *_ in MEASURES.values())]
    return section("Behaviours asked for", table(head, rows), text(f"All trials. Brackets: {spread}."))


def _of_arm(label: str, runs: Sequence[Run], spread: str) -> str:
    arm, samples = _arm(runs), count(number(_results_of(runs[0]).get("samples")))
    parts = []
    right = _value(runs, arm, "all", "two_alternative")
    if right:
        parts.append(headline(percent(right.value)))
        words = "of episodes fit their own text better than that of another route to the same end; chance is 50 %"
        how = "" if arm == "text" else f", arm {arm}"
        parts.append(text(f"{words} ({Measure().range(right)}), {count(right.n)} trials{how}."))
    brief = {what: name for name, (what, *_) in MEASURES.items() if name != "two_alternative"}
    parts.append(tiles({what.lower(): _brief(_value(runs, arm, "all", name), name) for what, name in brief.items()}))
    head = ["which trials", "trials", "transformer", *REPLAYS.values()]
    for name, (what, about, cell) in MEASURES.items():
        rows = []
        for case, words in CASES.items():
            found = [_value(runs, player, case, name) for player in (arm, *REPLAYS)]
            if found[0]:
                rows.append((words, count(found[0].n), *map(cell, found)))
        if rows:
            parts += [subtitle(what), text(about), table(head, rows)]
    parts.append(
        text(f"{samples} episodes of each trial count alike; the archive is replayed once. Brackets: {spread}.")
    )
    return section(f"Behaviours asked for{': ' if label else ''}{label}", *parts)


def _results_of(run: Run) -> Mapping[str, Any]:
    """What the stage deploy has summed up; empty without one."""
    folder = find_stage(run, "deploy")
    return read_mapping(folder / "results.json") if folder else {}


def _arm(runs: Sequence[Run]) -> str:
    return str(_results_of(runs[0]).get("arm") or "text")


def _rows(run: Run) -> list[Mapping[str, Any]]:
    rows = _results_of(run).get("rows")
    return [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []


def _value(runs: Sequence[Run], arm: str, trials: str, metric: str) -> Estimate | None:
    """A measure over some runs; None where none has it."""
    wanted = {"arm": arm, "trials": trials, "metric": metric}
    found = []
    for run in runs:
        for row in _rows(run):
            if wanted.items() <= row.items() and (value := between(row, int(number(row.get("n")) or 0))):
                found.append(value)
    return overall(found)


def _brief(found: Estimate | None, name: str) -> str:
    """Without the interval: a distance as a share, a score as it is."""
    if not found:
        return "–"
    return percent(found.value) if name.endswith("distance") else f"{found.value:.2f}"


def _ways(found: Deployed, note: str) -> str:
    """Some single episodes: near to the target, in the middle, far from it."""
    order, scene = np.argsort(found.error[:, 0], kind="stable").tolist(), found.scene
    drawn: list[str] = []
    seen: set[str] = set()
    for words, share in list(SHOWN.items()) * EACH:
        begin = int(share * (len(order) - 1))
        trial = next((p for p in order[begin:] if found.trials[p].text not in seen), order[begin])
        asked, pose = found.trials[trial], found.pose[trial]
        seen.add(asked.text)
        layers = [house_plan.way(scene, pose), house_plan.target(scene, np.array(asked.target))]
        layers.append(house_plan.robot(scene, pose))
        svg = house_plan.drawing(scene, layers, f"the way of a robot asked: {asked.text}", house_plan.time_key(scene))
        facts = f"{percent(found.error[trial, 0] / found.diagonal)} off, {words}; "
        facts += f"obedience {found.score[trial, 0]:.2f}"
        drawn.append(figure(svg, below(asked.text, quiet(facts))))
    words = "Single episodes, chosen by rank of distance, not by hand. The cross in a circle is the target."
    return section("Episodes", text(words), grid("films", drawn), note)


def _distances(found: Deployed, note: str) -> str:
    """How far episodes end from their targets."""
    values = {
        "single": found.error[:, 0],
        f"best of {found.error.shape[1]}": found.error.min(1),
        "archive replayed": found.replayed_error[:, 0],
    }
    shares = {name: 100 * value / found.diagonal for name, value in values.items()}
    edges = np.linspace(0, max(float(value.max()) for value in shares.values()) or 1, BINS + 1)
    lines = []
    for i, (name, value) in enumerate(shares.items()):
        heights = np.histogram(value, edges)[0].astype(np.float64)
        lines.append(plots.Line(name, np.repeat(edges, 2), np.repeat([0, *heights, 0], 2)[1:-1], colour=i, dash=i))
    caption = f"Distance from the target in % of the house's diagonal: how many of {len(found.trials):,} trials."
    svg = plots.curves("distances", lines, title=caption, x_label="% of the diagonal", zero=True)
    return section("Distances", figure(svg, caption), note)
