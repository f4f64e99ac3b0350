"""Trials on a page: a line and a row for each arm, controls under their own name, runs of one arm as further seeds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from markupsafe import Markup

from cluster.metrics.trials import lead, retrieved, summary
from cluster.report import document as report
from cluster.report import plots
from cluster.report.panels import trials
from cluster.runs import run_data

MakeRun = Callable[..., Path]
Read = Callable[[Path], tuple[str, Any]]


def returns(rise: float, seed: int, seeds: int = 3, tasks: int = 8, count: int = 12) -> np.ndarray[Any, Any]:
    """Returns that rise from 5 on by so much, with chance of their own."""
    curve = 5 + rise * (1 - np.exp(-np.arange(count) / 3))
    noise = np.random.default_rng(seed).normal(0, 1, (seeds, tasks, count))
    return (curve + noise).astype(np.float32)


def told(run: Path, arm: str, memory: str, rise: float, seed: int = 0, stage: str = "trials", **shape: int) -> Path:
    """Let a run have a stage of trials."""
    found = {"return": returns(rise, seed, **shape), "task": np.arange(8)}
    if arm == "radt" and memory != "none":
        some = np.broadcast_to(np.arange(12) > 0, found["return"].shape).astype(np.float64, order="C")
        found |= {"retrieved.queries": 4 * some, "retrieved.found": 4 * some, "retrieved.similarity": 3.6 * some}
        found |= {"retrieved.return": 80 * some, "retrieved.age": 8 * some, "retrieved.task": 4 * some}
    place = run / "stages" / stage
    place.mkdir(parents=True)
    (place / "returns.safetensors").write_bytes(safetensors.numpy.save(found))
    (place / "results.json").write_text(json.dumps({"arm": arm, "memory": memory}))
    return run


Figures = dict[str, list[plots.Line]]


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> Figures:
    """Lines of each figure that is drawn, by its name."""
    seen: Figures = {}

    def curves(name: str, drawn: list[plots.Line], **style: Any) -> str:
        seen[name] = drawn
        return Markup("<svg></svg>")

    monkeypatch.setattr(plots, "curves", curves)
    return seen


def labelled(drawn: list[plots.Line]) -> dict[str, plots.Line]:
    """Lines by what they are called; thin ones are not."""
    return {line.label: line for line in drawn if not line.faint}


def test_each_arm_has_its_line_and_its_figures(make_run: MakeRun, figures: Figures) -> None:
    folders = [told(make_run("a", learning_rate=1e-3), "radt", "own", 30), told(make_run("b"), "dt", "none", 1)]
    told(folders[0], "radt", "others", 1, stage="trials-1")
    told(folders[0], "radt", "none", 1, stage="trials-2")
    runs = [run_data.load(folder) for folder in folders]
    page = trials.panel(runs, run_data.arms(runs))
    lines = labelled(figures["trials"])
    assert set(lines) == {"radt", "radt, memories of others", "radt, no memory", "dt"}
    expected, line = returns(30, 0), lines["radt"]
    np.testing.assert_array_equal(line.x, np.arange(1, 13))
    np.testing.assert_allclose(line.y, expected.mean((0, 1), dtype=np.float64))
    assert line.low is not None
    assert line.high is not None
    assert ((line.low < line.y) & (line.y < line.high)).all()
    whole = summary(expected)
    for name in ("first", "tenth", "last", "area", "iqm"):
        assert f"{whole[name]['mean']:.2f} [" in page
    thin = [line for line in figures["trials"] if line.faint]
    assert [line.colour for line in thin] == [line.colour for line in lines.values()]
    np.testing.assert_array_equal(thin[0].y, whole["curve"]["iqm"])
    assert "8 tasks, 3 seeds each" in page
    assert "trials ago" in page
    assert page.count(">0.90<") == 2 * 3  # similarity of trials 2, 10 and 12: those without a memory have no rows


def test_the_first_arm_is_compared_with_each_other_one(make_run: MakeRun, figures: Figures) -> None:
    """Task by task: what tasks differ by does not widen the interval."""
    folders = [told(make_run(name), arm, "own", rise) for name, arm, rise in (("a", "radt", 30), ("b", "dt", 28))]
    one, other = returns(30, 0), returns(28, 0)  # of the same chance
    easy = np.arange(8, dtype=np.float32)[:, None]
    found = lead(one + 100 * easy, other + 100 * easy)
    assert found is not None
    assert found["low"] == pytest.approx(found["mean"], rel=1e-3)
    assert found["mean"] == pytest.approx((one - other)[:, :, -1].mean(), rel=1e-3)
    unpaired = lead(one, returns(28, 5))
    assert unpaired is not None
    assert unpaired["low"] < unpaired["mean"] < unpaired["high"]
    assert lead(one, other[1:]) is None
    runs = [run_data.load(folder) for folder in folders]
    page = trials.panel(runs, run_data.arms(runs))
    assert "radt less this, last" in page
    assert f"{(one - other)[:, :, -1].mean():.2f} [" in page
    alone = trials.panel(runs[:1], run_data.arms(runs[:1]))
    assert "less this" not in alone


def test_what_was_retrieved_is_drawn_over_trials_in_the_colours_of_the_arms(
    make_run: MakeRun, figures: Figures
) -> None:
    folders = [told(make_run("a", learning_rate=1e-3), "dt", "none", 1), told(make_run("b"), "radt", "own", 30)]
    told(folders[1], "radt", "others", 1, stage="trials-1")
    runs = [run_data.load(folder) for folder in folders]
    assert "What was retrieved" in trials.panel(runs, run_data.arms(runs))
    expected = {"similarity": 0.9, "return": 20.0, "age": 2.0, "found": 1.0}
    names = {line.colour: name for name, line in labelled(figures["trials"]).items()}
    for key, value in expected.items():
        lines = {names[line.colour]: line for line in figures[f"retrieved-{key}"]}
        assert set(lines) == {"radt", "radt, memories of others"}
        np.testing.assert_allclose(lines["radt"].y, [np.nan, *[value] * 11])  # nothing is there to find in the first
    runs = runs[:1]
    assert "What was retrieved" not in trials.panel(runs, run_data.arms(runs))


@pytest.mark.parametrize(
    ("arm", "memory", "words"),
    [("radt", "own", "a memory of its own"), ("radt", "others", "memories of others"), ("ad", "none", "no memory")],
)
@pytest.mark.usefixtures("figures")
def test_the_headline_is_the_first_and_the_last_trial(
    make_run: MakeRun, read: Read, arm: str, memory: str, words: str
) -> None:
    run = told(make_run("a", rows=0, evaluated=False), arm, memory, 30)
    told(run, arm, "none", 1, stage="trials-1")
    _, page = read(report.write([run]))
    first, last = (summary(returns(30, 0))[name] for name in ("first", "last"))
    assert f"{first['mean']:.2f} → {last['mean']:.2f}" in page.text
    before, after = (f"{at['mean']:.2f} ({at['low']:.2f} to {at['high']:.2f})" for at in (first, last))
    assert f"return in an episode: {before} in the first trial, {after} in trial 12, without" in page.text
    assert f"Arm {arm}, {words}." in page.text
    assert "no finished evaluate stage" not in page.text


@pytest.mark.usefixtures("figures")
def test_each_of_a_few_arms_has_its_headline_and_many_have_the_table_alone(make_run: MakeRun, read: Read) -> None:
    runs = [
        told(make_run(str(i), rows=0, evaluated=False, learning_rate=i), "dt", "none", 10 * i, seed=i) for i in range(4)
    ]
    assert read(report.write(runs[:3]))[1].text.count("→") == 3
    _, page = read(report.write(runs))
    assert "→" not in page.text
    assert "Held-out" not in page.text
    assert "dt: learning_rate=3" in page.text


def test_runs_of_one_arm_are_further_seeds(make_run: MakeRun, figures: Figures) -> None:
    folders = [told(make_run(f"run-{seed}", seed=seed), "ad", "none", 10, seed) for seed in range(2)]
    runs = [run_data.load(folder) for folder in folders]
    assert "6 seeds each" in trials.panel(runs, run_data.arms(runs))
    both = np.concatenate([returns(10, seed) for seed in range(2)])
    np.testing.assert_allclose(labelled(figures["trials"])["ad"].y, both.mean((0, 1), dtype=np.float64))


def test_settings_are_told_where_arms_are_called_alike(make_run: MakeRun, figures: Figures) -> None:
    folders = [told(make_run(str(i), learning_rate=rate), "dt", "none", 10) for i, rate in enumerate((1e-3, 1e-4))]
    runs = [run_data.load(folder) for folder in folders]
    trials.panel(runs, run_data.arms(runs))
    lines = labelled(figures["trials"])
    assert len(lines) == 2
    assert all(label.startswith("dt: ") and "learning_rate" in label for label in lines)


def test_a_page_draws_them(make_run: MakeRun, read: Read) -> None:
    _, page = read(report.write([told(make_run("a"), "radt", "own", 30)]))
    assert "Mean return of an episode in each trial" in page.text
    assert "95 % stratified bootstrap over seeds and tasks" in page.text


def test_without_trials_there_is_no_panel(make_run: MakeRun) -> None:
    runs = [run_data.load(make_run("a"))]
    assert trials.panel(runs, run_data.arms(runs)) == ""


def test_what_is_told_of_looking_is_weighed_by_queries() -> None:
    arrays = {
        "retrieved.queries": np.array([[[0.0, 4.0]], [[0.0, 2.0]]]),
        "retrieved.found": np.array([[[0.0, 2.0]], [[0.0, 1.0]]]),
        "retrieved.age": np.array([[[0.0, 8.0]], [[0.0, 1.0]]]),
    }
    assert retrieved(arrays) == {"found": [None, 0.5], "age": [None, 3.0]}
    assert retrieved({"return": np.zeros((1, 1, 1))}) == {}
