"""Two attempts at one run: once a newer one has begun, wherever the older one is, nothing of the run is the older's."""

import json
import shutil
import signal

import pytest

from cluster import run as controller
from cluster.config.tree import compose
from cluster.metrics.rows import Metrics
from cluster.runs.folder import RunFolder
from cluster.runs.stage import Run
from cluster.runs.stop import Stop
from cluster.stages import evaluate
from cluster.stages.train import Engine as Training
from learner.files import Superseded, begin_attempt
from learner.methods import Stage
from learner.store.archive import Archive
from tests.cluster.test_faults import launch, wait_for
from tests.learner.fault_points import interrupted

TOY = [
    "method=cloning",
    "env=toy",
    "cluster=inline",
    "method.collect.player=random",
    "method.collect.episodes=64",
    "policy.hidden=16",
    "method.fit.steps=20",
    "method.fit.every=10",
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
    with Stop(folder.stop_file, None, folder.attempt) as stop:
        begin_attempt(folder.checkpoints)
        folder.stop_file.touch()
        assert stop.reason == "STOP file"
    assert folder.stop_file.exists()
    folder.begin()
    with Stop(folder.stop_file, None, folder.attempt):
        folder.stop_file.touch()
    assert not folder.stop_file.exists()


def test_rows_of_an_older_attempt_come_into_no_file(tmp_path):
    path, folder = tmp_path / "metrics.jsonl", RunFolder(tmp_path)
    folder.begin()
    old = Metrics(path, 0, folder.attempt)
    old.write({"kind": "train", "version": 1})
    newer = RunFolder(tmp_path)
    newer.begin()
    new = Metrics(path, 1, newer.attempt)
    old.write({"kind": "train", "version": 2})
    new.write({"kind": "train", "version": 2, "of": "the newer"})
    with pytest.raises(Superseded):
        old.rewind(0)
    assert [json.loads(line) for line in path.read_bytes().splitlines()] == [
        {"kind": "train", "version": 1},
        {"kind": "train", "version": 2, "of": "the newer"},
    ]


def test_an_older_attempt_makes_no_learner_anew(tmp_path):
    """It would empty the replay, which the newer one goes on with."""
    folder = RunFolder(tmp_path)
    folder.begin()
    begin_attempt(folder.checkpoints)
    training = Training(Run(compose(["env=toy"]), folder, None, None, None, None), Stage("train", "train"))
    with pytest.raises(Superseded):
        training.run()


@pytest.mark.slow
def test_a_controller_that_stands_still_while_another_finishes_its_search_changes_nothing(tmp_path):
    """Stopped by a signal, as by a cut network, and without the lock, which holds on one host only."""
    words = ["method=lgqd", "env=navigation", "env.length=60", "stages=[search,merge]", "cluster=inline"]
    words += ["method.search.generations=400", "run.checkpoint_every_s=0.2", f"run.folder={tmp_path}", "run.name=run"]
    path = tmp_path / "run"
    older = launch("run", *words)
    wait_for(lambda: len(list((path / "stages/search/checkpoints-0").glob("v*"))) >= 2, "checkpoints of the search")
    older.send_signal(signal.SIGSTOP)
    (path / "lock").unlink()
    assert launch("resume", str(path)).wait(300) == 0
    before = everything(path)
    older.send_signal(signal.SIGCONT)
    assert older.wait(60) == 1
    assert everything(path) == before
    Archive.read(path / "stages/search/archive-0").verify()
    assert [name for name in before if name.startswith("stages/search/archive-0/archive")] == [
        "stages/search/archive-0/archive-a0002.json"
    ]


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

    monkeypatch.setattr(evaluate, "play_all", explode)
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
