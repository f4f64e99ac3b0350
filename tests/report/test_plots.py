"""Labels in figures are shown as they are, whatever they look like."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest

from cluster.metrics.statistics import Estimate
from cluster.report import plots

X = np.arange(3.0)
HALF = Estimate(0.5, 0.4, 0.6)


def texts(svg: str) -> list[str]:
    """What stands in a figure, without the invisible letter before an underscore."""
    return ["".join(node.itertext()).strip().lstrip("\u200b") for node in ElementTree.fromstring(svg).iter("text")]


@pytest.mark.parametrize("label", [r"$\frac$", "$x$ and $y$", "a^2_b", "_run", "<b>&"])
def test_a_label_is_no_formula_and_is_not_left_out(label: str) -> None:
    lines = [plots.Line(label, X, X), plots.Line(f"{label} 2", X, X)]
    curves = texts(plots.curves("a", lines, title=label, x_label="steps"))
    assert {label, f"{label} 2"} <= set(curves)
    groups = [(label, [HALF, HALF]), ("other", [HALF, None])]
    bars = texts(plots.bars("b", [f"{label} row", "row"], groups, title=label))
    assert {label, f"{label} row", "other"} <= set(bars)
    axes = {"x_label": label, "y_label": f"{label} 2"}
    drawn = texts(plots.reliability("c", np.linspace(0, 1, 4), X, X / 3, X / 3, title=label, **axes))
    assert {label, f"{label} 2"} <= set(drawn)


@pytest.mark.parametrize(("second", "middles"), [(None, [0.0, 1.0, 2.0]), (HALF, [-0.2, 0.8, 0.2, 2.2])])
def test_a_row_with_one_bar_has_it_in_its_middle_unless_another_row_has_two(second, middles, monkeypatch) -> None:
    drawn = []
    monkeypatch.setattr(plots, "_svg", lambda figure, *_: drawn.append(figure))
    plots.bars("b", ["one", "two", "three"], [("left", [HALF, HALF, None]), ("right", [second, None, HALF])], title="t")
    bars = [patch for container in drawn[0].axes[0].containers for patch in getattr(container, "patches", [])]
    assert [bar.get_y() + bar.get_height() / 2 for bar in bars] == pytest.approx(middles)


def test_a_long_label_stays_within_the_figure(monkeypatch) -> None:
    drawn = []
    monkeypatch.setattr(plots, "_svg", lambda figure, *_: drawn.append(figure))
    labels = ["experiment=crafter_board_goals, source=model, name=ellm, text=minilm", "a" * 70, "short"]
    plots.bars("b", labels, [("all", [HALF] * 3)], title="t")
    drawn[0].draw_without_rendering()
    shown = drawn[0].axes[0].get_yticklabels()
    assert [label.get_text().replace("\n", " ") for label in shown][::2] == labels[::2]
    assert min(label.get_window_extent().x0 for label in shown) >= 0
    assert drawn[0].axes[0].get_window_extent().width > 0.4 * drawn[0].bbox.width
