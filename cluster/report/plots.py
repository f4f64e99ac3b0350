"""Figures as SVG strings that can be pasted into a page: lines with bands, and bars with intervals.

Text stays text (the page's font, searchable, sharp in print), and no `pyplot` state is touched: figures are plain
objects, so reports can be drawn from any thread. A figure is drawn about as wide as a phone in portrait, in points;
the page scales it up on wider screens, so the letters are readable on both.
"""

from __future__ import annotations

import html
import io
import math
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from cluster.metrics.statistics import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#444444")
"""Okabe and Ito's palette without yellow, which is too pale on white: told apart by colour-blind eyes."""
DASHES = ("-", (0, (5, 1.6)), (0, (1.2, 1.2)), (0, (5, 1.2, 1.2, 1.2)))
"""Second mark of a line besides its colour, for print in grey."""

WIDE = (4.9, 2.9)  # inches: one or two a row
SMALL = (2.4, 1.75)  # inches: small multiples
LABEL = 32
"""Characters in a line of a bar's label: more would leave no room for the bar."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Line:
    """One line of a figure.

    low, high: ends of the band around y, or of the whisker where there is one point only.
    colour: index into `COLOURS`; dash: index into `DASHES`.
    faint: a thin line behind the others, without a legend entry (single seeds).
    """

    label: str
    x: Array
    y: Array
    low: Array | None = None
    high: Array | None = None
    colour: int = 0
    dash: int = 0
    marker: str = ""
    faint: bool = False


def curves(
    name: str,
    lines: Sequence[Line],
    *,
    title: str,
    x_label: str,
    percent: bool = False,
    zero: bool = False,
    size: tuple[float, float] = WIDE,
) -> Markup:
    """Lines over a common x.

    Args:
        name: prefix of the ids inside the SVG; unique on the page.
        title: what is seen, for those who cannot see it; the visible caption belongs to the page.
        percent: y is a share in [0, 1], drawn as 0 to 100 %.
        zero: the y axis starts at zero (rates per second, lags).
        size: width and height in inches.
    """
    figure, axes = _figure(size)
    for line in lines:
        _draw(axes, line)
    axes.set_xlabel(x_label)
    axes.xaxis.set_major_formatter(_steps)
    if percent:
        axes.set_ylim(-0.02, 1.02)
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    elif zero:
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(_steps)
    if size == SMALL:
        axes.locator_params(nbins=4)
        axes.locator_params(axis="x", integer=True)
    if len({line.label for line in lines if not line.faint}) > 1:
        _legend(figure, axes)
    return _svg(figure, name, title)


def bars(
    name: str, labels: Sequence[str], groups: Sequence[tuple[str, Sequence[Estimate | None]]], *, title: str
) -> Markup:
    """Horizontal bars of shares in [0, 1] with their intervals: one row a label, one bar a group.

    name, title: as in `curves`.
    groups: (label, one estimate for each of `labels`, None where there is none). If no label has two, groups are only
        colours, and each row has one bar in its middle.
    """
    most = max((sum(e is not None for e in row) for row in zip(*(of for _, of in groups), strict=True)), default=1)
    side_by_side = len(groups) if most > 1 else 1
    height = 0.8 / side_by_side
    wrapped = ["\n".join(textwrap.wrap(label, LABEL)) for label in labels]  # a longer one would lie outside the figure
    lines = max((label.count("\n") + 1 for label in wrapped), default=1)
    figure, axes = _figure((WIDE[0], 0.75 + 0.32 * len(labels) * max(1.0, 0.6 * side_by_side, 0.6 * lines)))
    rows = np.arange(len(labels), dtype=np.float64)
    for g, (label, estimates) in enumerate(groups):
        present = [i for i, estimate in enumerate(estimates) if estimate is not None]
        found = [estimate for estimate in estimates if estimate is not None]
        values = np.array([e.value for e in found])
        place = rows[present] + (g % side_by_side - (side_by_side - 1) / 2) * height
        axes.barh(place, values, height * 0.85, color=COLOURS[g % len(COLOURS)], alpha=0.75, label=_shown(label))
        ends = np.array([[max(0.0, e.value - e.low), max(0.0, e.high - e.value)] for e in found]).reshape(-1, 2)
        axes.errorbar(values, place, xerr=ends.T, fmt="none", ecolor="#222222", elinewidth=1.1, capsize=2.5)
    axes.set_yticks(rows, wrapped)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.02)
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    axes.grid(visible=False, axis="y")
    if len(groups) > 1:
        _legend(figure, axes)
    return _svg(figure, name, title)


def reliability(
    name: str, edges: Array, counts: Array, said: Array, came: Array, *, title: str, x_label: str, y_label: str
) -> Markup:
    """What was said to be likely and what came true, in [0, 1], over the share of all answers that each bin has.

    name, title: as in `curves`.
    edges, counts: [B + 1] and [B]; said, came: means of bins [B], NaN in those that are empty.
    """
    figure, axes = _figure((WIDE[0], 3.6))
    shares = counts / max(1.0, float(counts.sum()))
    axes.bar(edges[:-1], shares, np.diff(edges), align="edge", color=COLOURS[6], alpha=0.18, label="share of answers")
    axes.plot([0, 1], [0, 1], color=COLOURS[6], linestyle=DASHES[2], linewidth=1, label="if it were right")
    there = counts > 0
    axes.plot(said[there], came[there], color=COLOURS[0], marker="o", ms=4.5, label="answers", zorder=3)
    for x, y, count in zip(said[there], came[there], counts[there], strict=True):
        below = y > 0.9  # else the number would leave the picture
        axes.annotate(
            f"{count:,.0f}", (x, y), (0, -11 if below else 6), textcoords="offset points", ha="center", fontsize=7.5,
            color="#222222",
        )  # fmt: skip
    axes.set_xlim(-0.03, 1.03)
    axes.set_ylim(-0.02, 1.04)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    _legend(figure, axes)
    return _svg(figure, name, title)


def _draw(axes: Axes, line: Line) -> None:
    colour: Any = COLOURS[line.colour % len(COLOURS)]
    if line.faint:
        axes.plot(line.x, line.y, color=colour, linewidth=0.6, alpha=0.45, zorder=1)
        return
    if len(line.x) == 1 and line.low is not None and line.high is not None:
        ends = [np.maximum(0, line.y - line.low), np.maximum(0, line.high - line.y)]
        axes.errorbar(
            line.x, line.y, yerr=ends, color=colour, fmt=line.marker or "o", ms=5, capsize=3, label=_shown(line.label)
        )
        return
    # A single point would be an invisible line.
    marker = line.marker or ("o" if len(line.x) == 1 else "")
    dash = DASHES[line.dash % len(DASHES)]
    axes.plot(line.x, line.y, color=colour, linestyle=dash, marker=marker, ms=3, label=_shown(line.label), zorder=3)
    if line.low is not None and line.high is not None:
        axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.18, linewidth=0, zorder=2)


def _shown(label: str) -> str:
    """The label with an invisible first letter where it would begin with _, as a run may: legends leave those out."""
    return f"\u200b{label}" if label.startswith("_") else label


def _steps(value: float, _position: float = 0) -> str:
    """1500000 -> 1.5 M: short enough for an axis."""
    for size, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{letter}"
    return f"{value:.4g}"


def _figure(size: tuple[float, float]) -> tuple[Figure, Axes]:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    small = size == SMALL
    with rc_context({"font.size": 7.5 if small else 9, "axes.linewidth": 0.7, "lines.linewidth": 1.5}):
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.add_subplot()
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.tick_params(length=2.5, width=0.7)
        axes.margins(x=0.02)
    return figure, axes


def _legend(figure: Figure, axes: Axes) -> None:
    """Above the axes, so that it never covers a curve; the figure grows by the rows that it needs."""
    labels = axes.get_legend_handles_labels()[1]
    columns = max(1, min(len(labels), 54 // (max(map(len, labels)) + 8)))
    figure.set_figheight(figure.get_figheight() + 0.16 * (math.ceil(len(labels) / columns) - 1))
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, frameon=False, fontsize=8.5, borderaxespad=0.1,
        columnspacing=1.2, handlelength=2.2, handletextpad=0.5,
    )  # fmt: skip


def _svg(figure: Figure, name: str, title: str) -> Markup:
    """The figure as an `<svg>` element without a size, a namespace or ids that another figure might have too."""
    from matplotlib import rc_context
    from matplotlib.text import Text

    for label in figure.findobj(Text):
        label.set_parse_math(False)  # a name with dollar signs in it is a name, not a formula that may be malformed
    out = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": name, "text.parse_math": False}):
        figure.savefig(out, format="svg", transparent=True)
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", text, flags=re.DOTALL)
    text = text.replace("xlink:href=", "href=")
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r'(url\(|href=")#', rf"\1#{name}-", text)
    box = re.search(r'viewBox="[^"]*"', text)
    opening = f'<svg role="img" aria-label="{html.escape(title)}" {box.group() if box else ""}>'
    return Markup(re.sub(r"^<svg[^>]*>", lambda _: opening, text).strip())
