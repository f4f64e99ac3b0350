"""Recorded episodes, as animations; in runs that were shaped, with what the potential says along them.

The curve is within the pictures (`actors/animation.py`), so that its mark is where they are. Here it is put into words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cluster.report.outcome import Arms
from cluster.report.page import animation, below, count, grid, mark, quiet, section, text
from cluster.runs.run_data import Run, number, read_mapping

SUBJECT, ORDER = "agents", 30
MOST_ANIMATIONS = 12  # more make the file too large to send
MOST_STEPS = 4  # with reward, that are named
CURVES = (
    "Under the pictures, in blue: phi, how sensible the run's potential finds each state; the orange dot is at the "
    "state in the picture. Green lines: steps that the world paid. Grey bars: F = gamma phi(s') - phi(s) of each step, "
    "where phi(s') counts as 0 if the episode ended there by itself."
)


def panel(runs: Sequence[Run], groups: Arms) -> str:
    """The animations, as HTML; "" where none was recorded."""
    each = max(1, MOST_ANIMATIONS // len(runs))
    videos = [[(r, v) for v in r.results.get("videos") or [] if isinstance(v, Mapping)] for r in runs]
    chosen = [item for of_run in videos for item in of_run[:each]][:MOST_ANIMATIONS]
    drawn = [item for r, v in chosen if (item := _animation(r, v, r.name if len(runs) > 1 else ""))]
    if not drawn:
        return ""
    total = sum(map(len, videos))
    note = text(f"{len(drawn)} of {total} recorded episodes are shown.") if len(drawn) < total else ""
    traced = any(_trace(r, v) for r, v in chosen)
    # With goals or a potential there are words in the pictures, which must stay large enough to read.
    kind = "films" if traced or any(r.results.get("goals") for r, _ in chosen) else "animations"
    return section("Episodes", text(CURVES) if traced else "", grid(kind, drawn), note)


def _animation(run: Run, video: Mapping[str, Any], whose: str) -> str:
    path = _file(run, video.get("file"), ".gif")
    if path is None:
        return ""
    mission = str(video.get("mission") or "no mission")
    facts = [whose] if whose else []
    value = number(video.get("return"))
    facts += [f"return {value:.2f}"] if value is not None and not run.score else []
    facts += [f"{count(number(video['length']))} steps"] if "length" in video else []
    facts += [f"seed {video['seed']}"] if "seed" in video else []
    ended = mark("✓ solved", "solved") if video.get("success") else mark("✗ not solved", "failed")
    if run.score:
        points = "–" if value is None else f"{value:,.2f}".rstrip("0").rstrip(".")
        ended = mark(f"{run.score}: {points}")
    trace = _trace(run, video)
    caption = below(mission, ended, quiet(", ".join(facts)), *([quiet(trace)] if trace else []))
    return animation(path, f"{mission}. {trace}" if trace else mission, caption)


def _file(run: Run, name: object, suffix: str) -> Path | None:
    """A file of a run that its results name, if it is there and the run's own."""
    try:
        path = (run.folder / str(name or "")).resolve()
        own = path.suffix == suffix and path.is_file() and path.is_relative_to(run.folder.resolve())
    except (OSError, ValueError):  # no file has such a name
        return None
    return path if own else None


def _trace(run: Run, video: Mapping[str, Any]) -> str:
    """What the potential says along an episode, in words; "" where nothing is known of it."""
    path = _file(run, video.get("trace"), ".json")
    found = read_mapping(path) if path else {}
    phi, reward = (_numbers(found.get(name)) for name in ("phi", "reward"))
    if not phi:
        return ""
    highest, lowest = (phi.index(end(phi)) for end in (max, min))
    said = f"phi: {phi[0]:.3g} at first, {phi[-1]:.3g} at last, "
    if phi[highest] > phi[lowest]:
        said += f"highest {phi[highest]:.3g} (step {highest}), lowest {phi[lowest]:.3g} (step {lowest})"
    else:
        said += "always the same"
    paid = [str(i) for i, value in enumerate(reward, 1) if value]
    if len(paid) > MOST_STEPS:
        return f"{said}; reward: {len(paid)} steps, the first is {paid[0]}"
    return f"{said}; reward: {'steps' if len(paid) > 1 else 'step'} {', '.join(paid)}" if paid else f"{said}; no reward"


def _numbers(column: object) -> list[float]:
    """A column of finite numbers; empty where it is none."""
    found = [number(value) for value in column] if isinstance(column, list) else []
    return [value + 0.0 for value in found if value is not None] if None not in found else []  # no "-0"
