"""Two attempts at one run: once a newer one has begun, wherever the older one is, nothing of the run is the older's."""

import json
import shutil

import pytest

from cluster import run as controller
from cluster.config import compose
from cluster.folder import RunFolder
from learner.checkpoint import Superseded, begin_attempt
from tests.learner.fault_points import interrupted

TOY = [
    "method=cloning",
    "env=toy",
    "cluster=inline",
    "collect.player=random",
    "collect.episodes=64",
    "policy.hidden=16",
    "fit.steps=20",
    "fit.every=10",
    "evaluate.episodes=8",
    "evaluate.videos=1",
]
OWN = ("-a0001.", "-a0001/")  # in the names of what the older one may go on to write, which nobody reads
LOGS = ("run.log", "metrics.jsonl")


def config(folder, *words):
    return compose([*TOY, f"run.folder={folder}", "run.name=run", *words])


def everything(folder):
    found = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    return {name: content for name, content in found.items() if name not in LOGS and not any(o in name for o in OWN)}


def opens(name):
    """Whether a change is the first of those that write a file."""
    folder, _, file = name.rpartition("/")
    return lambda change: change.startswith("open ") and f"{folder}/.{file}." in change


WRITTEN = [
    "run/config.yaml",
    "run/status.json",
    "stages/collect/manifest.json",
    "stages/fit/weights.safetensors",
    "stages/fit/manifest.json",
    "run/videos/evaluate-0.gif",
    "stages/evaluate/results.json",
    "stages/evaluate/manifest.json",
    "run/report.html",
    "run/metrics.jsonl",
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    assert controller.run(config(folder)) == 0
    return folder / "run"


@pytest.mark.parametrize("name", WRITTEN)
def test_an_older_attempt_replaces_no_file_once_a_newer_one_has_begun(tmp_path, name):
    """It has come so far that only this file is to be written, when the newer one begins."""
    path, before = tmp_path / "run", {}

    def begin(_):
        begin_attempt(path / "checkpoints")
        before.update(everything(path))

    is_it = opens(name)
    begun = lambda change: is_it(change) and (path / "checkpoints/attempts").exists()  # noqa: E731
    with (
        interrupted(path, begun, begin),
        pytest.raises(Superseded, match="attempt 1 at 'run' ends without saving, because attempt 2 has begun"),
    ):
        controller.run(config(tmp_path))
    assert before
    assert everything(path) == before


def test_a_stage_that_goes_on_elsewhere_stays_done(tmp_path, whole, monkeypatch):
    """The older attempt would take the manifests of stages away, to train on; a newer one has finished them."""
    shutil.copytree(whole, tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    folder.begin()
    begin_attempt(folder.checkpoints)
    for path in (folder.path / "stages/fit/manifest.json", folder.path / "checkpoints"):
        with pytest.raises(Superseded):
            folder.forget(path)
        assert path.exists()


def test_a_request_to_stop_is_left_to_the_newer_attempt(tmp_path, whole):
    shutil.copytree(whole, tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    folder.begin()
    with controller.Stop(folder.stop_file, None, folder.attempt) as stop:
        begin_attempt(folder.checkpoints)
        folder.stop_file.touch()
        assert stop.reason == "STOP file"
    assert folder.stop_file.exists()
    folder.begin()
    with controller.Stop(folder.stop_file, None, folder.attempt):
        folder.stop_file.touch()
    assert not folder.stop_file.exists()


def test_further_stages_that_begin_at_once_share_no_folder(tmp_path, whole):
    shutil.copytree(whole, tmp_path / "run")
    path = tmp_path / "run"
    names = []

    def another(_):
        names.append(RunFolder(path).claim("evaluate"))

    with interrupted(path, lambda change: change == f"os.mkdir {path}/stages/evaluate-1", another):
        assert controller.evaluate(path, []) == 0
    assert names == ["evaluate-1"]
    assert (path / "stages/evaluate-2/manifest.json").exists()
    assert not list((path / "stages/evaluate-1").iterdir())


def test_a_further_stage_that_comes_to_nothing_leaves_no_folder(tmp_path, whole, monkeypatch):
    shutil.copytree(whole, tmp_path / "run")

    def explode(*_):
        raise ZeroDivisionError("in an actor")

    monkeypatch.setattr(controller, "play_all", explode)
    with pytest.raises(ZeroDivisionError):
        controller.evaluate(tmp_path / "run", [])
    assert not list((tmp_path / "run/stages").glob("evaluate-*"))


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_further_stage_leaves_the_status_to_a_controller_at_work_elsewhere(tmp_path, whole, when):
    path = tmp_path / "run"
    shutil.copytree(whole, path)
    status = json.loads((path / "status.json").read_text()) | {"state": "running", "host": "elsewhere", "phase": "fit"}

    def begin(*_):
        begin_attempt(path / "checkpoints")
        (path / "status.json").write_text(json.dumps(status))
        (path / "error.txt").write_text("its own")

    if when == "before":
        begin()
        assert controller.evaluate(path, []) == 0
    else:
        with interrupted(path, opens("stages/evaluate-1/results.json"), begin):
            assert controller.evaluate(path, []) == 0
    assert json.loads((path / "status.json").read_text()) == status
    assert (path / "error.txt").read_text() == "its own"
    assert (path / "stages/evaluate-1/manifest.json").exists()
