"""Success rates of achievements and their score: of training, across stops, and of held-out episodes."""

import html
import json
import math
import re

import numpy as np
import pytest

import envs
from cluster import run as controller
from cluster.stages._shared.achievements import Achieved, score
from envs.api import Episodes
from envs.crafter.rules import ACHIEVEMENTS
from learner import checkpoint
from tests.cluster.test_training import config, rows, stop_after, timeless  # noqa: F401

CRAFTER = ["env=crafter/Standard", "env.observe=[counts]", "env.length=40", "policy.network=mlp", "policy.hidden=16"]
CRAFTER += ["actors.envs=8", "actors.steps=16", "learner.minibatch=64", "evaluate.every=0", "sync=true"]
PUBLISHED = (0.4, 0, 30.3, 0, 66.7, 3.0, 83.0, 0.2, 2.0, 12.0, 0, 0, 0, 0, 0, 21.1, 20.1, 0.1, 65.0, 1.7, 66.1, 92.5)
"""Percent of PPO's episodes, by achievement, in Hafner 2021, whose score there is 4.6."""


def plain(rates):
    """The formula, as the paper writes it, of percentages."""
    return math.exp(sum(math.log(1 + rate) for rate in rates) / len(rates)) - 1


def test_the_score_is_the_formula_of_the_paper():
    rates = [0, 100, *np.random.default_rng(0).uniform(0, 100, 20)]
    assert score(np.array(rates) / 100) == pytest.approx(plain(rates), rel=1e-12)
    assert score(np.array(PUBLISHED) / 100) == pytest.approx(4.6, abs=0.05)
    assert (score(np.zeros(22)), score(np.ones(22))) == (0, pytest.approx(100))
    assert score(np.array([0.01, 0.5])) < score(np.array([0.02, 0.49])), "rare achievements count more"


def test_an_episode_counts_an_achievement_once_and_parts_add_up():
    spec = envs.spec("crafter/Standard")
    assert spec.counts == ACHIEVEMENTS
    counts = np.random.default_rng(1).integers(-3, 3, (50, 22)).clip(0).astype(np.int32)
    columns = {name: np.zeros(50, column.dtype) for name, column in vars(Episodes.empty()).items()}
    episodes = Episodes(**columns | {"counts": counts})
    found = Achieved()
    for part in (slice(0, 0), slice(0, 20), slice(20, 50)):
        found.add(Episodes.concatenate([Episodes.empty(), episodes.take(part)]))
    assert found == Achieved.of(episodes)
    row, table = found.row(spec), found.table(spec)["achievements"]
    assert row["crafter/score"] == table["score"] == pytest.approx(plain(100 * (counts > 0).mean(0)))
    for k, name in enumerate(ACHIEVEMENTS):
        assert row[f"crafter/{name}"] == table["rates"][name]["rate"] == (counts[:, k] > 0).mean()
        assert table["rates"][name]["low"] <= row[f"crafter/{name}"] <= table["rates"][name]["high"]


def test_nothing_is_told_of_worlds_that_count_nothing_or_before_an_episode_has_ended():
    columns = {name: np.zeros(3, column.dtype) for name, column in vars(Episodes.empty()).items()}
    found = Achieved.of(Episodes(**columns | {"counts": np.zeros((3, 0), np.int32)}))
    assert (found.row(envs.spec("toy/Line")), found.table(envs.spec("toy/Line"))) == ({}, {})
    assert Achieved().row(envs.spec("crafter/Standard")) == {}


def test_a_world_tells_what_came_about_in_an_episode_and_forgets_it_in_the_next():
    env = envs.make("crafter/Standard", 4, seed=3, observe=["counts"], length=30)
    env.begin()
    random, seen = np.random.default_rng(0), np.zeros((4, 22), np.int32)
    for _ in range(90):
        t = env.advance(random.integers(0, 17, 4))
        if len(t.episodes):
            assert (t.episodes.counts >= seen[t.final_index]).all()
            assert t.episodes.counts.shape == (len(t.final_index), 22)
            paid = (t.episodes.counts > 0).sum(1)  # each pays 1, and lost health costs
            assert (t.episodes.total <= paid + 1e-4).all()
            assert (t.episodes.total >= paid - 1).all()
            assert not env.achieved[t.final_index].any()
        seen = env.achieved.copy()


def test_gymnasium_sees_the_counts_of_episodes_that_end():
    told, dense = (envs.make("crafter/Standard", 4, seed=3, observe=["counts"], length=90) for _ in range(2))
    told.reset()
    dense.begin()
    for actions in np.random.default_rng(0).integers(0, 17, (90, 4)):
        info, t = told.step(actions)[-1], dense.advance(actions)
    assert info["_counts"].all()
    np.testing.assert_array_equal(info["counts"], t.episodes.counts)
    assert info["counts"].any()


@pytest.mark.usefixtures("timeless")
def test_training_counts_all_its_episodes_and_a_resume_goes_on_counting(tmp_path):
    words = [*CRAFTER, "learner.env_steps=2560", "stages=[train]"]
    assert controller.run(config(tmp_path, "whole", *words)) == 0
    stop_after(tmp_path / "parts", 9)
    assert controller.run(config(tmp_path, "parts", *words)) == 3
    before = checkpoint.latest(tmp_path / "parts" / "checkpoints").record["achieved"]
    assert before["episodes"] > 0
    assert sum(before["unlocked"]) > 0
    assert controller.resume(tmp_path / "parts", [], False) == 0
    whole, parts = (checkpoint.latest(tmp_path / name / "checkpoints").record for name in ("whole", "parts"))
    assert whole["achieved"] == parts["achieved"]
    assert whole["achieved"]["episodes"] == whole["counters"]["episodes"] > before["episodes"]
    one, two = (rows(tmp_path / name) for name in ("whole", "parts"))
    told = [{key: value for key, value in row.items() if key.startswith("crafter/")} for row in one]
    assert told == [{key: value for key, value in row.items() if key.startswith("crafter/")} for row in two]
    rates = [100 * n / whole["achieved"]["episodes"] for n in whole["achieved"]["unlocked"]]
    assert told[-1]["crafter/score"] == pytest.approx(plain(rates))
    assert len(told[-1]) == 23


def test_an_evaluation_tells_the_score_of_its_held_out_episodes(tmp_path):
    words = [*CRAFTER, "method=random", "evaluate.episodes=12", "evaluate.videos=0"]
    assert controller.run(config(tmp_path, "random", *words)) == 0
    found = json.loads((tmp_path / "random/stages/evaluate/results.json").read_text())["achievements"]
    assert list(found["rates"]) == list(ACHIEVEMENTS)
    assert all(rate["n"] == 12 for rate in found["rates"].values())
    assert found["score"] == pytest.approx(plain([100 * rate["rate"] for rate in found["rates"].values()]))
    assert found["rates"]["collect_sapling"]["rate"] > 0


@pytest.mark.parametrize("name", ["crafter_board", "crafter_board_goals"])
def test_the_boards_experiments_run_and_their_page_shows_the_score(tmp_path, name):
    words = [f"experiment={name}", "env.length=40", "policy.channels=[2]", "actors.steps=16", "learner.minibatch=32"]
    words += ["learner.env_steps=512", "evaluate.every=0", "evaluate.episodes=4", "evaluate.videos=0"]
    assert controller.run(config(tmp_path, "it", *words)) == 0
    told, with_goals = rows(tmp_path / "it"), name.endswith("goals")
    assert told[-1]["crafter/score"] > 0
    assert ("rewards/goal" in told[-1]) == with_goals
    page = html.unescape((tmp_path / "it/report.html").read_text())
    assert "Crafter's board" in page
    assert re.search(rf"this run<[^>]*><[^>]*>{told[-1]['crafter/score']:.1f}<", page)
    assert "env.length=40 is another rule than the board's" in page
    assert ("a language model was told captions and suggested goals" in page) == with_goals
    assert ("pictures and goals" in page) == with_goals
