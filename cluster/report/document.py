"""The report of a run: one HTML file without scripts or outside resources, for a phone, a desk and the printer.

    run folders -> runs -> arms (same settings, other seeds) -> panels -> report.html

Everything shown is read from the run folder; a section that has nothing to show is not there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from cluster.report.outcome import Arms, measure
from cluster.report.page import count, grid, header, join, save, section, span, table, text, tree
from cluster.report.panels import panels
from cluster.runs.run_data import Run, arms, expand, number
from learner.files import Attempt

LONGEST_NAME = 120  # bytes that the names of all runs may have in the name of a file, which has 255 at most


def write(run_folders: list[Path], attempt: Attempt | None = None) -> Path:
    """Write the report of one run or sweep (its base folder) into it, of several of these beside the first.

    Returns the page's path: `report.html`, or of several `report-<a>+<b>.html`.
    attempt: in whose name, if it is one of those at the run.

    Raises:
        UsageError: a folder is not a run folder, or a sweep has no run yet.
        Superseded: a newer attempt has begun.
    """
    folders = list(dict.fromkeys(Path(folder).resolve() for folder in run_folders))
    runs, missing = expand(run_folders)
    groups = arms(runs)
    title = f"{runs[0].method} on {runs[0].world}"
    # Some search behaviours, imitate and try them; else an agent is trained, and episodes evaluate it.
    subject = "behaviours" if all(run.method == "lgqd" for run in runs) else "agents"
    body = [
        _header(title, runs, missing),
        *(module.panel(runs, groups) for module in panels(subject)),
        _facts(runs),
        _configuration(runs[0], groups),
        _commands(runs, folders),
    ]
    first = Path(run_folders[0])
    path = first / "report.html"
    if len(folders) > 1:
        name = _joined([folder.name for folder in folders])
        path = (first if first.name else folders[0]).parent / f"report-{name}.html"
    return save(path, title, join(*body), attempt)


def _joined(names: Sequence[str]) -> str:
    """`a+b+c`; of many, the beginning and a hash of all."""
    whole = "+".join(names)
    if len(whole.encode()) <= LONGEST_NAME:
        return whole
    return f"{whole[: LONGEST_NAME // 4]}-{hashlib.sha256(whole.encode()).hexdigest()[:12]}"


def _header(title: str, runs: Sequence[Run], missing: Sequence[str]) -> str:
    names = runs[0].name if len(runs) == 1 else f"{len(runs)} runs: {', '.join(r.name for r in runs)}"
    notes = [
        f"{r.name} is {r.status.get('state', 'in an unknown state')}: this shows how far it got."
        for r in runs
        if r.status.get("state") != "done"
    ]
    notes += [f"{name} belongs to the sweep and has no run folder yet." for name in missing]
    created = runs[0].manifest.get("created")
    return header(title, [names + (f" · started {created}" if created else "")], *map(text, notes))


def _facts(runs: Sequence[Run]) -> str:
    run = runs[0]
    facts: dict[str, object] = {
        key: run.manifest[key] for key in ("command", "commit", "created", "host") if key in run.manifest
    }
    versions = run.manifest.get("versions")
    if isinstance(versions, Mapping):
        facts["versions"] = ", ".join(f"{name} {version}" for name, version in versions.items())
    if len(runs) == 1:
        facts["state"] = ", ".join(str(run.status[key]) for key in ("state", "phase") if run.status.get(key)) or "–"
    for key in ("updates", "version", "episodes", "resumes", "restarts", "learner_restarts", "dropped_chunks"):
        words = {"version": "policy version", "episodes": "training episodes"}.get(key, key.replace("_", " "))
        if any(key in r.status for r in runs):
            facts[words] = span(number(r.status.get(key)) for r in runs)
    parts = [table([], facts.items())]
    if len(runs) > 1:
        judge = measure(runs)
        rows = [(r.name, r.seed, r.status.get("state", "–"), judge.cell(judge.of(r)), count(r.env_steps)) for r in runs]
        parts.append(table(["run", "seed", "state", judge.name, "env steps"], rows))
    return section("Run", *parts)


def _configuration(run: Run, groups: Arms) -> str:
    if not run.config:
        return section("Configuration", text("No configuration was saved."))
    words = f"Of {run.name}; the runs differ in {'; '.join(groups)}." if len(groups) > 1 else ""
    return section("Configuration", text(words) if words else "", grid("tree", [tree(run.config)]))


def _commands(runs: Sequence[Run], folders: Sequence[Path]) -> str:
    name = runs[0].name
    other = runs[1].name if len(runs) > 1 else "OTHER"
    lines = {
        "continue it": f"python launch.py resume {name}",
        "compare it": f"python launch.py compare {name} {other}",
        "write this page again": f"python launch.py report {' '.join(folder.name for folder in folders)}",
    }
    return section("Next", table([], lines.items(), kind="commands"))
