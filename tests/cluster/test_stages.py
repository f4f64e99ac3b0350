"""Kinds of stages are found by name: what each says of itself, and a new one that is a module beside ours."""

import json
import shutil
import sys
from pathlib import Path
from typing import get_args

import pytest

from cluster import run as controller
from cluster import stages
from cluster.config import overrides
from cluster.config.overrides import ConfigError
from cluster.config.tree import compose
from cluster.roles.drawing import Role, Topology
from cluster.runs.folder import RunError, finished_stage
from cluster.runs.stage import Artifact, StageEngine
from cluster.topology import draw, topology
from learner import methods

ROOT = Path(__file__).resolve().parents[2]

METHOD = """
from typing import Any, Literal

from envs.config import Part
from learner.methods import Stage


class Config(Part):
    name: Literal["counting"] = "counting"
    seconds: float = 0.0


def stages(config: Any) -> list[Stage]:
    counted = [Stage(name, "tally", "random") for name in ("first", "second")]
    return [*counted, Stage("judged", "evaluate", "random")]


def check(config: Any, spec: Any) -> None:
    pass
"""
KIND = '''
from cluster.roles.drawing import Role, Topology
from cluster.runs.stage import Outcome, StageEngine


class Engine(StageEngine):
    """Writes how many envs there are; asked to stop as long as a file says so."""

    def run(self):
        if self.stage.name == "second":
            assert self.given.artifact("first").name == "first"
            if (self.folder.path / "wait").exists():
                return None
        self.folder.write_json(self.place / "count.json", self.config.actors.envs)
        return Outcome({"envs": self.config.actors.envs}, lines=(f"{self.stage.name}: counted",))

    @classmethod
    def roles(cls, config):
        return Topology((Role("counter", 3, 1, "counts"),), (("counter", "controller", "numbers"),))

    @classmethod
    def memory(cls, config):
        return config.actors.envs * 2**30
'''


@pytest.fixture
def beside(tmp_path, monkeypatch):
    """A method and a kind of stage in folders beside ours, and the method's file in a copy of configs."""
    shutil.copytree(overrides.CONFIGS, tmp_path / "configs")
    (tmp_path / "configs/method/counting.yaml").write_text("# @package _global_\nmethod:\n  name: counting\n")
    monkeypatch.setattr(overrides, "CONFIGS", tmp_path / "configs")
    for package, name, text in ((methods, "counting", METHOD), (stages, "tally", KIND)):
        folder = tmp_path / package.__name__
        folder.mkdir()
        (folder / f"{name}.py").write_text(text)
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
        monkeypatch.delitem(sys.modules, f"{package.__name__}.{name}", raising=False)
    yield tmp_path
    for name in ("learner.methods.counting", "cluster.stages.tally"):
        sys.modules.pop(name, None)


def words(folder, *more):
    given = ["method=counting", "env=toy/Line", "cluster=inline", "actors.envs=2", "evaluate.episodes=4"]
    return [*given, f"run.folder={folder}", "run.name=a", *more]


def test_a_new_kind_of_stage_is_one_module_that_runs_stops_and_goes_on(beside, capsys):
    path = beside / "a"
    config = compose(words(beside))
    assert topology(config).roles[1] == Role("counter", 3, 1, "counts")
    assert "counter     x 3" in draw(config)
    assert controller.run(compose(words(beside, "stages=[first]"))) == 0
    (path / "wait").touch()
    assert controller.resume(path, ["stages=[]"], True) == 3
    assert "first: counted" in capsys.readouterr().out
    assert not (path / "stages/second/manifest.json").exists()
    (path / "wait").unlink()
    assert controller.resume(path, [], False) == 0
    manifest = json.loads((path / "stages/second/manifest.json").read_text())
    assert (manifest["kind"], manifest["counts"]) == ("tally", {"envs": 2})
    assert list(manifest["files"]) == ["count.json"]
    assert (path / "stages/judged/results.json").exists()


def test_what_a_new_kind_weighs_is_held_against_the_memory_that_is_there(beside):
    with pytest.raises(ConfigError, match=r"actors\.envs=20000 .* needs at least 20,000\.0 GiB of memory"):
        controller.run(compose(words(beside, "actors.envs=20000")))
    assert not (beside / "a").exists()


def test_a_method_that_names_no_kind_is_told_which_there_are():
    there = ", ".join(stages.names())
    with pytest.raises(LookupError, match=f"there is no kind of stage 'tally': there are {there}"):
        stages.engine("tally")


@pytest.mark.parametrize("kind", stages.names())
def test_every_kind_says_of_itself_what_the_controller_asks(kind):
    engine = stages.engine(kind)
    assert issubclass(engine, StageEngine)
    assert engine.__doc__
    assert engine.makes in get_args(Artifact)
    stage = methods.Stage(kind, kind)
    assert engine.takes(stage) in get_args(Artifact)
    words = {"calibrate": ["method=calibration", "env=housekeep"]}.get(kind, ["env=toy/Line"])
    config = compose(["method=lgqd", "env=navigation"] if engine.by_name else words)
    assert isinstance(engine.roles(config), Topology)
    assert engine.memory(config) >= 0
    assert engine.asks(config, stage) is (kind == "label")  # whoever plays


@pytest.mark.parametrize("name", methods.names())
def test_every_method_is_made_of_kinds_that_there_are(name):
    words = {"glam": ["experiment=glam_small"], "ellm": ["experiment=quickstart"], "lgqd": ["env=navigation"]}
    words |= {
        "bk": ["env=babyai/GoToLocal", "env.captions=true"],
        "radt": ["env=dark"],
        "calibration": ["env=housekeep"],
        "captioner": ["experiment=crafter_captioner"],
    }
    config = compose([*words.get(name, ["env=babyai/GoToLocal"]), f"method={name}"])
    assert {stage.kind for stage in methods.every_stage(config)} <= set(stages.names())


def test_weights_and_episodes_are_taken_from_stages_before():
    """What a run would lack is told by what its stages take and make, whatever they are called."""
    taken = {kind: stages.engine(kind).takes(methods.Stage(kind, kind)) for kind in stages.names()}
    made = {kind: stages.engine(kind).makes for kind in stages.names()}
    assert {kind for kind, what in made.items() if what} == {"collect", "fit", "train"}
    assert (made["collect"], taken["fit"], made["fit"], made["train"]) == ("episodes", "episodes", "weights", "weights")
    assert taken["evaluate"] == taken["generalise"] == taken["collect"] == "weights"
    assert stages.engine("evaluate").takes(methods.Stage("evaluate", "evaluate", "random")) == ""


def test_what_cannot_be_run_once_more_is_said(beside, monkeypatch):
    monkeypatch.setattr(stages.engine("evaluate"), "again", False)
    assert controller.run(compose(words(beside, "stages=[first]"))) == 0
    with pytest.raises(RunError, match="run 'a' has no stage that can be repeated"):
        controller.evaluate(beside / "a", [])


def test_the_controller_names_no_kind():
    """What is special to a kind is said by its engine."""
    for name in ("run.py", "runs/controller.py", "topology.py", "roles/drawing.py"):
        text = (ROOT / "cluster" / name).read_text()
        assert not [kind for kind in stages.names() if f'"{kind}"' in text], name
    assert len((ROOT / "cluster/run.py").read_text().splitlines()) < 210


def test_a_finished_stage_is_found_along_the_runs_it_was_made_from(tmp_path):
    """Histories of one run, the encoder of a second, the fit of a third: the last one names the second only."""

    def made(run, stage, origin):
        place = tmp_path / run / "stages" / stage
        place.mkdir(parents=True)
        (place / "manifest.json").write_text(json.dumps({"stage": stage, "from": origin}))
        return place

    histories = made("lived", "histories", "")
    encoder = made("encoded", "encoder", "run:lived/histories")
    fit = made("fitted", "fit", str(encoder))  # by its path
    assert finished_stage(tmp_path / "new", "run:fitted/fit", "fit") == fit
    assert finished_stage(tmp_path / "new", "run:fitted/fit", "encoder") == encoder
    assert finished_stage(tmp_path / "new", "run:fitted/fit", "histories") == histories
    assert finished_stage(tmp_path / "new", "run:fitted/fit", "trials") is None
    assert finished_stage(tmp_path / "new", "run:nobody/fit", "fit") is None
    (tmp_path / "copied").mkdir()
    for place in (histories, fit):  # side by side, in no run
        shutil.copytree(place, tmp_path / "copied" / place.name)
    copied = tmp_path / "copied"
    assert finished_stage(tmp_path / "new", str(copied / "fit"), "histories") == copied / "histories"
    circle = made("circle", "fit", "run:circle/fit")
    assert finished_stage(tmp_path / "circle", "run:circle/fit", "trials") is None
    assert finished_stage(tmp_path / "circle", "run:circle/fit", "fit") == circle
