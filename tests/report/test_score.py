"""Where an episode's return says more than success, all that is shown speaks of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from markupsafe import Markup

from cluster.metrics.statistics import Estimate, welch
from cluster.report import document as report
from cluster.report import outcome, plots
from cluster.report.compare import Side, compare, final, kinds, verdict
from cluster.runs import run_data

MakeRun = Callable[..., Path]
Read = Callable[[Path], tuple[str, Any]]
SCORE = "achievements unlocked"


def side(*folders: Path) -> Side:
    return Side(folders[0].name, [run_data.load(folder) for folder in folders])


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, plots.Line], dict[str, Any]]]:
    """Titles, lines by label and styles of the curves that a page asks for."""
    seen: list[tuple[str, dict[str, plots.Line], dict[str, Any]]] = []

    def curves(name: str, drawn: list[plots.Line], *, title: str, **style: Any) -> str:
        seen.append((title, {line.label: line for line in drawn}, style))
        return Markup("<svg></svg>")

    monkeypatch.setattr(plots, "curves", curves)
    return seen


@pytest.mark.usefixtures("undrawn")
def test_report_speaks_of_the_score(make_run: MakeRun, read: Read) -> None:
    _, page = read(report.write([make_run("a", solved=0, rows=20, score=(SCORE, 2.25))]))
    assert "2.25 achievements unlocked in a held-out episode, 95 % bootstrap interval over episodes 2.05 to 2.55," in (
        page.text
    )
    assert "held-out episodes 512" in page.text
    assert "Achievements unlocked in an episode against env steps." in page.text
    assert "achievements unlocked: 0.9" in page.text
    told = page.text.rpartition("}")[2]  # without the style sheet
    for word in ("solved", "uccess", "Wilson", "survive"):
        assert word not in told


def test_curves_are_of_returns(make_run: MakeRun, lines: list[Any]) -> None:
    folder = make_run("a", rows=24, score=(SCORE, 2.25))
    run = run_data.load(folder)
    outcome.learning_figures({"": [run]})
    (title, drawn, style), (over_minutes, *_) = lines
    assert title == "Achievements unlocked in an episode over env steps"
    assert over_minutes.endswith("minutes")
    assert style["zero"]
    assert not style["percent"]
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    validations = [row for row in rows if row["kind"] == "evaluate"]
    for key, values in (("episodic_return", drawn["validation"].y), ("return_low", drawn["validation"].low)):
        assert [row[key] for row in validations] == values.tolist()
    trained = [row["charts/episodic_return"] for row in rows if "charts/episodic_return" in row]
    assert drawn["training"].y.tolist() == trained
    assert [v.item() for v in (drawn["held-out"].y, drawn["held-out"].low, drawn["held-out"].high)] == pytest.approx(
        [2.25, 2.05, 2.55]
    )


def test_validations_without_an_interval_are_a_bare_line(make_run: MakeRun, lines: list[Any]) -> None:
    folder = make_run("a", rows=24, score=(SCORE, 2.25))
    path = folder / "metrics.jsonl"
    path.write_text(path.read_text().replace("return_low", "before"))
    outcome.learning_figures({"": [run_data.load(folder)]})
    assert lines[0][1]["validation"].low is None


@pytest.mark.usefixtures("undrawn")
def test_run_without_evaluation_knows_its_score(make_run: MakeRun, read: Read) -> None:
    _, page = read(report.write([make_run("a", evaluated=False, score=(SCORE, 0.0))]))
    assert "There is no finished evaluate stage, and so no held-out achievements unlocked." in page.text
    assert "Achievements unlocked in an episode against minutes." in page.text


@pytest.mark.usefixtures("undrawn")
def test_a_return_is_a_score_like_others(make_run: MakeRun, read: Read, edit: Callable[..., None]) -> None:
    """Of worlds that tell no success: nothing on the page says that nothing was solved."""
    folder = make_run("a", solved=0, rows=20, score=("return", 229.41))
    edit(folder, "stages/evaluate/results.json", lambda found: found["videos"][0].update({"return": 443.0}))
    _, page = read(report.write([folder]))
    assert "229.41 return in a held-out episode, 95 % bootstrap interval over episodes 229.21 to 229.71," in page.text
    assert "return: 443 " in page.text
    assert "return: 0.8 " in page.text
    assert "solved" not in page.text.rpartition("}")[2]
    _, page = read(report.write([make_run("b", evaluated=False, score=("return", 0.0))]))
    assert "There is no finished evaluate stage, and so no held-out return." in page.text


@pytest.mark.usefixtures("undrawn")
def test_many_settings_are_a_table_of_scores(make_run: MakeRun, read: Read) -> None:
    runs = [make_run(f"s{i}", rows=2, learning_rate=i * 1e-4, score=(SCORE, 2.0 + i)) for i in range(4)]
    _, page = read(report.write(runs))
    assert "Held-out achievements unlocked" in page.text
    assert "learning_rate=0.0002 4.00 [3.80, 4.30] 1" in page.text


@pytest.mark.usefixtures("undrawn")
def test_runs_of_different_scores_are_judged_by_success(make_run: MakeRun, read: Read) -> None:
    with_score, without = make_run("a", rows=2, score=(SCORE, 2.0)), make_run("b", rows=2, learning_rate=1.0)
    assert outcome.measure([run_data.load(with_score), run_data.load(without)]) == outcome.Measure()
    _, page = read(report.write([with_score, without]))
    assert "2.00 achievements unlocked in a held-out episode" in page.text
    assert "97.1 % of held-out episodes solved" in page.text


def test_comparison_is_about_the_score(make_run: MakeRun) -> None:
    a, b = side(make_run("a", score=(SCORE, 2.0))), side(make_run("b", score=(SCORE, 3.0)))
    half = np.hypot(0.2, 0.3)
    shown = f"[{1 - half:.2f}, {1 + half:.2f}]"
    assert verdict(a, b).sentence == f"B is better: +1.00 achievements unlocked {shown}"
    assert verdict(b, a).sentence == f"A is better: +1.00 achievements unlocked {shown}"
    assert "95 % bootstrap interval over episodes." in verdict(a, b).basis
    rows = final(a, b)
    assert rows[0] == ("held-out achievements unlocked", "2.00 [1.80, 2.30]", "3.00 [2.80, 3.30]", f"+1.00 {shown}")
    assert not [row for row in rows if "success" in row[0] or row[0] == "return"]
    assert kinds(a, b) == []
    near = side(make_run("c", score=(SCORE, 2.1)))
    assert verdict(a, near).sentence.startswith("no difference that 512 episodes can show: +0.10 achievements unlocked")


def test_seeds_are_compared_by_their_spread(make_run: MakeRun) -> None:
    means = {"a": (2.0, 2.4, 2.2), "b": (3.0, 3.1, 3.5)}
    a, b = (side(*[make_run(f"{n}{i}", seed=i, score=(SCORE, m)) for i, m in enumerate(of)]) for n, of in means.items())
    expected = welch(*means.values())
    assert verdict(a, b).difference == expected
    assert final(a, b)[0][1] == "2.20 [2.00, 2.40]"


def test_one_seed_against_two_pools_episodes(make_run: MakeRun) -> None:
    a = side(*[make_run(f"a{i}", seed=i, score=(SCORE, 2.0 + i)) for i in range(2)])
    b = side(make_run("b", score=(SCORE, 4.0)))
    found = verdict(a, b).difference
    pooled = Estimate(2.5, 2.5 - np.hypot(0.1, 0.1), 2.5 + np.hypot(0.15, 0.15))
    assert found is not None
    assert (found.value, found.n) == (1.5, 3 * 512)
    assert found.low == pytest.approx(1.5 - np.hypot(0.2, pooled.high - 2.5))
    assert found.high == pytest.approx(1.5 + np.hypot(0.3, 2.5 - pooled.low))


def test_different_scores_have_no_verdict(make_run: MakeRun) -> None:
    a, b = side(make_run("a", score=(SCORE, 2.0))), side(make_run("b"))
    assert verdict(a, b).sentence == "no verdict: A is judged by achievements unlocked, B by success"


@pytest.mark.usefixtures("undrawn")
def test_page_of_a_comparison(make_run: MakeRun, read: Read, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = make_run("a", rows=4, score=(SCORE, 2.0)), make_run("b", rows=4, score=(SCORE, 3.0))
    _, page = read(compare(a, b))
    assert "B is better: +1.00 achievements unlocked" in page.text
    assert "Brackets of A and B: 95 % bootstrap interval over episodes." in page.text
    assert "Success" not in page.text
    assert "B is better: +1.00 achievements unlocked" in capsys.readouterr().out
