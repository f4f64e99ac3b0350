"""Files of a run that a crash or a disk has cut: each is seen, and none makes another run of this one."""

import json

import pytest

from cluster import run as controller
from cluster.config import tree
from cluster.config.overrides import ConfigError
from cluster.config.tree import compose
from cluster.runs.folder import RunFolder, finished_stage
from tests.learner.fault_points import interrupted

WORDS = ["env=toy/Line", "cluster=inline", "policy.hidden=16", "actors.envs=4", "actors.steps=8"]
WORDS += ["learner.env_steps=64", "evaluate.episodes=4", "evaluate.videos=0"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    assert controller.run(compose([*WORDS, f"run.folder={folder}", "run.name=a"])) == 0
    return folder / "a"


@pytest.mark.parametrize("left", [0, 60])
@pytest.mark.parametrize("stage", ["train", "evaluate"])
def test_a_stage_whose_manifest_is_cut_is_not_done_and_is_done_again(finished, stage, left):
    path = finished / "stages" / stage / "manifest.json"
    before = json.loads(path.read_text())
    path.write_bytes(path.read_bytes()[:left])
    assert finished_stage(finished, "", stage) is None
    assert controller.resume(finished, [], False) == 0
    again = json.loads(path.read_text())
    for name in set(before["counts"]) - {"resumes", "wall_seconds"}:
        assert again["counts"][name] == before["counts"][name], name
    assert finished_stage(finished, "", stage) == path.parent


def test_a_configuration_is_refused_wherever_it_is_cut(tmp_path):
    path = tmp_path / "config.yaml"
    config = compose([*WORDS, "seed=3", "run.name=a"])
    tree.save(config, path)
    assert tree.load(path) == config
    whole = path.read_bytes()
    for end in [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")][:-1]:  # elsewhere YAML may not parse
        path.write_bytes(whole[:end])
        with pytest.raises(ConfigError, match="is damaged"):
            tree.load(path)


def test_a_configuration_of_older_code_has_no_marks_and_is_read(tmp_path):
    path = tmp_path / "config.yaml"
    tree.save(compose([*WORDS, "seed=3", "run.name=a"]), path)
    path.write_text(path.read_text().removeprefix("---\n").removesuffix("...\n"))
    assert tree.load(path).seed == 3


class Killed(BaseException):
    """As SIGKILL does, it ends what is being done."""


def test_a_start_that_is_killed_takes_no_name(tmp_path):
    """At each change to the disk: the run is there as a whole, or its name is free."""

    def kill(unsynced):
        raise Killed

    def start():
        RunFolder.create(tmp_path / "runs" / "a", {"config.yaml": b"a: 1\n", "manifest.json": b"{}"})

    met = 0
    for at in range(100):
        try:
            with interrupted(tmp_path, at, kill):
                start()
            break
        except Killed:
            met += 1
        if (tmp_path / "runs" / "a").exists():
            assert (tmp_path / "runs" / "a" / "config.yaml").read_text() == "a: 1\n"
            (tmp_path / "runs" / "a").rename(tmp_path / f"whole{at}")
    assert met > 5
    assert (tmp_path / "runs" / "a" / "config.yaml").exists()
