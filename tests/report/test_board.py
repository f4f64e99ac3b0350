"""Crafter's board: a run's score beside published ones, with their sources and with what sets the run apart."""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.metrics.statistics import wilson
from cluster.report import document as report
from cluster.report import plots
from cluster.report.panels import board
from cluster.runs import run_data
from envs.crafter.rules import ACHIEVEMENTS

MakeRun = Callable[..., Path]
Read = Callable[[Path], tuple[str, Any]]
STEPS = 1_003_520  # the last of 49 updates ends beyond a million


def crafter(folder: Path, score: float, env_steps: int = STEPS, **env: Any) -> Path:
    """Make a run folder one of Crafter: rows, configuration and results."""
    path = folder / "metrics.jsonl"
    rates = {f"crafter/{name}": k / 50 for k, name in enumerate(ACHIEVEMENTS)}
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines[1:]:
        line |= {"crafter/score": score} | rates if line["kind"] == "train" else {}
    lines[-1]["env_steps"] = env_steps
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config["env"] = {"id": "crafter/Standard", "observe": None, "length": None, "reward": None, "dying": True} | env
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    status = json.loads((folder / "status.json").read_text()) | {"env_steps": env_steps}
    (folder / "status.json").write_text(json.dumps(status))
    results = json.loads((folder / "stages/evaluate/results.json").read_text())
    low, high = wilson(64, 256)
    held_out = {name: {"n": 256, "rate": 0.25, "low": low, "high": high} for name in ACHIEVEMENTS}
    results["achievements"] = {"score": 25.0, "rates": held_out}
    (folder / "stages/evaluate/results.json").write_text(json.dumps(results))
    return folder


@pytest.mark.usefixtures("undrawn")
def test_the_score_stands_among_the_published_ones_with_their_sources(make_run: MakeRun, read: Read) -> None:
    _, page = read(report.write([crafter(make_run("a"), 16.25)]))
    assert "Crafter's board" in page.text
    told = page.text[page.text.index("Crafter's board") :]
    order = ["human experts", "SPRING", "DLLM", "Achievement Distillation", "Curious Replay", "this run", "PPO, tuned"]
    places = [told.index(name) for name in [*order, "DreamerV3", "random actions"]]
    assert places == sorted(places)
    assert "this run 16.2 pictures this page" in told
    for known in board.PUBLISHED:
        assert f"{known.name} {known.score:.1f} {known.sees} {known.source}" in told
    assert "Captions are privileged information" in told
    assert "instead" not in told
    assert "collect coal 0.0 % 25.0 % [20.1, 30.6]" in told
    assert "wake up 42.0 % 25.0 % [20.1, 30.6]" in told
    assert "env steps were learned from" not in told


def test_bars_are_percentages_of_published_and_of_own_runs(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    real = plots.bars
    monkeypatch.setattr(plots, "bars", lambda *words, **more: seen.append(words) or real(*words, **more))
    runs = [run_data.load(crafter(make_run(f"a{seed}", seed=seed), score)) for seed, score in ((1, 10.0), (2, 20.0))]
    page = board.panel(runs, run_data.arms(runs))
    (name, labels, groups) = seen[0]
    published, ours = (dict(zip(labels, estimates, strict=True)) for _, estimates in groups)
    mine = ours["this run"]
    assert (name, mine.value, mine.low, mine.high) == ("board", pytest.approx(0.15), 0.1, 0.2)
    assert published["DreamerV3"].value == 0.145
    assert published["this run"] is ours["DreamerV3"] is None
    assert "15.0 [10.0, 20.0]" in page.replace("\N{NO-BREAK SPACE}", " ")
    assert "lowest to highest of 2 seeds" in page


@pytest.mark.parametrize(
    ("env", "goals", "steps", "words"),
    [
        ({}, {}, 20_000, "20,000 env steps were learned from, where the board has 1,000,000"),
        ({"length": 400}, {}, STEPS, "env.length=400 is another rule than the board's"),
        ({"reward": "none"}, {}, STEPS, "env.reward=none is another rule"),
        ({}, {"source": "model", "told": False}, STEPS, "a language model was told captions and suggested goals"),
        ({}, {"source": "oracle", "told": True}, STEPS, "goals were rewarded that the game itself knows (oracle)"),
    ],
)
def test_what_sets_a_run_apart_from_the_board_is_told(
    make_run: MakeRun, env: dict[str, Any], goals: dict[str, Any], steps: int, words: str
) -> None:
    run = run_data.load(crafter(make_run("a"), 12.0, steps, **env))
    run.config["method"]["goals"] = goals
    page = html.unescape(board.panel([run], {"": [run]}))
    assert words in page
    assert ("pictures and goals" in page) == bool(goals.get("told"))
    assert ("the agent reads them, also after training" in page) == bool(goals.get("told"))


def test_no_board_where_the_world_is_another(make_run: MakeRun) -> None:
    named = run_data.load(crafter(make_run("a"), 12.0, id="crafter/Named"))
    plain = run_data.load(make_run("b"))
    assert board.panel([named, plain], {"": [named, plain]}) == ""
