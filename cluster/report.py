"""The report of a run: one HTML file without scripts or outside resources, for a phone, a desk and the printer.

    run folders -> runs -> arms (same settings, other seeds) -> sections -> report.html

Everything shown is read from the run folder; what is not there is said in a sentence.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from cluster import plots
from cluster.behaviour_pages import behaviour_sections, is_of_behaviours
from cluster.beside_page import beside_section
from cluster.cases_page import cases_section
from cluster.goal_page import goals_section, language_model_section
from cluster.outcome import (
    FEW_ARMS,
    Arms,
    by_kind,
    kinds_figure,
    kinds_of,
    learning_figures,
    measure,
    overall,
)
from cluster.page import (
    animation,
    count,
    figure,
    grid,
    header,
    rate,
    save,
    section,
    span,
    table,
    text,
    tiles,
    tree,
)
from cluster.run_data import Run, arms, expand, number, seeds, series
from cluster.statistics import binned, spread_name
from learner.files import Attempt
from learner.models.language.probes import PROBES

MOST_ANIMATIONS = 12
"""More make the file too large to send."""
LONGEST_NAME = 120
"""Bytes that the names of all runs may have in the name of a file, which has 255 at most."""


def write(run_folders: list[Path], attempt: Attempt | None = None) -> Path:
    """Write the report of one run or sweep (its base folder) into it, of several of these beside the first.

    attempt: in whose name, if it is one of those at the run.

    Returns:
        Path of the page: `report.html`, or of several `report-<a>+<b>.html`.

    Raises:
        UsageError: a folder is not a run folder, or a sweep has no run yet.
        Superseded: a newer attempt has begun.
    """
    folders = list(dict.fromkeys(Path(folder).resolve() for folder in run_folders))
    runs, missing = expand(run_folders)
    groups = arms(runs)
    title = f"{runs[0].method} on {runs[0].world}"
    body = [
        _header(title, runs, missing),
        *([behaviour_sections(groups)] if is_of_behaviours(runs) else _of_agents(runs, groups)),
        _facts(runs),
        _configuration(runs[0], groups),
        _commands(runs, folders),
    ]
    first = Path(run_folders[0])
    path = first / "report.html"
    if len(folders) > 1:
        name = _joined([folder.name for folder in folders])
        path = (first if first.name else folders[0]).parent / f"report-{name}.html"
    return save(path, title, "\n".join(body), attempt)


def _joined(names: Sequence[str]) -> str:
    """`a+b+c`; of many, the beginning and a hash of all."""
    whole = "+".join(names)
    if len(whole.encode()) <= LONGEST_NAME:
        return whole
    return f"{whole[: LONGEST_NAME // 4]}-{hashlib.sha256(whole.encode()).hexdigest()[:12]}"


def _of_agents(runs: Sequence[Run], groups: Arms) -> list[str]:
    """The sections of runs that train an agent and evaluate it in episodes."""
    return [
        _headline(groups),
        beside_section(groups),
        _animations(runs),
        _learning(groups),
        _kinds(groups),
        cases_section(groups),
        goals_section(groups),
        language_model_section(runs),
        _throughput(runs[0], len(runs)),
        _losses(runs[0], len(runs)),
        _probes(runs[0], len(runs)),
    ]


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


def _headline(groups: Arms) -> str:
    if len(groups) <= FEW_ARMS:
        return f"<section>{''.join(_headline_of(arm, runs) for arm, runs in groups.items())}</section>"
    judge = measure([run for runs in groups.values() for run in runs])
    rows = [
        (arm, judge.cell(overall(judge.each(runs))), len(runs), span(r.env_steps for r in runs))
        for arm, runs in groups.items()
    ]
    head = ["settings", judge.name, "runs", "env steps a run"]
    words = f"Brackets: {judge.spread(_most_runs(groups))}."
    return section(f"Held-out {judge.name}", table(head, rows), text(words))


def _most_runs(groups: Arms) -> Sequence[Run]:
    return max(groups.values(), key=len)


def _headline_of(label: str, runs: Sequence[Run]) -> str:
    judge = measure(runs)
    found = judge.each(runs)
    parts = [f"<h3>{escape(label)}</h3>" if label else ""]
    if total := overall(found):
        what = f"{judge.score} in a held-out episode" if judge.score else "of held-out episodes solved"
        parts.append(f'<p class="headline">{judge.number(total.value)}</p>')
        evaluated = [run for run in runs if judge.of(run)]
        parts.append(text(f"{what}, {judge.spread(evaluated)} {judge.range(total)}{_acting(runs)}."))
        if len(found) < len(runs):
            parts.append(text(f"{len(found)} of {len(runs)} runs are evaluated."))
    else:
        parts.append(text(f"There is no finished evaluate stage, and so no held-out {judge.name}."))
    each = " a run" if len(runs) > 1 else ""
    different = len(set(seeds(runs)))
    facts = {
        "held-out episodes": count(total.n if total else None),
        f"env steps{each}": span(r.env_steps for r in runs),
        f"wall minutes{each}": span((r.minutes for r in runs), ",.1f"),
        **({"runs": str(len(runs))} if different < len(runs) else {}),
        "training seeds": str(different),
    }
    return "".join([*parts, tiles(facts)])


def _acting(runs: Sequence[Run]) -> str:
    players = {str(r.results.get("player") or "policy") for r in runs}
    if players != {"policy"}:
        return f", played by {' and '.join(sorted(players))}"
    greedy = {r.results.get("greedy") for r in runs} - {None}
    if len(greedy) != 1:
        return ""
    return ", taking the most likely action" if greedy.pop() else ", actions drawn from the policy"


def _animations(runs: Sequence[Run]) -> str:
    each = max(1, MOST_ANIMATIONS // len(runs))
    videos = [[(r, v) for v in r.results.get("videos") or [] if isinstance(v, Mapping)] for r in runs]
    chosen = [item for of_run in videos for item in of_run[:each]][:MOST_ANIMATIONS]
    drawn = [item for r, v in chosen if (item := _animation(r, v, r.name if len(runs) > 1 else ""))]
    if not drawn:
        return section("Episodes", text("No animations were recorded."))
    total = sum(map(len, videos))
    note = text(f"{len(drawn)} of {total} recorded episodes are shown.") if len(drawn) < total else ""
    # With goals there are words in the pictures, which must stay large enough to read.
    kind = "films" if any(r.results.get("goals") for r, _ in chosen) else "animations"
    return section("Episodes", grid(kind, drawn), note)


def _animation(run: Run, video: Mapping[str, Any], whose: str) -> str:
    path = (run.folder / str(video.get("file", ""))).resolve()
    if path.suffix != ".gif" or not path.is_file() or not path.is_relative_to(run.folder.resolve()):
        return ""
    mission = str(video.get("mission") or "no mission")
    facts = [whose] if whose else []
    value = number(video.get("return"))
    facts += [f"return {value:.2f}"] if value is not None and not run.score else []
    facts += [f"{count(number(video['length']))} steps"] if "length" in video else []
    facts += [f"seed {video['seed']}"] if "seed" in video else []
    mark = '<b class="solved">✓ solved</b>' if video.get("success") else '<b class="failed">✗ not solved</b>'
    if run.score:
        points = "–" if value is None else f"{value:,.2f}".rstrip("0").rstrip(".")
        mark = f"<b>{escape(run.score)}: {points}</b>"
    quiet = f'<span class="quiet">{escape(", ".join(facts))}</span>'
    return animation(path, mission, f"{escape(mission)}<br>{mark}<br>{quiet}")


def _learning(groups: Arms) -> str:
    figures, judge = learning_figures(groups), measure([run for runs in groups.values() for run in runs])
    if not figures:
        return section("Learning curve", text(f"No {judge.score or 'success rate'} was recorded while training."))
    if len(most := _most_runs(groups)) == 1:
        interval = judge.spread(most)
        words = f"The band around the validation curve and the whisker at its end: {interval}."
    else:
        words = f"Lines are means over runs, interpolated where all have data; bands: {spread_name(seeds(most))}."
        words += " Thin lines are single runs."
    return section("Learning curve", figures, text(words))


def _kinds(groups: Arms) -> str:
    found = {arm: by_kind(runs) for arm, runs in groups.items()}
    kinds = kinds_of(found)
    if not kinds and any(run.score for runs in groups.values() for run in runs):
        return ""
    if not kinds:
        return section("Success by task kind", text("No results by task kind: there is no finished evaluate stage."))
    rows = []
    for kind in kinds:
        for arm, entries in found.items():
            total = overall(entries.get(kind, []))
            rows.append((kind, *([arm] if len(groups) > 1 else []), rate(total), count(total.n if total else None)))
    head = ["task kind", *(["settings"] if len(groups) > 1 else []), "success", "episodes"]
    words = f"Whiskers and brackets: {spread_name(seeds(_most_runs(groups)))}."
    return section("Success by task kind", kinds_figure(found), table(head, rows), text(words))


def _plot(run: Run, name: str, keys: Mapping[str, str], caption: str, **style: Any) -> str:
    """One figure of training metrics, empty when the run has none of them."""
    lines = []
    for i, (key, label) in enumerate(keys.items()):
        x, y = binned(*series(run.train, key), largest=key.endswith("_max"))
        if len(x):
            lines.append(plots.Line(label, x, y, colour=i, dash=i))
    return figure(plots.curves(name, lines, title=caption, x_label="env steps", **style), caption) if lines else ""


def _throughput(run: Run, of: int) -> str:
    rates = {"charts/SPS": "overall", "charts/SPS_sampling": "sampling", "charts/SPS_learning": "learning"}
    shares = {"time/env": "env", "time/policy": "policy", "time/learner": "learner"}
    drawn = [
        _plot(run, "sps", rates, "Env steps per second.", zero=True),
        _plot(run, "shares", shares, "Share of time in each part.", percent=True),
        _plot(run, "lag", {"policy/lag_mean": "mean", "policy/lag_max": "largest"}, "Policy lag, versions.", zero=True),
        _plot(run, "rho", {"policy/rho": "mean"}, "Importance ratio, new policy to the one that acted.", zero=True),
    ]
    if not any(drawn):
        return section("Throughput and policy lag", text("No throughput was recorded."))
    parts = [grid("plots", drawn)]
    if run.speed:
        parts.append(
            text(f"{count(run.env_steps)} env steps in {run.minutes:,.1f} minutes: {count(run.speed)} a second.")
        )
    limits = Counter(str(row["bottleneck"]) for row in run.train if row.get("bottleneck"))
    if limits:
        shares_of = [f"{name} {100 * n / limits.total():.0f} %" for name, n in limits.most_common()]
        parts.append(text(f"What held the run back, by share of its rows: {', '.join(shares_of)}."))
    return section("Throughput and policy lag", *parts, _only(run, of))


def _losses(run: Run, of: int) -> str:
    keys = list(dict.fromkeys(key for row in run.train for key in row if key.startswith("losses/")))
    drawn = []
    for key in keys:
        words = key.removeprefix("losses/").replace("_", " ")
        slug = "".join(c if c.isalnum() else "-" for c in key)
        drawn.append(_plot(run, slug, {key: words}, words.capitalize(), size=plots.SMALL))
    if not any(drawn):
        return section("Losses", text("No losses were recorded."))
    return section("Losses", grid("small", drawn), _only(run, of))


def _probes(run: Run, of: int) -> str:
    """What a language model's policy thought right, state by state; "" of other policies."""
    drawn = []
    for name, state in PROBES.items():
        words = f"{state.mission}: {state.action}"
        drawn.append(_plot(run, f"probe-{name}", {f"probes/{name}": words}, words, percent=True, size=plots.SMALL))
    if not any(drawn):
        return ""
    note = text("The probability of the right action in a few states that were never played; each plot names both.")
    return section("Probes", grid("small", drawn), note, _only(run, of))


def _only(run: Run, of: int) -> str:
    return text(f"Shown for {run.name}, the first of {of} runs.") if of > 1 else ""


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
    return section("Configuration", text(words) if words else "", f'<div class="tree">{tree(run.config)}</div>')


def _commands(runs: Sequence[Run], folders: Sequence[Path]) -> str:
    name = runs[0].name
    other = runs[1].name if len(runs) > 1 else "OTHER"
    lines = {
        "continue it": f"python launch.py resume {name}",
        "compare it": f"python launch.py compare {name} {other}",
        "write this page again": f"python launch.py report {' '.join(folder.name for folder in folders)}",
    }
    return section("Next", table([], lines.items()).replace('class="facts"', 'class="commands"'))
