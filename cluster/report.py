"""The report of a run: one HTML file without scripts or outside resources, for a phone, a desk and the printer.

    run folders -> load -> Run -> arms (same settings, other seeds) -> sections -> report.html

Everything shown is read from the run folder; what is not there is said in a sentence. Reading never fails on a run
that is still going or was killed in the middle of a line.
"""

from __future__ import annotations

import base64
import io
import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from cluster import plots
from cluster.overrides import UsageError
from cluster.statistics import Curve, Estimate, band, binned, over_seeds, spread_name, wilson

MOST_ANIMATIONS = 12
"""More make the file too large to send."""
MOST_HEADLINES = 3
"""More settings than this are a table."""

Row = dict[str, Any]

# ---- reading ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """What a run folder holds, as far as it is there: empty mappings and lists stand for what is not."""

    folder: Path
    config: Row
    manifest: Row
    status: Row
    train: list[Row]
    evaluations: list[Row]
    results: Row  # of the evaluate stage

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def seed(self) -> str:
        return str(self.config.get("seed", "?"))

    def total(self, key: str) -> float | None:
        """A counter at the end of the run: from the status, else from the last row that has it."""
        for row in (self.status, *reversed(self.train)):
            if (value := number(row.get(key))) is not None:
                return value
        return None

    def success(self) -> Estimate | None:
        """Held-out success rate of the finished agent."""
        return estimate(self.results.get("success"))


def load(folder: Path) -> Run:
    """Read one run folder.

    Raises:
        UsageError: it is not a run folder.
    """
    folder = Path(folder)
    if not any((folder / name).is_file() for name in ("config.yaml", "status.json", "metrics.jsonl")):
        raise UsageError(f"{folder} is not a run folder: it holds no config.yaml, status.json or metrics.jsonl")
    rows = _rows(folder / "metrics.jsonl")
    return Run(
        folder=folder,
        config=_yaml(folder / "config.yaml"),
        manifest=_json(folder / "manifest.json"),
        status=_json(folder / "status.json"),
        train=_unwound(row for row in rows if row.get("kind") == "train"),
        evaluations=_unwound(row for row in rows if row.get("kind") == "evaluate"),
        results=_json(folder / "stages" / "evaluate" / "results.json"),
    )


def expand(folders: Sequence[Path]) -> tuple[list[Run], list[str]]:
    """Runs of the folders, a sweep's base folder standing for its members; and the names of members without a run."""
    runs, missing = [], []
    for folder in map(Path, folders):
        if not (folder / "sweep.json").is_file():
            runs.append(load(folder))
            continue
        for entry in _json(folder / "sweep.json").get("members") or []:
            member = _named(entry, "name")
            try:
                runs.append(load(folder.parent / member))
            except UsageError:  # not started yet
                missing.append(member)
    if not runs:
        raise UsageError(f"no run to report on in {', '.join(map(str, folders)) or 'an empty list'}")
    return runs, missing


def number(value: object) -> float | None:
    """`value` if it is a finite number, else None."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return None


def estimate(entry: object) -> Estimate | None:
    """A `{"n", "rate" or "mean", "low", "high"}` of results.json; a rate without an interval gets Wilson's."""
    if not isinstance(entry, Mapping):
        return None
    n = int(number(entry.get("n")) or 0)
    rate, mean = number(entry.get("rate")), number(entry.get("mean"))
    low, high = number(entry.get("low")), number(entry.get("high"))
    value = rate if rate is not None else mean
    if value is None:
        return None
    if low is None or high is None:
        low, high = wilson(rate * n, n) if rate is not None else (value, value)
    return Estimate(value, low, high, n)


def series(rows: Iterable[Row], key: str, x: str = "env_steps") -> Curve:
    """The rows that have both numbers, as arrays with increasing x."""
    pairs: list[tuple[float, float]] = []
    for row in rows:
        at, value = number(row.get(x)), number(row.get(key))
        if at is not None and value is not None and (not pairs or at > pairs[-1][0]):
            pairs.append((at, value))
    values = np.array(pairs, np.float64).reshape(-1, 2)
    return values[:, 0] / (60 if x == "wall_seconds" else 1), values[:, 1]


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested mapping as dotted keys."""
    out: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            out.update(flat(value, f"{prefix}{key}."))
        else:
            out[f"{prefix}{key}"] = value
    return out


def arms(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs by the settings in which they differ: only seeds of one setting may be averaged.

    Seed, name and machines are no settings; the key is empty where all runs have the same ones.
    """
    configs = [
        {k: v for k, v in flat(r.config).items() if k != "seed" and not k.startswith(("run.", "cluster."))}
        for r in runs
    ]
    keys = sorted({k for config in configs for k in config if any(c.get(k) != config[k] for c in configs)})
    out: dict[str, list[Run]] = {}
    for run, config in zip(runs, configs, strict=True):
        out.setdefault(", ".join(f"{_short(k, keys)}={config.get(k)}" for k in keys), []).append(run)
    return out


def _short(key: str, keys: Sequence[str]) -> str:
    """Last part of a dotted key, where that is enough to tell it from the others."""
    last = key.rpartition(".")[2]
    return last if sum(k.rpartition(".")[2] == last for k in keys) == 1 else key


def world(run: Run) -> str:
    """Id of the world, "an unnamed world" when nothing tells."""
    return str(run.results.get("env") or _named(run.config.get("env"), "id", "name") or "an unnamed world")


def method(run: Run) -> str:
    """Name of the method, "an agent" when nothing tells."""
    return _named(run.config.get("method"), "name", "id") or "an agent"


def _named(part: object, *keys: str) -> str:
    if isinstance(part, Mapping):
        return str(next((part[key] for key in keys if part.get(key)), ""))
    return str(part or "")


def _json(path: Path) -> Row:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _yaml(path: Path) -> Row:
    try:
        value = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return {str(key): item for key, item in value.items()} if isinstance(value, dict) else {}


def _rows(path: Path) -> list[Row]:
    """All whole lines; a process that was killed leaves a part of one, and a resumed one appends to it."""
    rows = []
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows


def _unwound(rows: Iterable[Row]) -> list[Row]:
    """Rows in order of env steps: a run resumed from a checkpoint repeats some, and the later ones count."""
    kept: list[Row] = []
    for row in rows:
        steps = number(row.get("env_steps"))
        if steps is None:
            continue
        while kept and kept[-1]["env_steps"] >= steps:
            kept.pop()
        kept.append(row)
    return kept


# ---- words and tables -------------------------------------------------------------------------------------------


def percent(value: float) -> str:
    """0.973 -> 97.3 %."""
    return f"{100 * value:.1f} %"


def rate(value: Estimate | None) -> str:
    """97.3 % [95.5, 98.4], or a dash."""
    return f"{percent(value.value)} [{100 * value.low:.1f}, {100 * value.high:.1f}]" if value else "–"


def count(value: float | None) -> str:
    """1234567 -> 1,234,567, or a dash."""
    return "–" if value is None else f"{value:,.0f}"


def minutes(run: Run) -> float | None:
    """Wall-clock minutes of the run."""
    seconds = run.total("wall_seconds")
    return None if seconds is None else seconds / 60


def span(values: Iterable[float | None], form: str = ",.0f") -> str:
    """One number, or lowest to highest where runs differ."""
    found = sorted({format(v, form): v for v in values if v is not None}.items(), key=lambda item: item[1])
    return " to ".join(dict.fromkeys([found[0][0], found[-1][0]])) if found else "–"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """An HTML table; the first cell of a row names it. Cells are escaped.

    On a phone a table with a head is stacked, each cell behind the name of its column.
    """
    cells = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    top = f"<thead><tr>{cells}</tr></thead>" if head else ""
    body = "".join(f"<tr>{_cells(head, row)}</tr>" for row in rows)
    return f'<table class="{"stacked" if head else "facts"}">{top}<tbody>{body}</tbody></table>'


def _cells(head: Sequence[str], row: Sequence[object]) -> str:
    columns = head[1:] or [""] * (len(row) - 1)
    cells = [
        f'<td data-column="{escape(column)}">{unbroken(escape(str(cell)))}</td>'
        for column, cell in zip(columns, row[1:], strict=True)
    ]
    return f'<th scope="row">{escape(str(row[0]))}</th>{"".join(cells)}'


def unbroken(cell: str) -> str:
    """`cell` with intervals that stay on one line, where a narrow page would part their ends."""
    return re.sub(r"\[[-+.,\d ]*\]| %", lambda match: match.group().replace(" ", "\N{NO-BREAK SPACE}"), cell)


def section(title: str, *parts: str) -> str:
    """A titled section; parts are HTML."""
    return f"<section><h2>{escape(title)}</h2>{''.join(parts)}</section>"


def text(sentence: str) -> str:
    """A paragraph; the sentence is escaped."""
    return f"<p>{escape(sentence)}</p>"


def figure(svg: str, caption: str) -> str:
    """A figure; the caption is escaped, the SVG is not."""
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def tiles(facts: Mapping[str, str]) -> str:
    """Facts side by side: what it is below how much."""
    cells = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts.items())
    return f'<dl class="tiles">{cells}</dl>'


def save(path: Path, title: str, body: str) -> Path:
    """Write a page, complete or not at all: it may be open in a browser while a run rewrites it."""
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        # Holds browsers to it that nothing is fetched and nothing runs.
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">"
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body><main>{body}</main></body></html>\n"
    )
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(page, encoding="utf-8")
    temporary.replace(path)
    return path


# ---- the report -------------------------------------------------------------------------------------------------


def write(run_folders: list[Path]) -> Path:
    """Write `report.html` of one run, of several seeds, or of a sweep (its base folder) into the first folder.

    Returns:
        Path of the page.

    Raises:
        UsageError: a folder is not a run folder, or a sweep has no run yet.
    """
    runs, missing = expand(run_folders)
    groups = arms(runs)
    title = f"{method(runs[0])} on {world(runs[0])}"
    body = [
        _header(title, runs, missing),
        _headline(groups),
        _animations(runs),
        _learning(groups),
        _kinds(groups),
        _throughput(runs[0], len(runs)),
        _losses(runs[0], len(runs)),
        _facts(runs),
        _configuration(runs[0], groups),
        _commands(runs),
    ]
    return save(Path(run_folders[0]) / "report.html", title, "\n".join(body))


def _header(title: str, runs: Sequence[Run], missing: Sequence[str]) -> str:
    names = runs[0].name if len(runs) == 1 else f"{len(runs)} runs: {', '.join(r.name for r in runs)}"
    notes = [
        f"{r.name} is {r.status.get('state', 'in an unknown state')}: this shows how far it got."
        for r in runs
        if r.status.get("state") != "done"
    ]
    notes += [f"{name} belongs to the sweep and has no run folder yet." for name in missing]
    created = runs[0].manifest.get("created")
    line = names + (f" · started {created}" if created else "")
    return f'<header><h1>{escape(title)}</h1><p class="quiet">{escape(line)}</p>{"".join(map(text, notes))}</header>'


def _headline(groups: Mapping[str, Sequence[Run]]) -> str:
    if len(groups) > MOST_HEADLINES:
        rows = [
            (arm, rate(_over(runs)), len(runs), span(r.total("env_steps") for r in runs))
            for arm, runs in groups.items()
        ]
        words = f"Brackets: {spread_name(max(map(len, groups.values())))}."
        return section(
            "Held-out success", table(["settings", "success", "seeds", "env steps a seed"], rows), text(words)
        )
    return f"<section>{''.join(_headline_of(arm, runs) for arm, runs in groups.items())}</section>"


def _headline_of(label: str, runs: Sequence[Run]) -> str:
    found = [s for r in runs if (s := r.success())]
    parts = [f"<h3>{escape(label)}</h3>" if label else ""]
    if total := _over(runs):
        parts.append(f'<p class="headline">{percent(total.value)}</p>')
        parts.append(text(f"of held-out episodes solved, {_interval(total, found)}{_acting(runs)}."))
        if len(found) < len(runs):
            parts.append(text(f"{len(found)} of {len(runs)} runs are evaluated."))
    else:
        parts.append(text("Held-out success was not measured: there is no finished evaluate stage."))
    each = " a seed" if len(runs) > 1 else ""
    facts = {
        "held-out episodes": count(total.n) if total else "–",
        f"env steps{each}": span(r.total("env_steps") for r in runs),
        f"wall minutes{each}": span((minutes(r) for r in runs), ",.1f"),
        "training seeds": str(len(runs)),
    }
    return "".join([*parts, tiles(facts)])


def _over(runs: Sequence[Run]) -> Estimate | None:
    found = [s for r in runs if (s := r.success())]
    return over_seeds(found) if found else None


def _interval(total: Estimate, found: Sequence[Estimate]) -> str:
    return f"{spread_name(len(found))} {100 * total.low:.1f} to {100 * total.high:.1f} %"


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
    return section("Episodes", f'<div class="animations">{"".join(drawn)}</div>', note)


def _animation(run: Run, video: Mapping[str, Any], whose: str) -> str:
    path = (run.folder / str(video.get("file", ""))).resolve()
    if path.suffix != ".gif" or not path.is_file() or not path.is_relative_to(run.folder.resolve()):
        return ""
    solved = bool(video.get("success"))
    mission = escape(str(video.get("mission") or "no mission"))
    facts = [escape(whose)] if whose else []
    facts += [f"return {value:.2f}"] if (value := number(video.get("return"))) is not None else []
    facts += [f"{count(number(video['length']))} steps"] if "length" in video else []
    facts += [f"seed {escape(str(video['seed']))}"] if "seed" in video else []
    mark = '<b class="solved">✓ solved</b>' if solved else '<b class="failed">✗ not solved</b>'
    moving = base64.b64encode(path.read_bytes()).decode()
    return (
        f'<figure><img class="moving" alt="{mission}" src="data:image/gif;base64,{moving}">{_still(path, mission)}'
        f'<figcaption>{mission}<br>{mark}<br><span class="quiet">{", ".join(facts)}</span></figcaption></figure>'
    )


def _still(path: Path, mission: str) -> str:
    """First frame, for print and for readers who asked their system for less motion."""
    from PIL import Image

    out = io.BytesIO()
    try:
        with Image.open(path) as image:
            image.convert("RGB").save(out, "PNG", optimize=True)
    except OSError:
        return ""
    return (
        f'<img class="still" alt="{mission}" src="data:image/png;base64,{base64.b64encode(out.getvalue()).decode()}">'
    )


def success_lines(label: str, runs: Sequence[Run], x: str, colour: int = 0, alone: bool = True) -> list[plots.Line]:
    """Lines of one arm over `x` (`env_steps`, or `wall_seconds`, drawn in minutes): validation and training success.

    alone: the only arm of the figure; then the two kinds of success get a colour each, else the dash tells them apart.
    """
    prefix = f"{label}: " if label else ""
    validated = [r for r in runs if len(series(r.evaluations, "success_rate", x)[0])]
    validation = [series(r.evaluations, "success_rate", x) for r in validated]
    training = [binned(*c) for r in runs if len((c := series(r.train, "charts/success_rate", x))[0])]
    lines: list[plots.Line] = []
    if len(validation) == 1:
        lines.append(
            plots.Line(f"{prefix}validation", *validation[0], *_wilson_band(validated[0], x), colour, marker="o")
        )
    elif validation:
        lines.append(plots.Line(f"{prefix}validation", *band(validation), colour))
        lines += [plots.Line("", *curve, colour=colour, faint=True) for curve in validation]
    if training:
        at, mean, *ends = band(training) if len(training) > 1 else training[0]
        low, high = ends or (None, None)
        lines.append(plots.Line(f"{prefix}training", at, mean, low, high, colour + alone, dash=1))
    return lines


def _wilson_band(run: Run, x: str) -> tuple[plots.Array, plots.Array]:
    rows = []
    for row in run.evaluations:
        r, n = number(row.get("success_rate")), number(row.get("episodes")) or 0
        low, high = number(row.get("success_low")), number(row.get("success_high"))
        if r is not None and (low is None or high is None):
            low, high = wilson(r * n, int(n))
        rows.append({**row, "success_low": low, "success_high": high} if r is not None else {})
    return series(rows, "success_low", x)[1], series(rows, "success_high", x)[1]


def final_point(run: Run, x: str, label: str, colour: int) -> list[plots.Line]:
    """The held-out result at the end of the curve, with its interval."""
    found, at = run.success(), run.total(x)
    if not found or at is None:
        return []
    end = at / 60 if x == "wall_seconds" else at
    place, value, low, high = (np.array([v]) for v in (end, found.value, found.low, found.high))
    return [plots.Line(label, place, value, low, high, colour, marker="D")]


def _learning(groups: Mapping[str, Sequence[Run]]) -> str:
    alone = len(groups) == 1
    drawn = []
    for x, label in (("env_steps", "env steps"), ("wall_seconds", "minutes")):
        lines = [line for i, (arm, runs) in enumerate(groups.items()) for line in success_lines(arm, runs, x, i, alone)]
        if len(groups) > MOST_HEADLINES:
            lines = [line for line in lines if not line.label.endswith(": training")] or lines
        if not lines:
            return section("Learning curve", text("No success rate was recorded while training."))
        if alone and len(runs := next(iter(groups.values()))) == 1:
            lines += final_point(runs[0], x, "held-out", 2)
        svg = plots.curves(f"success-{x}", lines, title=f"Success rate over {label}", x_label=label, percent=True)
        drawn.append(figure(svg, f"Success rate against {label}."))
    most = max(map(len, groups.values()))
    if most == 1:
        words = "The band around the validation curve and the whisker at its end are 95 % Wilson intervals."
    else:
        words = f"Lines are means over seeds, interpolated where all seeds have data; bands: {spread_name(most)}."
        words += " Thin lines are single seeds."
    return section("Learning curve", f'<div class="plots">{"".join(drawn)}</div>', text(words))


def by_kind(runs: Sequence[Run]) -> dict[str, Estimate]:
    """Held-out success of each task kind, over seeds."""
    found: dict[str, list[Estimate]] = {}
    for run in runs:
        kinds = run.results.get("by_kind")
        for kind, entry in kinds.items() if isinstance(kinds, Mapping) else ():
            if value := estimate(entry):
                found.setdefault(str(kind), []).append(value)
    return {kind: over_seeds(values) for kind, values in found.items()}


def _kinds(groups: Mapping[str, Sequence[Run]]) -> str:
    found = {arm: by_kind(runs) for arm, runs in groups.items()}
    kinds = list(dict.fromkeys(kind for entries in found.values() for kind in entries))
    if not kinds:
        return section("Success by task kind", text("No results by task kind: there is no finished evaluate stage."))
    svg = plots.bars(
        "kinds", kinds, [(arm, [e.get(k) for k in kinds]) for arm, e in found.items()], title="Success by task kind"
    )
    rows = [
        (kind, *([arm] if len(groups) > 1 else []), rate(entries.get(kind)), _episodes(entries.get(kind)))
        for kind in kinds
        for arm, entries in found.items()
    ]
    head = ["task kind", *(["settings"] if len(groups) > 1 else []), "success", "episodes"]
    words = f"Whiskers and brackets: {spread_name(max(map(len, groups.values())))}."
    return section(
        "Success by task kind", figure(svg, "Held-out success by task kind."), table(head, rows), text(words)
    )


def _episodes(found: Estimate | None) -> str:
    return count(found.n) if found else "–"


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
    parts = [f'<div class="plots">{"".join(drawn)}</div>']
    steps, seconds = run.total("env_steps"), run.total("wall_seconds")
    if steps and seconds:
        parts.append(
            text(f"{count(steps)} env steps in {seconds / 60:,.1f} minutes: {count(steps / seconds)} a second.")
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
    return section("Losses", f'<div class="small">{"".join(drawn)}</div>', _only(run, of))


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
        rows = [
            (r.name, r.seed, r.status.get("state", "–"), rate(r.success()), count(r.total("env_steps"))) for r in runs
        ]
        parts.append(table(["run", "seed", "state", "success", "env steps"], rows))
    return section("Run", *parts)


def _configuration(run: Run, groups: Mapping[str, Sequence[Run]]) -> str:
    if not run.config:
        return section("Configuration", text("No configuration was saved."))
    words = f"Of {run.name}; the runs differ in {'; '.join(groups)}." if len(groups) > 1 else ""
    return section("Configuration", text(words) if words else "", f'<div class="tree">{_tree(run.config)}</div>')


def _tree(config: Mapping[str, Any]) -> str:
    items = []
    for key, value in config.items():
        inner = _tree(value) if isinstance(value, Mapping) and value else f" {escape(_value(value))}"
        items.append(f"<li><b>{escape(str(key))}</b>{inner}</li>")
    return f"<ul>{''.join(items)}</ul>"


def _value(value: object) -> str:
    return value if isinstance(value, str) and value else json.dumps(value, default=str, ensure_ascii=False)


def _commands(runs: Sequence[Run]) -> str:
    name = runs[0].name
    other = runs[1].name if len(runs) > 1 else "OTHER"
    lines = {
        "continue it": f"python launch.py resume {name}",
        "compare it": f"python launch.py compare {name} {other}",
        "write this page again": f"python launch.py report {name}",
    }
    return section("Next", table([], lines.items()).replace('class="facts"', 'class="commands"'))


STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0; background: #fff; color: #1a1a1a; font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto,
  "Liberation Sans", Arial, sans-serif; overflow-wrap: anywhere; }
main { max-width: 62rem; margin: 0 auto; padding: 1rem 1rem 3rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 1rem 0 .2rem; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .6rem; padding-top: .6rem; border-top: 1px solid #ccc; }
h3 { font-size: 1rem; margin: 1.2rem 0 .2rem; }
p { margin: .4rem 0; max-width: 44rem; }
.quiet { color: #555; }
.headline { font-size: 3.4rem; font-weight: 700; line-height: 1.1; margin: 1rem 0 0; color: #00507d; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .6rem; margin: 1rem 0; }
.tiles div { display: flex; flex-direction: column-reverse; padding: .5rem .7rem; background: #f3f5f7;
  border-radius: .4rem; }
.tiles dt { color: #555; font-size: .85rem; } .tiles dd { margin: 0; font-size: 1.2rem; font-weight: 600; }
figure { margin: 0; break-inside: avoid; } section > figure { max-width: 36rem; }
figcaption { font-size: .88rem; line-height: 1.4; }
svg { display: block; width: 100%; max-width: 100%; height: auto; }
svg text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", Arial, sans-serif !important; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); gap: 1.2rem; }
.small { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(47%, 13rem), 1fr)); gap: .8rem; }
.animations { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(47%, 11rem), 1fr)); gap: 1rem; }
.animations img { width: 100%; height: auto; border-radius: .3rem; }
.still { display: none; } .solved { color: #00664c; } .failed { color: #a33c00; }
table { border-collapse: collapse; width: 100%; margin: .6rem 0; font-size: .92rem; }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem .3rem 0; border-bottom: 1px solid #ddd; }
thead th { color: #555; font-weight: 600; overflow-wrap: normal; } tbody th { font-weight: 500; }
td { font-variant-numeric: tabular-nums; }
@media screen and (max-width: 36rem) {
  .stacked thead { display: none; } .stacked tr, .stacked th, .stacked td { display: block; border: 0; padding: 0; }
  .stacked tr { padding: .4rem 0; border-bottom: 1px solid #ddd; } .stacked tbody th { font-weight: 600; }
  .stacked td { display: grid; grid-template-columns: 6.5rem 1fr; }
  .stacked td::before { content: attr(data-column); color: #555; }
}
.commands td { font-family: ui-monospace, "Liberation Mono", Menlo, Consolas, monospace; }
.tree { columns: 20rem auto; font-size: .88rem; } .tree > ul { padding: 0; }
.tree ul { list-style: none; margin: 0; padding-left: 1.1rem; } .tree b { font-weight: 600; }
.tree > ul > li { break-inside: avoid; margin-bottom: .5rem; }
.verdict { font-size: 1.3rem; font-weight: 600; margin: 1rem 0; }
@media (prefers-reduced-motion: reduce) { .moving { display: none; } .still { display: block; } }
@media print {
  body { font-size: 10.5pt; } main { max-width: none; padding: 0; }
  .moving { display: none; } .still { display: block; }
  .plots { grid-template-columns: 1fr 1fr; } .small, .animations { grid-template-columns: repeat(4, 1fr); }
  .tiles { grid-template-columns: repeat(4, 1fr); } tr { break-inside: avoid; } h2 { break-after: avoid; }
}
"""
