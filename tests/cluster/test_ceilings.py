"""The planner of a world with hidden goals, as a run: its table holds the published ceiling, to the last digit."""

import json

import pytest

from cluster import run as controller
from cluster.config.tree import compose

CEILINGS = {
    "dark/Room-10x10": 91.05,
    "dark/Room-20x20": 378.25,
    "dark/Room-40x20": 774.2,
    "dark/KeyDoor-10x10": 87.05,
    "dark/KeyDoor-20x20": 368.25,
    "dark/KeyDoor-40x20": 745.9,
    "maze/Runner-15": 2.0,
}


@pytest.mark.parametrize("env_id", CEILINGS)
def test_the_planner_plays_each_published_task_once(tmp_path, env_id):
    words = ["method=expert", f"env={env_id}", "env.split=published", "evaluate.episodes=20", "evaluate.videos=0"]
    config = compose([*words, "cluster=inline", f"run.folder={tmp_path}", "run.name=expert"])
    assert controller.run(config) == 0
    found = json.loads((tmp_path / "expert/stages/evaluate/results.json").read_text())
    assert found["return"]["mean"] == CEILINGS[env_id]
    assert found["success"]["rate"] == 1
    assert found["episodes"] == 20
