"""Sweep syntax to members."""

import io
import json
import re
import signal

import pytest
from rich.console import Console

from cluster.cli.sweep import _print_results, sweep
from cluster.config.members import Member, expand, plan
from cluster.config.overrides import ConfigError


@pytest.mark.parametrize(
    ("word", "values"),
    [
        ("seed=1,2", ["1", "2"]),
        ("seed=range(0,3)", ["0", "1", "2"]),
        ("seed=0..3", ["0", "1", "2", "3"]),
        ("seed=3..3", ["3"]),
        ("learner.learning_rate=1e-4,3e-4", ["0.0001", "0.0003"]),
        ("env=toy/Line,babyai/GoToLocal", ["toy/Line", "babyai/GoToLocal"]),
        ("policy.memory=choice(none,gru)", ["none", "gru"]),
    ],
)
def test_one_axis(word, values):
    key = word.partition("=")[0]
    assert expand([word]) == ([], [[f"{key}={value}"] for value in values])


def test_axes_are_multiplied_and_the_first_varies_slowest():
    fixed, members = expand(["seed=0,1", "experiment=toy", "actors.n=2,4", "stages=[train,evaluate]"])
    assert fixed == ["experiment=toy", "stages=[train,evaluate]"]
    assert members == [
        ["seed=0", "actors.n=2"],
        ["seed=0", "actors.n=4"],
        ["seed=1", "actors.n=2"],
        ["seed=1", "actors.n=4"],
    ]


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("seed=interval(0,1)", "cannot sweep 'seed=interval(0,1)': list values"),
        ("seed=4..0", "cannot sweep 'seed=4..0': it lists no value"),
        ("seed", "cannot read 'seed' on the command line: write key=value"),
    ],
)
def test_what_cannot_be_swept_is_a_sentence(word, sentence):
    with pytest.raises(ConfigError) as raised:
        expand([word])
    assert str(raised.value).startswith(sentence)


def test_every_member_is_checked_before_any_begins(tmp_path):
    with pytest.raises(ConfigError, match=r"actors\.n: must be at least 1, got 0"):
        plan(["actors.n=2,1,0", f"run.folder={tmp_path}"])
    assert list(tmp_path.iterdir()) == []


def test_members_have_numbers_and_labels():
    config, fixed, members = plan(["run.name=s", "env=toy/Line,babyai/GoToLocal", "learner.learning_rate=1e-3"])
    assert config.run.name == "s"
    assert fixed == ["learner.learning_rate=1e-3"]
    assert [m.name for m in members] == ["s-0-env-toy-Line", "s-1-env-babyai-GoToLocal"]


def test_a_name_used_again_keeps_its_members_and_adds_new_ones(tmp_path):
    words = ["run.name=s", f"run.folder={tmp_path}", "seed=1,2"]
    old = [Member("s-0-seed-2", ["seed=2"], 0, 5.0)]
    (tmp_path / "s").mkdir()
    saved = {"name": "s", "words": [f"run.folder={tmp_path}"], "members": [vars(m) for m in old]}
    (tmp_path / "s" / "sweep.json").write_text(json.dumps(saved))
    assert plan(words)[2] == [*old, Member("s-1-seed-1", ["seed=1"])]
    with pytest.raises(ConfigError, match="has other common settings"):
        plan([*words, "sync=true"])
    (tmp_path / "s" / "sweep.json").write_text("{")
    with pytest.raises(ConfigError, match="is damaged"):
        plan(words)


def evaluated(runs, *scores):
    """Members by their scores; each has been evaluated."""
    found = {"success": {"rate": 0.5, "low": 0.25, "high": 0.75}, "return": {"mean": 0.4, "low": 0.3, "high": 0.5}}
    members = []
    for i, score in enumerate(scores):
        members.append(Member(f"s-{i}-seed-{i}-of-a-rather-long-name", [f"seed={i}"], 0))
        folder = runs / members[-1].name / "stages" / "evaluate"
        folder.mkdir(parents=True)
        (folder / "results.json").write_text(json.dumps(found | {"score": score}))
    return members


def results(runs, members):
    """Heads and rows of the table at the end of a sweep, as cells."""
    console = Console(file=io.StringIO(), width=40)
    _print_results(console, runs, members)
    lines = console.file.getvalue().splitlines()
    return [re.split(r"  +", line.strip()) for line in lines if line.strip()]


def test_results_are_success_and_return(tmp_path):
    members = [*evaluated(tmp_path, ""), Member("s-1", ["seed=1"])]
    head, *rows = results(tmp_path, members)
    assert head == ["#", "seed", "state", "success", "95 % interval", "return", "s"]
    assert rows == [["0", "0", "done", "50.0%", "25.0% - 75.0%", "0.400", "0"], ["1", "1", "not begun", *"---", "0"]]


@pytest.mark.parametrize("score", ["return", "achievements unlocked"])
def test_results_are_the_score_where_it_says_more(tmp_path, score):
    head, *rows = results(tmp_path, evaluated(tmp_path, score))
    assert head == ["#", "seed", "state", score, "95 % interval", "s"]
    assert rows == [["0", "0", "done", "0.40", "0.30 - 0.50", "0"]]


def test_results_of_several_worlds_say_what_each_counts(tmp_path):
    head, *rows = results(tmp_path, evaluated(tmp_path, "", "return"))
    assert head == ["#", "seed", "state", "result", "95 % interval", "s"]
    assert [row[3:5] for row in rows] == [
        ["success 50.0%", "25.0% - 75.0%"], ["return 0.40", "0.30 - 0.50"]
    ]  # fmt: skip


def test_members_run_in_processes_and_go_on_where_they_stopped(tmp_path, capsys):
    """A member stops at once (no time is left to it); a second time it is resumed, and another is added."""
    words = ["experiment=toy", "cluster=inline", "run.name=s", f"run.folder={tmp_path}", "run.max_wall_seconds=0.001"]
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    assert sweep([*words, "seed=range(0,1)"]) == 3
    path = tmp_path / "s" / "sweep.json"
    saved = json.loads(path.read_text())
    assert [(m["name"], m["words"], m["exit_code"]) for m in saved["members"]] == [("s-0-seed-0", ["seed=0"], 3)]
    assert (tmp_path / "s-0-seed-0" / "config.yaml").exists()

    (tmp_path / "s-1-seed-1").mkdir()
    saved["members"].append(vars(Member("s-1-seed-1", ["seed=1"], 0)))  # as if it were done
    path.write_text(json.dumps(saved))
    capsys.readouterr()
    assert sweep([*words, "seed=0..2"], jobs=2) == 3
    printed = capsys.readouterr().out
    assert "1 of 3 members are done already" in printed
    assert "resumed  s-0-seed-0" in printed
    assert "started  s-2-seed-2" in printed
    assert "s-1-seed-1" not in printed
    assert [m["exit_code"] for m in json.loads(path.read_text())["members"]] == [3, 0, 3]
    assert handlers == (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))
