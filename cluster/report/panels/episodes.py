"""Recorded episodes, as animations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from cluster.report.outcome import Arms
from cluster.report.page import animation, count, grid, section, text
from cluster.runs.run_data import Run, number

SUBJECT, ORDER = "agents", 30
MOST_ANIMATIONS = 12  # more make the file too large to send


def panel(runs: Sequence[Run], groups: Arms) -> str:
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
