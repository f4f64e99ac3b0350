"""What runs were shaped by, how much of their reward that was, and what the knowledge behind it cost each of them.

metrics.jsonl, config.yaml ──> a row an arm, rewards over training
the extraction that an option names, or whose program it is ──> its calls and dollars by the runs of this page
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from cluster.report.outcome import FEW_ARMS, Arms, metrics_figure
from cluster.report.page import count, grid, percent, section, table, text
from cluster.report.panels.knowledge import cost, extraction, is_scripted
from cluster.runs.run_data import Run, part, read_mapping, series

SUBJECT, ORDER = "agents", 75
UNJUDGED = "shaping/unjudged/"
OPTIONS = {"preference": "preference", "goal": "goals", "code": "program"}
"""Potentials that come of an extraction, and the option that holds the folder of its stage, or the program's text."""


def panel(runs: Sequence[Run], groups: Arms) -> str:
    shaped = {arm: [run for run in group if _potential(run)] for arm, group in groups.items()}
    shaped = {arm: group for arm, group in shaped.items() if group}
    if not shaped:
        return ""
    head = ["settings", "potential", "its hash", "share of the reward", "time", "windows without a value"]
    rows = [(arm or "all runs", *_cells(group)) for arm, group in shaped.items()]
    parts: list[str] = [table(head, rows)]
    if len(shaped) <= FEW_ARMS:
        keys = {"rewards/shaping": "shaping", "rewards/env": "world"}
        words = "Reward per step of training, by column"
        drawn = [
            metrics_figure(group, f"shaping-{i}", keys, f"{words}{': ' if arm else ''}{arm}.")
            for i, (arm, group) in enumerate(shaped.items())
        ]
        parts.append(drawn[0] if len(drawn) == 1 else grid("plots", drawn))
    return section("Shaping", *parts, *_served([run for group in shaped.values() for run in group]))


def _potential(run: Run) -> Mapping[str, Any]:
    """Options of what shaped a run; empty where nothing did."""
    shaping = part(run.config, "method", "shaping")
    return shaping if shaping.get("potential", "none") != "none" else {}


def _cells(runs: Sequence[Run]) -> list[str]:
    """Of one arm: means over its runs, counts in all."""
    judged = sum(_total(run, "shaping/windows") for run in runs)
    faults = {key for run in runs for row in run.train for key in row if key.startswith(UNJUDGED)}
    failed = {key.removeprefix(UNJUDGED): sum(_total(run, key) for run in runs) for key in sorted(faults)}
    why = "; ".join(f"{count(n)} {reason}" for reason, n in failed.items() if n)
    return [
        str(_potential(runs[0])["potential"]),
        ", ".join(dict.fromkeys(filter(None, map(_hash, runs)))) or "–",
        _mean(runs, "shaping/share"),
        _mean(runs, "time/shaping"),
        f"{why} of {count(judged)}" if why else f"none of {count(judged)}",
    ]


def _total(run: Run, key: str) -> float:
    return float(series(run.train, key)[1].sum())


def _mean(runs: Sequence[Run], key: str) -> str:
    """The mean of a share over all rows of some runs, or a dash."""
    found = [value for run in runs for value in series(run.train, key)[1].tolist()]
    return percent(sum(found) / len(found)) if found else "–"


def _hash(run: Run) -> str:
    """The beginning of the hash of what the potential is made of, as a stage that trained has noted it; or ""."""
    noted = [read_mapping(path) for path in sorted(run.folder.glob("stages/*/manifest.json"))]
    found = [str(part(manifest, "inputs").get("shaping.content") or "") for manifest in noted]
    return next(filter(None, found), "")[:8]


# ---- what the knowledge cost ----------------------------------------------------------------------------------------


def _served(runs: Sequence[Run]) -> list[str]:
    """Sentences: what each extraction cost, by the runs here that it served."""
    served: dict[tuple[Path, ...], list[Run]] = {}
    for run in runs:
        if sources := _sources(run):
            served.setdefault(sources, []).append(run)
    return [text((_alike if len(sources) > 1 else _cost)(sources, users)) for sources, users in served.items()]


def _alike(sources: Sequence[Path], users: Sequence[Run]) -> str:
    names = " and ".join(source.name for source in sources)
    whom = _several(len(users), "run")
    return f"{names} chose the same program, which shaped {whom} of this page: whose it was is not known."


def _cost(sources: Sequence[Path], users: Sequence[Run]) -> str:
    source = sources[0]
    sums, n = cost(extraction(source)), len(users)
    tasks = {run.world + str(part(run.config, "env").get("task") or "") for run in users}
    scripted = is_scripted(read_mapping(source / "config.yaml", yaml.safe_load))
    words = f"{source.name} was asked once, for {_several(n, 'run')} and {_several(len(tasks), 'task')} of this page: "
    words += f"{count(sums['calls'])} calls, {count(sums['tokens'])} tokens, {sums['dollars']:.2f} dollars. "
    each = [sums[name] / len(tasks) for name in ("calls", "dollars")]
    words += f"For each task served that is {count(each[0])} calls and {each[1]:.2f} dollars."
    return words + (" Its answers are rules that we wrote, not a language model's." if scripted else "")


def _several(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def _sources(run: Run) -> tuple[Path, ...]:
    """The folder of the run that asked for what shaped this one; empty where that is not known, several where it is one
    of these."""
    options = _potential(run)
    given = str(options.get(OPTIONS.get(str(options["potential"]), "")) or "").strip()
    if "\n" not in given:
        stage = Path(os.path.expanduser(given))  # that of Path raises where nobody is named so
        return (stage.parent.parent,) if given and extraction(stage.parent.parent) else ()
    found = []
    for path in sorted(run.folder.parent.glob("*/stages/label/program.py")):  # a run keeps the text, not the place
        try:
            text_there = path.read_text(encoding="utf-8")
        except (OSError, ValueError):
            continue  # another run, of which nothing can be told
        if text_there.strip() == given:
            found.append(path.parents[2])
    named = [source for source in found if _names(run, source)]
    return tuple(named if len(named) == 1 else found)


def _names(run: Run, source: Path) -> bool:
    """Whether the command that began a run takes its program from there."""
    stage = source / "stages" / "label"
    command = str(run.manifest.get("command") or "")
    named = {place.rstrip("/") for place in re.findall(r"method\.shaping\.program=(\S+)", command)}
    return not named.isdisjoint({f"run:{source.name}/label", str(stage), str(stage / "program.py")})
