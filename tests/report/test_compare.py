"""What differs between two runs, and what the numbers allow to say about it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster.metrics.statistics import newcombe
from cluster.report.compare import Side, changed, compare, final, verdict
from cluster.runs import run_data
from llm_service.errors import UsageError

MakeRun = Callable[..., Path]
Read = Callable[[Path], tuple[str, Any]]
Sweep = Callable[[str, list[str]], Path]


def side(*folders: Path) -> Side:
    return Side(folders[0].name, [run_data.load(folder) for folder in folders])


def test_better_and_worse(make_run: MakeRun) -> None:
    low, high = side(make_run("low", solved=450)), side(make_run("high", solved=500))
    outcome = verdict(low, high)
    assert outcome.difference is not None
    expected = newcombe(450, 512, 500, 512)
    assert (outcome.difference.low, outcome.difference.high) == pytest.approx(expected)
    shown = f"[{100 * expected[0]:.1f}, {100 * expected[1]:.1f}]"
    assert outcome.sentence == f"B is better: +9.8 points {shown}"
    assert verdict(high, low).sentence == f"A is better: +9.8 points {shown}"


def test_no_difference_names_the_episodes(make_run: MakeRun) -> None:
    a, b = side(make_run("a", solved=497)), side(make_run("b", solved=499))
    assert verdict(a, b).sentence.startswith("no difference that 512 episodes can show: +0.4 points [")
    c = side(make_run("c", solved=97, episodes=100))
    assert "512 episodes against 100" in verdict(a, c).sentence


def test_seeds_widen_the_interval(make_run: MakeRun) -> None:
    a = side(*[make_run(f"a{i}", seed=i, solved=n) for i, n in enumerate((400, 450, 500))])
    b = side(*[make_run(f"b{i}", seed=i, solved=n) for i, n in enumerate((430, 480, 505))])
    outcome = verdict(a, b)
    assert outcome.sentence.startswith("no difference that 3 seeds each can show")
    assert "Welch" in outcome.basis
    pooled = newcombe(1350, 1536, 1415, 1536)
    assert pooled[0] > 0, "episodes alone would have claimed a difference"


def test_equal_seeds_fall_back_to_episodes(make_run: MakeRun) -> None:
    a = side(*[make_run(f"a{i}", seed=i, solved=500) for i in range(2)])
    b = side(*[make_run(f"b{i}", seed=i, solved=501) for i in range(2)])
    outcome = verdict(a, b)
    assert outcome.difference is not None
    assert outcome.difference.high > outcome.difference.low
    assert outcome.sentence.startswith("no difference")


def test_no_verdict_without_evaluation_or_on_two_worlds(make_run: MakeRun) -> None:
    a, b = side(make_run("a")), side(make_run("b", evaluated=False))
    assert verdict(a, b).sentence == "no verdict: B has no held-out evaluation"
    c = side(make_run("c", env="babyai/GoTo"))
    assert verdict(a, c).sentence == "no verdict: A was evaluated on babyai/GoToLocal, B on babyai/GoTo"
    assert all(len(row) == 4 for row in final(a, b))


def test_only_differing_settings_are_listed(make_run: MakeRun) -> None:
    a, b = make_run("a"), make_run("b", learning_rate=1e-3)
    text = (b / "config.yaml").read_text().replace("max_steps: 64", "size: 8")
    (b / "config.yaml").write_text(text)
    assert changed(run_data.load(a), run_data.load(b)) == [
        ("env.max_steps", "64", "(absent)"),
        ("learner.learning_rate", "0.0003", "0.001"),
        ("env.size", "(absent)", "8"),
    ]


def test_prints_and_writes(make_run: MakeRun, capsys: pytest.CaptureFixture[str], read: Read) -> None:
    a, b = make_run("a", solved=450), make_run("b", solved=500, learning_rate=1e-3)
    path = compare(a, b)
    printed = capsys.readouterr().out
    assert path == a / "compare-a-vs-b.html"
    assert "B is better: +9.8 points" in printed
    assert "learner.learning_rate" in printed
    assert "actors.n" not in printed
    assert path.name in printed
    source, page = read(path)
    assert source.count("<svg") == 3
    assert "B is better: +9.8 points" in page.text
    assert "87.9 % [84.8, 90.4]" in page.text
    assert "819,200" in page.text


def test_sweeps_over_seeds_are_sides(make_run: MakeRun, read: Read, sweep: Sweep) -> None:
    for i in range(4):
        make_run(f"s{i}", seed=i % 2, solved=480 + 3 * i, learning_rate=(1e-4, 1e-3)[i // 2])
    first, second = sweep("slow", ["s0", "s1"]), sweep("fast", ["s2", "s3"])
    _, page = read(compare(first, second))
    assert "95 % Welch interval over 2 seeds and 2 seeds of training." in page.text
    mixed = sweep("mixed", ["s0", "s2"])
    with pytest.raises(UsageError, match="mixes settings"):
        compare(mixed, first)


def test_crashed_run_can_be_compared(make_run: MakeRun, capsys: pytest.CaptureFixture[str], read: Read) -> None:
    a, b = make_run("a"), make_run("b", evaluated=False, state="crashed")
    (b / "status.json").unlink()
    (b / "metrics.jsonl").write_text(json.dumps({"kind": "train", "env_steps": 5})[:-3])
    read(compare(a, b))
    assert "no verdict: B has no held-out evaluation" in capsys.readouterr().out


def test_options_that_come_with_another_choice_are_not_listed() -> None:
    models: list[dict[str, object]] = [
        {"name": "scripted", "wrong": 0.1, "seed": 0},
        {"name": "transformers", "folder": "a", "dtype": "auto"},
        {"name": "transformers", "folder": "b", "dtype": "auto"},
    ]
    runs = [run_data.Run(Path(), {"llm": model}, {}, {}, [], [], {}) for model in models]
    assert list(run_data.arms(runs)) == ["name=scripted", "folder=a, name=transformers", "folder=b, name=transformers"]
    same = [run_data.Run(Path(), {"llm": {name: 1}}, {}, {}, [], [], {}) for name in "ab"]
    assert list(run_data.arms(same)) == ["a=1, b=None", "a=None, b=1"]
