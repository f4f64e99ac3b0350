"""What a report says of asking about a world once, and of runs that were shaped by the answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.report import document as report

MakeRun = Callable[..., Path]
Read = Callable[[Path], tuple[str, Any]]
CODE = "def potential(observations, actions):\n    return 1.0 * (len(actions) < 3)"


def configure(folder: Path, **parts: Any) -> None:
    config = yaml.safe_load((folder / "config.yaml").read_text()) | parts
    (folder / "config.yaml").write_text(yaml.safe_dump(config))


def write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def asked(make_run: MakeRun) -> Callable[..., Path]:
    """Makes a run that has asked: three programs, of which the second was chosen."""

    def make(name: str, llm: str = "scripted") -> Path:
        folder = make_run(name, rows=4, evaluated=False, env="babyai/Text-GoToLocal-Pretraining-S20")
        configure(folder, method={"name": "bk"}, llm={"name": llm})
        label, prefer = folder / "stages" / "label", folder / "stages" / "prefer"
        label.mkdir(parents=True)
        prefer.mkdir()
        paid = {"calls": 600, "prompt_tokens": 90_000, "completion_tokens": 3_000, "dollars": 0.75}
        chosen = {
            "hash": "beef" * 16, "round": 1, "variant": 0, "agreement_where_chosen": 0.75, "agreement": 0.625,
            "pairs": 144, "spearman_with_return": 0.25,
        }  # fmt: skip
        results = {
            "segments": {"drawn": 400, "of_steps": 20_480},
            "preferences": {
                "asked": 300, "answered": 288, "failed": 12, "ties": 40, "inconsistent": 0.125,
                "agreement_with_return": 0.55,
            },
            "programs": {"asked": 3, "answered": 2, "failed": 1, "distinct": 2, "chosen": chosen},
            "goals": {"asked": 30, "answered": 30, "failed": 0, "distinct": 2},
            "cost": {"label_preference": paid, "write_potential": {name: n / 100 for name, n in paid.items()}},
            "minutes": 2.25,
        }  # fmt: skip
        (label / "results.json").write_text(json.dumps(results))
        programs = [
            {"round": 0, "variant": 0, "hash": "cafe" * 16, "code": "def a(): <pre>", "agreement": 0.5, "valid": True},
            {"round": 1, "variant": 0, "hash": "beef" * 16, "code": CODE + "  # <b>", "agreement": 0.75, "valid": True,
             "faults": {"index": 7}},
            {"round": 0, "variant": 1, "hash": "", "code": "", "agreement": None, "valid": False, "reason": "no <b>"},
        ]  # fmt: skip
        write_lines(label / "programs.jsonl", programs)
        goals = [
            {"segment": 4, "goals": ["go to the ball", "turn <left>"]},
            {"segment": 9, "goals": ["go to the ball"]},
        ]
        write_lines(label / "goals.jsonl", goals)
        (label / "program.py").write_text(CODE + "\n")
        calibration = [{"predicted": 0.25, "first": 0.3, "pairs": 9}, {"predicted": 0.75, "first": 0.7, "pairs": 7}]
        fitted = {"accuracy": 0.8125, "measured_on": 20, "decided": 16, "agreement": 0.375, "calibration": calibration}
        (prefer / "calibration.json").write_text(json.dumps(fitted))
        return folder

    return make


@pytest.fixture
def shaped(make_run: MakeRun) -> Callable[..., Path]:
    """Makes a run that was paid by a potential."""

    def make(name: str, env: str = "babyai/GoToLocal", **options: Any) -> Path:
        folder = make_run(name, rows=4, env=env)
        configure(folder, method={"name": "ppo", "shaping": {"window": 5, "scale": 1.0} | options})
        rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        for row in rows:
            if row["kind"] == "train":
                row |= {"rewards/shaping": 0.01, "rewards/env": 0.02, "shaping/windows": 500}
                row |= {"shaping/share": 0.25, "time/shaping": 0.125}
                row |= {"shaping/unjudged/index": row["version"] % 2}
        write_lines(folder / "metrics.jsonl", rows)
        (folder / "stages" / "train").mkdir(parents=True)
        made_of = {"inputs": {"shaping.content": "c0ffee" * 10}}
        (folder / "stages" / "train" / "manifest.json").write_text(json.dumps(made_of))
        return folder

    return make


@pytest.mark.usefixtures("undrawn")
def test_what_was_asked_what_it_cost_and_what_came_of_it(asked: Callable[..., Path], read: Read) -> None:
    source, page = read(report.write([asked("a")]))
    for sentence in (
        "400 segments of 20,480 steps in babyai/Text-GoToLocal-Pretraining-S20 were put into words and asked about,",
        "That took 606 calls, 93,930 tokens, 0.76 dollars and 2.2 minutes.",
        "The answers are rules that we wrote, not a language model's",
        "In 12.5 % the answer depended on the order",
        "is right on 81.2 % of 16 pairs of segments that it had not seen.",
        "The chosen one agrees with 75.0 % of the pairs that it was chosen by, and with 62.5 % of 144 others",
        "2 goals for 2 situations.",
    ):
        assert sentence in page.text.replace("\N{NO-BREAK SPACE}", " ")
    words = page.text.replace("\N{NO-BREAK SPACE}", " ")
    assert "which of two segments is better 300 288 12 – 600 93,000" in words
    assert "0, 1 50.0 % 0 cafecafe 0, 2 75.0 % 7 beefbeef ✓ chosen 1, 1 – 0 – no <b>" in words
    assert "go to the ball 2 turn <left> 1" in words
    assert CODE + "  # <b>" in "".join(page.words)
    assert "held-out" not in page.text.partition("Background knowledge")[0]
    assert "<b>" not in source.partition("Programs")[2].partition("</pre>")[0]


@pytest.mark.usefixtures("undrawn")
def test_a_models_answers_are_not_called_rules_of_ours(asked: Callable[..., Path], read: Read) -> None:
    _, page = read(report.write([asked("a", llm="openai")]))
    assert "were put into words" in page.text
    assert "rules that we wrote" not in page.text


def test_calibration_and_rounds_are_drawn(asked: Callable[..., Path], read: Read) -> None:
    source, _ = read(report.write([asked("a")]))
    assert 'aria-label="How often the first of a pair is better' in source
    assert 'aria-label="Agreement with the preferences' in source


@pytest.mark.usefixtures("undrawn")
def test_what_was_asked_once_is_shared_by_the_tasks_that_it_served(
    asked: Callable[..., Path], shaped: Callable[..., Path], read: Read
) -> None:
    label = asked("knowledge") / "stages" / "label"
    runs = [
        shaped("a", potential="code", program=CODE),
        shaped("b", potential="code", program=CODE),
        shaped("c", potential="goal", goals=str(label), env="babyai/GoToObj"),
        shaped("d", potential="code", program=CODE.replace("3", "2")),
        shaped("e", potential="none"),
    ]
    _, page = read(report.write(runs))
    words = page.text.replace("\N{NO-BREAK SPACE}", " ")
    assert "knowledge was asked once, for 3 runs and 2 tasks of this page: 606 calls" in words
    assert "For each task served that is 303 calls and 0.38 dollars. Its answers are rules that we wrote" in words
    assert words.count("was asked once") == 1


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("method.shaping.program=run:b/label seed=1", "b was asked once, for 1 run and 1 task of this page: 606 calls"),
        ("method.shaping.program={folder}/a/stages/label/", "a was asked once, for 1 run and 1 task of this page"),
        ("method.shaping.program={folder}/b/stages/label/program.py", "b was asked once, for 1 run"),
        (
            "experiment=mine",
            "a and b chose the same program, which shaped 1 run of this page: whose it was is not known",
        ),
        ("method.shaping.program=run:c/label", "a and b chose the same program"),
    ],
)
def test_of_two_extractions_with_the_same_program_the_one_that_was_named_is_told(
    command: str, said: str, asked: Callable[..., Path], shaped: Callable[..., Path], read: Read
) -> None:
    folder = asked("a").parent
    asked("b")
    run = shaped("task", potential="code", program=CODE)
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["command"] = f"python launch.py run {command.format(folder=folder)}"
    (run / "manifest.json").write_text(json.dumps(manifest))
    words = read(report.write([run]))[1].text.replace("\N{NO-BREAK SPACE}", " ")
    assert said in words
    assert ("whose it was" in words) != ("was asked once" in words)


@pytest.mark.usefixtures("undrawn")
def test_what_shaped_and_where_it_had_no_value_is_told(shaped: Callable[..., Path], read: Read) -> None:
    _, page = read(report.write([shaped("a", potential="code", program=CODE)]))
    words = page.text.replace("\N{NO-BREAK SPACE}", " ")
    assert "all runs code c0ffeec0 25.0 % 12.5 % 2 index of 2,000" in words
    _, page = read(report.write([shaped("b", potential="none")]))
    assert "Shaping" not in page.words
    assert "Background knowledge" not in page.words


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("label/results.json", b'{"segments": 3, "preferences": [], "programs": {"chosen": 7}, "cost": {"a": 0}}'),
        ("label/results.json", b'{"preferences": {"asked": NaN, "ties": 0}, "minutes": 0, "programs": 0, "cost": 0}'),
        ("label/programs.jsonl", b'{"variant": [1], "round": 0, "agreement": 0.5, "faults": 3, "hash": 0}\n\xff\n7\n'),
        ("label/goals.jsonl", b'{"segment": 0, "goals": 5}\n{"segment": 0, "goals": {"a": 1}}\n[1]\n'),
        ("label/program.py", b"\xff\xfe"),
        ("prefer/calibration.json", b'{"accuracy": NaN, "agreement": "x", "calibration": 4}'),
        ("prefer/calibration.json", b'{"accuracy": 0, "measured_on": 0, "calibration": [0, {"predicted": NaN}]}'),
    ],
)
def test_files_of_nonsense_are_no_reason_for_no_page(
    name: str, content: bytes, asked: Callable[..., Path], shaped: Callable[..., Path], read: Read
) -> None:
    knowledge = asked("knowledge")
    (knowledge / "stages" / name).write_bytes(content)
    _, page = read(report.write([knowledge]))
    assert "Background knowledge" in page.words
    _, page = read(report.write([shaped("a", potential="code", program=CODE)]))
    assert "Shaping" in page.words


@pytest.mark.usefixtures("undrawn")
def test_what_was_asked_may_be_gone(shaped: Callable[..., Path], read: Read) -> None:
    for name, goals in (("a", "/nowhere/stages/label"), ("b", "~nobody-of-that-name/label"), ("c", "")):
        _, page = read(report.write([shaped(name, potential="goal", goals=goals)]))
        assert "Shaping" in page.words
        assert "was asked once" not in page.text
