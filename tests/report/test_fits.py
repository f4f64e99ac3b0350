"""What was fitted on a page: a curve of losses and one of accuracy for each stage that took gradient steps."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from markupsafe import Markup

from cluster.report import document as report
from cluster.report import plots
from cluster.report.panels import learning
from cluster.runs import run_data

MakeRun = Callable[..., Path]
Read = Callable[[Path], tuple[str, Any]]
Figures = dict[str, dict[str, plots.Line]]


def fitted(run: Path, *stages: str, loss: float = 1.0, validated: bool = True) -> Path:
    """Let a run have fitted these stages, three rows each, one after the other; "" is of code that named none."""
    rows = []
    for place, stage in enumerate(stages):
        for step in (10, 20, 30):
            done = 30 * place + step
            row = {"kind": "fit", "env_steps": 32 * done, "version": done, "fit/step": step, "fit/loss": loss / step}
            row |= {"fit/accuracy": step / 100} | ({"stage": stage} if stage else {})
            row |= {"fit/validation_loss": 2 * loss / step, "fit/validation_accuracy": step / 200} if validated else {}
            rows.append(row)
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return run


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> Figures:
    """Lines of each figure that is drawn, by their labels."""
    seen: Figures = {}

    def curves(name: str, drawn: list[plots.Line], **style: Any) -> str:
        seen[name] = {line.label: line for line in drawn}
        return Markup("<svg></svg>")

    monkeypatch.setattr(plots, "curves", curves)
    return seen


def test_every_stage_that_fits_has_its_curves(make_run: MakeRun, figures: Figures) -> None:
    runs = [run_data.load(fitted(make_run("a", rows=0), "encoder", "fit", loss=3.0))]
    assert "Fitting" in learning.panel(runs, run_data.arms(runs))
    assert set(figures) == {"encoder-loss", "encoder-accuracy", "fit-loss", "fit-accuracy"}
    for name in ("encoder", "fit"):
        loss, accuracy = figures[f"{name}-loss"], figures[f"{name}-accuracy"]
        assert loss["training"].x.tolist() == [10, 20, 30]
        assert loss["training"].y.tolist() == [3 / 10, 3 / 20, 3 / 30]
        assert loss["validation"].y.tolist() == [6 / 10, 6 / 20, 6 / 30]
        assert accuracy["training"].y.tolist() == [0.1, 0.2, 0.3]
        assert accuracy["validation"].y.tolist() == [0.05, 0.1, 0.15]


def test_rows_that_name_no_stage_are_left_out(make_run: MakeRun, figures: Figures) -> None:
    runs = [run_data.load(fitted(make_run("a", rows=0), "", ""))]
    assert "Fitting" not in learning.panel(runs, run_data.arms(runs))
    assert not figures


def test_what_is_not_validated_has_a_line_of_training_alone(make_run: MakeRun, figures: Figures) -> None:
    runs = [run_data.load(fitted(make_run("a", rows=0), "fit", validated=False))]
    learning.panel(runs, run_data.arms(runs))
    assert {name: set(lines) for name, lines in figures.items()} == {
        "fit-loss": {"training"}, "fit-accuracy": {"training"},
    }  # fmt: skip


def test_arms_share_a_figure_and_seeds_of_one_a_band(make_run: MakeRun, figures: Figures) -> None:
    alike = [fitted(make_run(f"a{seed}", rows=0, seed=seed), "fit", loss=1.0 + seed) for seed in range(2)]
    other = fitted(make_run("b", rows=0, learning_rate=1.0), "encoder", "fit", loss=5.0)
    runs = [run_data.load(folder) for folder in (*alike, other)]
    page = learning.panel(runs, run_data.arms(runs))
    assert "bands: lowest to highest of 2 seeds" in page
    lines = figures["fit-loss"]
    assert set(lines) == {
        f"learning_rate={rate}: {kind}" for rate in (0.0003, 1.0) for kind in ("validation", "training")
    }
    of = lines["learning_rate=0.0003: training"]
    assert of.low is not None
    assert (of.low[0], of.y[0]) == pytest.approx((1 / 10, 1.5 / 10))
    assert of.colour == 0
    assert lines["learning_rate=1.0: training"].colour == 1
    assert set(figures["encoder-loss"]) == {"learning_rate=1.0: validation", "learning_rate=1.0: training"}


def test_of_many_arms_what_is_held_out_alone_is_drawn(make_run: MakeRun, figures: Figures) -> None:
    runs = [run_data.load(fitted(make_run(str(i), rows=0, learning_rate=i), "fit")) for i in range(4)]
    learning.panel(runs, run_data.arms(runs))
    assert set(figures["fit-loss"]) == {f"learning_rate={i}: validation" for i in range(4)}


@pytest.mark.usefixtures("figures")
def test_a_page_of_a_fit_has_nothing_empty(make_run: MakeRun, read: Read) -> None:
    _, page = read(report.write([fitted(make_run("a", rows=0, evaluated=False), "fit")]))
    assert "Fitting" in page.words
    assert not {"Learning curve", "Throughput and policy lag", "Losses", "Episodes"} & set(page.words)
    assert "There is no" not in page.text
    assert "–" not in page.words  # of tiles
