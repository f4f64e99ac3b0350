"""Learning in context where actions are vectors: histories, encoder, fit and trials, of real simulations, tiny."""

import json

import numpy as np
import pytest
import safetensors.numpy

from cluster import run as controller
from cluster.config.overrides import ConfigError
from cluster.config.tree import compose
from cluster.runs.folder import RunError
from envs import pool
from learner.store.episodes import EPISODES, EpisodeStore

TINY = ["experiment=radt_smoke", "cluster=inline", "sync=true", "env.length=8", "method.histories.episodes=3"]
TINY += ["method.sequence.width=16", "method.sequence.steps=6", "method.sequence.every=3", "method.sequence.batch=4"]
TINY += ["method.sequence.validation=0.2", "method.trials.trials=2", "method.trials.seeds=1"]
ROBOTS = {
    "metaworld": ["env.training=[reach,door-open]", "env.held_out=[door-lock]", "method.histories.learner=expert"],
    "control": [
        "env.training=[walker-stand,finger-spin]",
        "env.held_out=[walker-walk]",
        "method.histories.learner=random",
    ],
}


@pytest.mark.mujoco
@pytest.mark.parametrize("family", ROBOTS)
def test_a_robot_s_histories_are_fitted_and_its_held_out_task_is_tried(tmp_path, family):
    words = [f"env={family}", *ROBOTS[family], "method.sequence.reward_scale=100"]
    assert controller.run(compose([*TINY, *words, f"run.folder={tmp_path}", "run.name=a"])) == 0
    stages = tmp_path / "a/stages"
    store = EpisodeStore(stages / "histories" / EPISODES)
    steps = store.rows(np.arange(store.steps))
    assert store.steps == 2 * 3 * 8
    assert steps.action.shape == (48, 4 if family == "metaworld" else 6)
    assert steps.action.dtype == np.float32
    assert (np.abs(steps.action) <= 1).all()
    rows = [json.loads(line) for line in (tmp_path / "a/metrics.jsonl").read_text().splitlines()]
    fitted = [row for row in rows if row["kind"] == "fit"]
    assert len(fitted) == 4
    assert all(np.isfinite(row["fit/loss"]) and np.isfinite(row["fit/validation_loss"]) for row in fitted)
    assert not any("accuracy" in name for row in fitted for name in row)
    returns = safetensors.numpy.load_file(stages / "trials/returns.safetensors")
    assert returns["return"].shape == (1, 1, 2)
    assert np.isfinite(returns["return"]).all()
    assert returns["retrieved.found"][0, 0].tolist() == [0, 2]  # 8 steps, a query each 5


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["env=metaworld"], "method.histories.learner=q needs a table of actions, .* vectors: .*learner=expert"),
        (["env=control"], "those of control/Tasks are vectors: use method.histories.learner=random"),
        (["env=control", "method.histories.learner=expert"], "has none: use method.histories.learner=q, ppo or random"),
    ],
)
def test_what_cannot_play_vectors_is_refused_in_one_sentence(words, told):
    with pytest.raises(ConfigError, match=told):
        compose([*TINY, *words])


def test_a_world_without_its_simulator_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    config = compose([*TINY, "env=metaworld", *ROBOTS["metaworld"], f"run.folder={tmp_path}", "run.name=a"])
    monkeypatch.setattr(pool.importlib.util, "find_spec", lambda package: None)
    with pytest.raises(RunError, match="needs the package metaworld: pip install -r requirements"):
        controller.run(config)
    assert not list(tmp_path.iterdir())
