"""The table of arms: intervals as SciPy has them, a file that keeps what it holds, and what cannot be read."""

import json

import numpy as np
import pytest
import scipy.stats

from benchmarks import __main__ as command
from benchmarks import arms
from tests.report.conftest import write_run

SCORE = "achievements unlocked"


@pytest.fixture
def runs(tmp_path):
    """Arm a with seeds 0, 1, 2, arm b with seeds 0, 1, in a folder."""
    for name, found in {"a": (4.5, 5.25, 4.0), "b": (3.0, 3.5)}.items():
        for seed, mean in enumerate(found):
            write_run(tmp_path / f"{name}_s{seed}", seed=seed, score=(SCORE, mean))
    return tmp_path


def test_it_is_no_benchmark_against_a_peer():
    assert "arms" not in command.names()


def test_intervals_are_students_and_welchs(runs, capsys):
    assert arms.main([f"a={runs}/a_s*", f"b={runs}/b_s*"]) == 0
    first, second = capsys.readouterr().out.splitlines()[2:]
    a, b = [4.5, 5.25, 4.0], [3.0, 3.5]
    low, high = scipy.stats.t.interval(0.95, 2, np.mean(a), scipy.stats.sem(a))
    assert first == f"| a | 4.50, 5.25, 4.00 | {np.mean(a):.2f} ({low:.2f} to {high:.2f}) |  |"
    less = scipy.stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    assert second.endswith(f"| {np.mean(a) - np.mean(b):+.2f} ({less.low:+.2f} to {less.high:+.2f}) |")


def test_a_file_keeps_the_arms_that_are_not_named(runs, tmp_path):
    path = tmp_path / "arms.json"
    path.write_text(json.dumps({"about": "runs", "arms": {"b": [1], "c": [2]}, "commands": {"c": "run x"}}))
    assert arms.main([f"a={runs}/a_s*", f"b={runs}/b_s1", "--json", str(path)]) == 0
    content = json.loads(path.read_text())
    assert content["about"] == "runs"
    assert content["arms"]["c"] == [2]
    assert [found["seed"] for found in content["arms"]["a"]] == [0, 1, 2]
    assert [found["achievements"]["mean"] for found in content["arms"]["b"]] == [3.5]
    assert content["commands"] == {
        "a": "run experiment=babyai_gotolocal seed=SEED",
        "b": "run experiment=babyai_gotolocal seed=SEED",
        "c": "run x",
    }
    steps = [step for step, _ in content["arms"]["a"][0]["training"]]
    assert len(steps) > 2
    assert min(np.diff(steps)) >= arms.CURVE


def test_where_success_counts_it_is_the_measure(tmp_path, capsys):
    write_run(tmp_path / "one", solved=384, episodes=512)
    assert arms.main([f"one={tmp_path}/one", "--json", str(tmp_path / "arms.json")]) == 0
    assert "| one | 0.75 | 0.75 |" in capsys.readouterr().out
    assert json.loads((tmp_path / "arms.json").read_text())["arms"]["one"][0]["success"]["mean"] == 0.75


def test_a_number_of_training_can_be_compared_instead(runs, capsys):
    for folder in runs.iterdir():  # as a run that went on, so that the last row counts and no other
        rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        scored = [row | {"crafter/score": 0.1 * i + len(folder.name)} for i, row in enumerate(rows)]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in scored))
    last = [row["crafter/score"] for row in scored if row["kind"] == "train"][-1]
    words = [f"a={runs}/a_s*", "--metric", "crafter/score", "--json", str(runs / "arms.json")]
    assert arms.main(words) == 0
    assert f"| a | {', '.join([f'{last:.2f}'] * 3)} | {last:.2f} |" in capsys.readouterr().out
    found = json.loads((runs / "arms.json").read_text())["arms"]["a"][0]
    assert found["crafter/score"] == {"mean": round(last, 3)}
    assert found["training"][0][1] < found["training"][-1][1] <= last
    assert arms.main([f"a={runs}/a_s*", "--metric", "crafter/scores"]) == 2
    assert "reports no crafter/scores" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("a", "'a' is no arm: write NAME=FOLDERS"),
        ("a=/nowhere/*", "arm a: no folder is called /nowhere/*"),
        ("a={}/unfinished", "has no results of held-out episodes"),
        ("a={}/empty", "is not a run folder"),
    ],
)
def test_what_is_no_arm_is_told(tmp_path, capsys, word, told):
    write_run(tmp_path / "unfinished", evaluated=False)
    (tmp_path / "empty").mkdir()
    assert arms.main([word.format(tmp_path), "--json", str(tmp_path / "arms.json")]) == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "arms.json").exists()


def test_a_file_that_is_not_json_stays_as_it_is(runs, tmp_path, capsys):
    path = tmp_path / "notes.txt"
    path.write_text("my notes")
    assert arms.main([f"a={runs}/a_s*", "--json", str(path)]) == 2
    assert "notes.txt is not JSON" in capsys.readouterr().err
    assert path.read_text() == "my notes"
