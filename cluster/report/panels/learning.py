"""Learning curves: of what is trained by acting over env steps, of what is fitted over gradient steps."""

from __future__ import annotations

from collections.abc import Sequence

from cluster.metrics.statistics import band, binned, spread_name
from cluster.report import plots
from cluster.report.outcome import FEW_ARMS, Arms, largest, learning_figures, measure
from cluster.report.page import figure, grid, join, section, text
from cluster.runs.run_data import Run, seeds, series

SUBJECT, ORDER = "agents", 40
FITTED = {"loss": "Loss", "accuracy": "Accuracy"}
"""What is drawn of a fit, by the end of its metric's name."""


def panel(runs: Sequence[Run], groups: Arms) -> str:
    """The sections, as HTML; "" where nothing was recorded."""
    return join(_trained(runs, groups), _fitted(runs, groups))


def _trained(runs: Sequence[Run], groups: Arms) -> str:
    figures, judge = learning_figures(groups), measure(runs)
    if not figures:
        return ""
    if len(most := largest(groups)) == 1:
        interval = judge.spread(most)
        words = f"The band around the validation curve and the whisker at its end: {interval}."
    else:
        words = f"Lines are means over runs, interpolated where all have data; bands: {spread_name(seeds(most))}."
        words += " Thin lines are single runs."
    return section("Learning curve", figures, text(words))


def _fitted(runs: Sequence[Run], groups: Arms) -> str:
    """Two figures for each stage that takes gradient steps on what was recorded."""
    drawn = []
    for stage in dict.fromkeys(stage for run in runs for stage in run.fits):
        for of, what in FITTED.items():
            if lines := _lines(groups, stage, of):
                caption, share = f"{what} over the gradient steps of stage {stage}.", of == "accuracy"
                svg = plots.curves(f"{stage}-{of}", lines, title=caption, x_label="gradient steps", percent=share)
                drawn.append(figure(svg, caption))
    if not drawn:
        return ""
    most = largest(groups)
    words = f"Lines are means over runs; bands: {spread_name(seeds(most))}." if len(most) > 1 else ""
    return section("Fitting", grid("plots", drawn), text(words) if words else "")


def _lines(groups: Arms, stage: str, of: str) -> list[plots.Line]:
    """Of each arm a line for what it is fitted to and one for what is held out; of many arms the latter alone."""
    kinds = {f"fit/validation_{of}": "validation", f"fit/{of}": "training"}
    lines: list[plots.Line] = []
    for i, (arm, runs) in enumerate(groups.items()):
        for k, (key, kind) in enumerate(kinds.items()):
            curves = [series(run.fits.get(stage, ()), key, "fit/step") for run in runs]
            if found := [binned(*curve) for curve in curves if len(curve[0])]:
                x, y, *ends = found[0] if len(found) == 1 else band(found)
                label, colour = f"{arm}: {kind}" if arm else kind, i if len(groups) > 1 else k
                low, high = ends or (None, None)
                lines.append(plots.Line(label, x, y, low, high, colour=colour, dash=k))
    return [line for line in lines if not line.dash] or lines if len(groups) > FEW_ARMS else lines
