"""Coverage and QD score by hand, and what may be searched for: descriptors and qualities, also one that is added."""

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.behaviours.novelty import EvaluatorSetup, NoveltyEvaluator
from cluster.config.overrides import ConfigError
from cluster.config.tree import compose
from envs import navigation
from envs.navigation import PARAMETERS
from learner.search import descriptors, qualities
from learner.search.descriptors import descriptor, with_room
from learner.search.qualities import quality
from learner.search.quality_diversity import Tally
from learner.search.rollout import Rollout, play
from tests.extending import example

HOUSE = navigation.load()
SQUARE = np.array([[0.0, 100.0]] * 2)


def policies(count, seed=0):
    return np.random.default_rng(seed).normal(0, 0.4, (count, PARAMETERS)).astype(np.float32)


def driven(*ways):
    """A rollout of robots that were at these places, whose actions are all 1."""
    pose = np.zeros((len(ways), len(ways[0]), 3), np.float32)
    pose[:, :, :2] = ways
    action, weights = np.ones((*pose.shape[:2], 2), np.float32), np.zeros((len(ways), PARAMETERS), np.float32)
    return Rollout(HOUSE, weights, pose[:, 0], pose, action)


# ---- scores ----------------------------------------------------------------------------------------------------------


def test_scores_by_hand():
    """A square of 2 by 2 cells, one of which nobody can reach; qualities from -16 on."""
    tally = Tally(2, SQUARE, np.array([True, True, True, False]), -16.0)
    assert tally.scores() == (0.0, 0.0, None)
    tally.add(np.array([[10.0, 10.0], [20.0, 40.0], [60.0, 10.0]]), np.array([-3.0, -1.0, -10.0]))
    assert tally.scores() == (2 / 3, 15.0 + 6.0, -1.0)
    tally.add(np.array([[99.0, 99.0]]), np.array([0.0]))  # nothing true lies there
    assert tally.scores() == (2 / 3, 21.0, -1.0)
    tally.add(np.array([[61.0, 11.0], [0.0, 100.0]]), np.array([-4.0, -16.0]))
    assert tally.scores() == (1.0, 15.0 + 12.0 + 0.0, -1.0)
    assert tally.count.tolist() == [2, 2, 1, 1]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(-9, 109), st.floats(-9, 109), st.floats(-16, 0)), max_size=30), st.randoms())
def test_more_behaviours_never_lower_a_score(entries, order):
    reachable = np.random.default_rng(0).random(25) < 0.7
    tally, last = Tally(5, SQUARE, reachable, -16.0), (0.0, 0.0, -np.inf)
    for x, y, value in entries:
        tally.add(np.array([[x, y]]), np.array([value]))
        scores = tally.scores()
        assert scores.coverage >= last[0]
        assert scores.qd_score >= last[1]
        assert scores.best_quality is None or scores.best_quality >= last[2]
        last = (scores.coverage, scores.qd_score, -np.inf if scores.best_quality is None else scores.best_quality)
    assert 0 <= last[0] <= 1
    assert last[1] <= reachable.sum() * 16
    shuffled, again = order.sample(entries, len(entries)), Tally(5, SQUARE, reachable, -16.0)
    again.add(np.array([e[:2] for e in shuffled]).reshape(-1, 2), np.array([e[2] for e in shuffled]))
    np.testing.assert_allclose(again.best, tally.best)
    assert again.count.tolist() == tally.count.tolist()


# ---- cells that can be reached ---------------------------------------------------------------------------------------


def test_reachable_cells_have_room_and_a_way_to_them():
    """A house of two rooms, with and without a door: a robot of radius 10 starts in the left one."""
    walls = np.zeros((100, 100), bool)
    walls[[0, -1]] = walls[:, [0, -1]] = walls[:, 48:52] = True
    shut = navigation.Map(600.0, walls, (120.0, 300.0, 0.0), (500.0, 300.0))
    walls = walls.copy()
    walls[40:60] = False
    walls[:, [0, -1]] = True
    door = navigation.Map(600.0, walls, (120.0, 300.0, 0.0), (500.0, 300.0))
    left = with_room(shut, 10).reshape(10, 10)  # [y, x]
    assert left[1:9, 1:4].all()
    assert not left[:, 5:].any()
    both = with_room(door, 10).reshape(10, 10)
    assert both[1:9, 1:4].all()
    assert both[1:9, 6:9].all()
    assert both[4:6, 4:6].all()
    assert descriptor("end_halfway").reachable(HOUSE).sum() == with_room(HOUSE, 5).sum() ** 2


def test_no_behaviour_ends_in_a_cell_that_counts_as_out_of_reach():
    rollout = play(HOUSE, policies(3000), 300)
    for name in ("end", "halfway", "end_halfway"):
        found = descriptor(name)
        tally = Tally(found.cells, found.bounds(HOUSE), found.reachable(HOUSE), 0.0)
        tally.add(found.describe(rollout), np.ones(3000))
        assert tally.count[~tally.reachable].sum() == 0, name
        assert tally.scores().qd_score == np.isfinite(tally.best).sum() > 10


# ---- descriptors and qualities ---------------------------------------------------------------------------------------


def test_descriptors_are_places_at_moments():
    rollout = play(HOUSE, policies(20), 61)
    end, halfway = rollout.pose[:, -1, :2], rollout.pose[:, 30, :2]
    assert descriptor("end").describe(rollout).tolist() == end.tolist()
    assert descriptor("halfway").describe(rollout).tolist() == halfway.tolist()
    assert descriptor("end_halfway").describe(rollout).tolist() == np.concatenate([end, halfway], 1).tolist()
    assert descriptor("end_halfway").names == ("end_x", "end_y", "halfway_x", "halfway_y")


@pytest.mark.parametrize("name", descriptors.names())
def test_every_descriptor_keeps_its_word(name):
    found, rollout = descriptor(name), play(HOUSE, policies(50), 80)
    values, bounds = found.describe(rollout), found.bounds(HOUSE)
    assert (values.shape, values.dtype) == ((50, len(found.names)), np.float64)
    assert np.isfinite(values).all()
    assert bounds.shape == (len(found.names), 2)
    assert (bounds[:, 0] < bounds[:, 1]).all()
    reachable = found.reachable(HOUSE)
    assert reachable.shape == (found.cells ** len(found.names),)
    assert reachable.any()


@pytest.mark.parametrize("name", qualities.names())
def test_every_quality_keeps_its_word(name):
    found, rollout = quality(name), play(HOUSE, policies(50), 80)
    values = found.of(rollout)
    assert (values.shape, values.dtype) == ((50,), np.float32)
    assert np.isfinite(values).all()
    assert (values >= found.lowest).all()
    few = Rollout(HOUSE, *(array[7:9] for array in (rollout.weights, rollout.start, rollout.pose, rollout.action)))
    assert found.of(few).tolist() == values[7:9].tolist()  # whoever else is played


def test_qualities_by_hand():
    corner = [(100, 100), (130, 100), (130, 140)]
    rollout = driven(corner, [(100, 100), (120, 100), (140, 100)], [(100, 100)] * 3)
    assert quality("straight").of(rollout).tolist() == pytest.approx([50 / 70, 1.0, 0.0])
    assert quality("calm").of(rollout).tolist() == [-1.0] * 3


def test_stable_is_how_far_ends_are_apart():
    """Robots that stand still end as far from each other as they start."""
    still = np.zeros((2, PARAMETERS), np.float32)
    assert quality("stable").of(play(HOUSE, still, 10)).tolist() == pytest.approx([-10 / (600 * 2**0.5)] * 2, rel=1e-3)
    weights = policies(5)
    values = quality("stable").of(play(HOUSE, weights, 50))
    end = play(HOUSE, weights, 50).pose[:, -1, :2]
    moved = [
        play(HOUSE, weights, 50, np.array(HOUSE.start, np.float32) + np.array(offset, np.float32)).pose[:, -1, :2] - end
        for offset in ((10, 0, 0), (-10, 0, 0), (0, 10, 0.1), (0, -10, -0.1))
    ]
    expected = -np.linalg.norm(moved, axis=-1).mean(0) / (600 * 2**0.5)
    np.testing.assert_allclose(values, expected, rtol=1e-4)
    wall = np.array([[43.0, 450.0, 0.0]], np.float32)  # ten units to the left is no room: that start is left out
    assert navigation.free(HOUSE, wall + np.array([[0, 0, 0], [-10, 0, 0]])).tolist() == [True, False]
    assert quality("stable").of(play(HOUSE, still[:1], 10, wall)).tolist() == pytest.approx([-10 / (600 * 2**0.5)])


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("descriptor=halfwya", r"method\.search\.descriptor: there is no 'halfwya': did you mean halfway\?"),
        ("quality=xyz", r"method\.search\.quality: there is no 'xyz': choose from calm, stable, straight"),
    ],
)
def test_unknown_names_are_one_sentence(word, reason):
    with pytest.raises(ConfigError, match=reason):
        compose(["method=lgqd", "env=navigation", f"method.search.{word}"])


def test_a_descriptor_and_a_quality_are_a_file_each(tmp_path, monkeypatch):
    """Those of the page on extensions."""
    for package, name in ((descriptors, "turning"), (qualities, "early")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / f"{name}.py").write_text(example(f"{package.__name__.replace('.', '/')}/{name}.py"))
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
        monkeypatch.delitem(sys.modules, f"{package.__name__}.{name}", raising=False)
    words = ["method=lgqd", "env=navigation", "method.search.descriptor=turning", "method.search.quality=early"]
    chosen = compose(words).method.search
    weights = policies(9)
    played = NoveltyEvaluator(EvaluatorSetup("", 60, chosen.descriptor, chosen.quality)).play(weights)
    rollout = play(HOUSE, weights, 60)
    assert played.descriptor.tolist() == descriptor("turning").describe(rollout).tolist()
    assert played.quality.tolist() == quality("early").of(rollout).tolist()
