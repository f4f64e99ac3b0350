"""What `status`, `stop` and a wrong name say of the runs on disk."""

import re

import pytest

from cluster.cli.status import print_status, request_stop
from cluster.runs import folder as run_folders
from cluster.runs.folder import RunError, RunFolder, find


@pytest.fixture
def made(tmp_path):
    """Makes a run folder with a status."""

    def make(name, **status):
        folder = RunFolder.create(tmp_path / name)
        (folder.path / "config.yaml").write_text("")
        folder.write_status(**status)
        return folder.path

    return make


def rows(capsys):
    return [re.split(r"  +", line.strip()) for line in capsys.readouterr().out.splitlines()]


def test_status_speaks_of_each_runs_score(made, tmp_path, capsys):
    trained = {"state": "done", "success_rate": 0.004, "episodic_return": 4.5912, "env_steps": 500_000}
    made("a", score="achievements unlocked", **trained)
    made("b", score="return", **trained | {"episodic_return": 229.41})
    made("c", score="", **trained)
    made("d", score="return", state="done")
    made("e", state="done", success_rate=0.5)  # of before there were scores
    print_status(tmp_path, None)
    head, *found = rows(capsys)
    assert head[:4] == ["run", "state", "env steps", "in training"]
    told = {row[0]: row[3] for row in found}
    assert told == {
        "a": "achievements unlocked 4.59", "b": "return 229.41", "c": "success 0.4%", "d": "-", "e": "success 50.0%"
    }  # fmt: skip


@pytest.mark.parametrize("columns", ["40", "80"])
def test_names_are_whole_at_any_width(made, tmp_path, capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    name = "sweep-of-many-settings-12-learning_rate-0.0003-discount-0.995-seed-4"
    made(name, state="done", score="achievements unlocked", success_rate=0.0, episodic_return=4.59)
    print_status(tmp_path, None)
    row = rows(capsys)[1]
    assert (row[0], row[3]) == (name, "achievements unlocked 4.59")
    RunFolder(tmp_path / name).write_status(reason="a sentence that is longer than a line " * 4)
    print_status(tmp_path, name)
    assert ["reason: " + ("a sentence that is longer than a line " * 4).strip()] in rows(capsys)


def test_what_is_finished_cannot_be_stopped(made, monkeypatch):
    with pytest.raises(RunError, match="run 'a' is finished: there is nothing to stop"):
        request_stop(made("a", state="done"))
    for state in ("stopped", "crashed"):
        with pytest.raises(RunError, match=f"run '{state}' is not running; continue it with 'python launch.py resume"):
            request_stop(made(state, state=state))
    assert not run_folders.RunFolder(made("b", state="done")).stop_file.exists()


def test_a_wrong_name_is_told_how_many_runs_there_are(made, tmp_path):
    for i in range(5):
        made(f"run-{i}")
    with pytest.raises(RunError, match=r"no run 'x'; runs here: run-0, run-1, run-2, run-3, run-4$"):
        find("x", tmp_path)
    for i in range(5, 12):
        made(f"run-{i}")
    with pytest.raises(RunError, match=r"run-9 and 7 more \(python launch.py status\)$"):
        find("x", tmp_path)
