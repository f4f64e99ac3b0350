"""What a report says of goals: shares in words, a row a goal, curves, and what the language model was asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from markupsafe import Markup

from actors.wrappers.goals import COUNTS
from cluster.report import document as report
from cluster.report import plots
from cluster.report.panels.goals import MOST_GOALS
from cluster.stages._shared import tally
from llm_service.records import Source

MakeRun = Callable[..., Path]
Read = Callable[[Path], tuple[str, Any]]
Edit = Callable[[Path, str, Callable[[Any], None]], None]
RESULTS = "stages/evaluate/results.json"
COUNTED = {"chop <tree>": [30, 10, 0, 12, 10, 9, 60, 30], "eat rock": [0, 0, 60, 0, 20, 0, 0, 0]}


@pytest.fixture
def given(make_run: MakeRun, edit: Edit) -> Callable[..., Path]:
    """Makes a run with goals: counts by goal, in the order of `COUNTS`."""

    def make(name: str, counts: dict[str, list[int]] | None = None, source: str = "model", **facts: Any) -> Path:
        folder = make_run(name, rows=8, **facts)
        counts = COUNTED if counts is None else counts
        goals = {
            "reward": {"mean": 1.5, "low": 1.25, "high": 1.75},
            "shares": tally.shares(counts), "table": tally.table(counts),
        }  # fmt: skip
        if (folder / RESULTS).exists():
            edit(folder, RESULTS, lambda results: results.update(goals=goals))
        rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        for row in rows:
            if row["kind"] == "train":
                row |= {"goals/good": 0.6, "goals/early": 0.3, "goals/senseless": 0.1, "goals/achieved_if_told": 0.25}
                row |= {"goals/away": 0.02 * (row["version"] % 2), "rewards/goal": 0.01 * row["version"]}
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        config = yaml.safe_load((folder / "config.yaml").read_text()) | {
            "method": {"name": "ellm", "goals": {"source": source}}
        }
        (folder / "config.yaml").write_text(yaml.safe_dump(config))
        return folder

    return make


@pytest.mark.usefixtures("undrawn")
def test_shares_are_sentences(given: Callable[..., Path], read: Read) -> None:
    folder = given("a")
    source, page = read(report.write([folder]))
    for sentence in (
        "In held-out episodes, 30.0 % of the suggestions made sense when they stood, 10.0 % came too early, and 60.0 % "
        "are no goals of this world.",
        "30.0 % of the goals told in an episode were achieved in it.",
        "50.0 % of what made sense was suggested.",
        "The reward for goals is 1.50 an episode (95 % bootstrap interval over episodes 1.25 to 1.75).",
        "While training, 1.0 % of the steps had no answer of the language model.",
    ):
        assert sentence in page.text
    assert "chop <tree> 30 10 0 9 of 10 12 eat rock 0 0 60 0 of 20 0" in page.text
    assert "<tree>" not in source
    assert "more goals" not in page.text


@pytest.mark.usefixtures("undrawn")
def test_no_goals_no_section(make_run: MakeRun, read: Read) -> None:
    _, page = read(report.write([make_run("a", rows=2)]))
    assert "Goals" not in page.words
    assert "Language model" not in page.words


@pytest.mark.usefixtures("undrawn")
def test_only_runs_that_ask_can_lack_answers(given: Callable[..., Path], read: Read) -> None:
    _, page = read(report.write([given("a", source="oracle")]))
    assert "made sense when they stood" in page.text
    assert "no answer" not in page.text


@pytest.mark.usefixtures("undrawn")
def test_world_that_publishes_no_goals(given: Callable[..., Path], read: Read) -> None:
    """There is nobody to say what makes sense; what was achieved is known all the same."""
    _, page = read(report.write([given("a", {"dance": [0, 0, 0, 3, 4, 1, 0, 0]})]))
    assert "In held-out episodes, 25.0 % of the goals told in an episode were achieved in it." in page.text
    assert "suggestions made sense" not in page.text
    assert "dance 0 0 0 1 of 4 3" in page.text


@pytest.mark.usefixtures("undrawn")
def test_run_without_evaluation_shows_training(given: Callable[..., Path], read: Read) -> None:
    folder = given("a", evaluated=False)
    _, page = read(report.write([folder]))
    assert "While training, 60.0 % of the suggestions made sense" in page.text
    assert "By goal" not in page.text
    _, page = read(report.write([folder, given("b", seed=1)]))
    assert "In held-out episodes, 30.0 % of the suggestions made sense" in page.text, "training is not averaged in"


@pytest.mark.usefixtures("undrawn")
def test_long_tables_are_cut_and_the_rest_is_counted(given: Callable[..., Path], read: Read) -> None:
    many = {f"goal {i:02d}": [1, 0, 0, 40 - i, 1, 1, 1, 1] for i in range(MOST_GOALS + 3)}
    _, page = read(report.write([given("a", many)]))
    assert page.text.index("goal 00") < page.text.index("goal 01") < page.text.index(f"goal {MOST_GOALS - 1}")
    assert f"goal {MOST_GOALS}" not in page.text
    assert "3 more goals were suggested or possible, with 27 payments in all." in page.text


def test_seeds_are_one(given: Callable[..., Path], read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts are summed, shares averaged, curves have a band."""
    lines: dict[str, plots.Line] = {}

    def curves(name: str, drawn: list[plots.Line], **_: Any) -> str:
        lines.update({f"{name}/{line.label}": line for line in drawn})
        return Markup("<svg></svg>")

    monkeypatch.setattr(plots, "curves", curves)
    other = {"chop <tree>": [10, 0, 0, 3, 10, 3, 10, 10]}
    _, page = read(report.write([given("a", seed=0), given("b", other, seed=1)]))
    assert "65.0 % of the suggestions made sense when they stood" in page.text
    assert "chop <tree> 40 10 0 12 of 20 15 eat rock 0 0 60 0 of 20 0" in page.text
    assert "(lowest to highest of 2 seeds 1.50 to 1.50)" in page.text
    good, paid = lines["goals-0/made sense"], lines["goal-reward-0/reward for goals"]
    assert good.low is not None
    assert good.y == pytest.approx(0.6)
    assert paid.y[-1] == pytest.approx(0.08)
    assert {"goals-0/too early", "goals-0/senseless"} < set(lines)


@pytest.mark.usefixtures("undrawn")
def test_settings_have_parts_of_their_own_until_they_are_many(given: Callable[..., Path], read: Read) -> None:
    runs = [given(f"r{i}", learning_rate=i * 1e-4) for i in range(4)]
    _, page = read(report.write(runs[:2]))
    assert page.text.count("made sense when they stood") == 2
    _, page = read(report.write(runs))
    assert "made sense when they stood" not in page.text
    assert "learning_rate=0.0001 30.0 % 10.0 % 60.0 % 30.0 % 50.0 %" in page.text


def test_drawn_page_has_the_figures(given: Callable[..., Path], read: Read) -> None:
    source, page = read(report.write([given("a")]))
    assert "made sense" in page.words
    assert "Reward for goals per step of training." in page.text
    assert 'class="films"' in source, "words in pictures need room"
    ids = [value for name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("strange", [None, 3, [], {"table": 7, "shares": "x"}, {"table": [{}, {"goal": 1}]}])
def test_strange_results_are_no_goals(given: Callable[..., Path], edit: Edit, read: Read, strange: Any) -> None:
    folder = given("a")
    edit(folder, RESULTS, lambda results: results.update(goals=strange, language_model=strange))
    _, page = read(report.write([folder]))
    assert "By goal" not in page.words


@pytest.mark.usefixtures("undrawn")
def test_what_the_language_model_was_asked(make_run: MakeRun, edit: Edit, read: Read) -> None:
    runs = [make_run(f"r{i}", rows=2, seed=i) for i in range(2)]
    numbers = {f"answers_{source.name.lower()}": 100.0 + source for source in Source}
    numbers |= {"answers_malformed": 4.0, "answers_away": 0.0, "calls": 1200.0, "tokens": 0.0, "dollars": 0.0}
    for folder in runs:
        edit(folder, RESULTS, lambda results: results.update(language_model=numbers))
    text = read(report.write(runs[:1]))[1].text
    assert (
        "514 questions: 100 answered by the model itself, 101 from memory, 102 from Redis, 103 from the journal, "
        "104 with an equal question under way, 4 malformed. The model was called 1,200 times."
    ) in text
    assert "tokens" not in text
    numbers |= {"tokens": 5e5, "dollars": 0.125}
    for folder in runs:
        edit(folder, RESULTS, lambda results: results.update(language_model=numbers))
    text = read(report.write(runs))[1].text
    assert "1,028 questions: 200 answered by the model itself" in text
    assert "That took 1,000,000 tokens and 0.25 dollars." in text


def test_counts_are_those_of_actors() -> None:
    """The page reads them by name, so that it need not import what actors import."""
    assert {"good", "early", "senseless", "paid", "episodes_told", "episodes_paid"} <= set(COUNTS)
