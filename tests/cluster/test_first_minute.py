"""A run that dies young: its first checkpoint comes with its first update; what died before is said to start over."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cluster import run as controller
from cluster.cli.status import print_status
from cluster.config.tree import compose
from cluster.runs.folder import RunFolder
from cluster.stages.train import Engine as Training
from learner import checkpoint
from learner.files import begin_attempt

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["env=toy/Line", "cluster=inline", "policy.hidden=16", "actors.envs=4", "actors.steps=8", "evaluate.every=0"]
DIED = "starts over: it ended before anything was saved"


def words(folder, *more):
    return [*SMALL, "stages=[train]", f"run.folder={folder}", "run.name=a", *more]


@pytest.fixture
def dead(tmp_path):
    """The folder of a run whose process is gone, and that has saved nothing."""
    (tmp_path / "runs").mkdir()
    folder = RunFolder.create(tmp_path / "runs" / "a")
    (folder.path / "config.yaml").touch()
    begin_attempt(folder.checkpoints)
    gone = subprocess.Popen(["true"])
    gone.wait()
    folder.write_status(state="running")
    told = folder.read_status() | {"pid": gone.pid}
    (folder.path / "status.json").write_text(json.dumps(told))
    return folder.path


def shown(path, capsys):
    capsys.readouterr()
    print_status(path.parent, path.name)
    return " ".join(capsys.readouterr().out.split())


def test_status_says_that_what_saved_nothing_starts_over(dead, capsys):
    assert "died (starts over)" in shown(dead, capsys)
    (dead / "checkpoints" / ".v00000001-a0001").mkdir()  # half written
    (dead / "stages" / "collect").mkdir()
    (dead / "stages" / "collect" / ".000000.arrow.1").touch()
    assert "died (starts over)" in shown(dead, capsys)


@pytest.mark.parametrize(
    "kept",
    [
        "checkpoints/v00000001-a0001/record.json",
        "stages/collect/000000.arrow",
        "stages/fit/manifest.json",
        "stages/search/checkpoints-0/v00000002/record.json",
    ],
)
def test_status_says_that_what_saved_something_can_be_resumed(dead, capsys, kept):
    (dead / kept).parent.mkdir(parents=True)
    (dead / kept).touch()
    assert "died (resumable)" in shown(dead, capsys)


def test_the_first_checkpoint_comes_with_the_first_update_and_the_time_left_later(tmp_path, capsys):
    """Later ones come by the clock: with a minute between two, a short run has the first and the last."""
    assert controller.run(compose(words(tmp_path, "learner.env_steps=512"))) == 0
    names = sorted(path.name for path in (tmp_path / "a" / "checkpoints").glob("v*"))
    assert names == ["v00000001-a0001", "v00000008-a0001"]
    assert capsys.readouterr().out.splitlines()[0].endswith("left -")  # of one update nothing can be told


def test_a_resume_says_that_it_starts_over_if_nothing_was_saved(tmp_path, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        patch.setattr(Training, "_learned", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            controller.run(compose(words(tmp_path, "learner.env_steps=512")))
    assert DIED not in capsys.readouterr().out
    assert controller.resume(tmp_path / "a", [], False) == 0
    assert capsys.readouterr().out.count(f"a {DIED}") == 1
    assert f"a {DIED}" in (tmp_path / "a" / "run.log").read_text()
    assert controller.resume(tmp_path / "a", ["learner.env_steps=640"], True) == 0
    assert DIED not in capsys.readouterr().out


def test_what_is_killed_right_after_its_first_update_goes_on_from_there(tmp_path):
    log = open(os.devnull, "w")  # noqa: SIM115 - the process owns it
    command = [sys.executable, str(ROOT / "launch.py"), "run", *words(tmp_path, "learner.env_steps=1000000000")]
    process = subprocess.Popen(command, stdout=log, stderr=log)
    end = time.monotonic() + 120
    while not list((tmp_path / "a" / "checkpoints").glob("v*")):
        assert process.poll() is None
        assert time.monotonic() < end, "waited in vain for the first checkpoint"
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    version = checkpoint.latest(tmp_path / "a" / "checkpoints").record["counters"]["version"]
    assert version == 1
    assert controller.resume(tmp_path / "a", ["learner.env_steps=192"], True) == 0
    found = checkpoint.latest(tmp_path / "a" / "checkpoints").record["counters"]
    assert (found["version"], found["resumes"]) == (3, 1)
