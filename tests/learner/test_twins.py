"""Trajectories that are nearly the same: none is missed, and none of a test is learned from."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from envs import navigation
from learner.behaviours.table import PARTS, split
from learner.behaviours.twins import Trajectories, groups, margin

SHIFTS = (0.0, 2.0, 5.0)


def wander(random, count, steps=60):
    """Robots that start at one place and turn slowly, as in the house: some stay near to each other for long."""
    heading = np.cumsum(random.normal(0, 0.15, (count, steps)), 1)
    step = np.stack([np.cos(heading), np.sin(heading)], -1) * 4
    return (300 + np.cumsum(step, 1)).astype(np.float32)


def apart(one, other):
    """Mean distances [N, M], the definition."""
    return np.linalg.norm(one[:, None].astype(np.float64) - other[None], axis=-1).mean(-1)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.floats(0.5, 40), st.integers(1, 60))
def test_pairs_within_a_distance_are_all_of_them(seed, within, steps):
    random = np.random.default_rng(seed)
    one, other = wander(random, 40, steps), wander(random, 30, steps)
    found = [pair for block in Trajectories(one).near(Trajectories(other), within) for pair in zip(*block, strict=True)]
    assert len(set(found)) == len(found)
    exact = apart(one, other)
    assert all(exact[pair] <= within + 1e-3 for pair in found)
    assert {tuple(pair) for pair in np.argwhere(exact <= within - 1e-3)} <= set(found)


def test_groups_are_what_twins_connect():
    random = np.random.default_rng(0)
    place = wander(random, 120)
    name = np.arange(120) * 10
    name[7] = name[3]  # a copy, wherever it drives
    found = groups(place, name, 20.0)
    linked = (apart(place, place) <= 20.0) | (name[:, None] == name)
    for _ in range(7):
        linked = (linked.astype(int) @ linked) > 0  # reached over any number of twins
    assert ((found[:, None] == found) == linked).all()
    assert 1 < len(np.unique(found)) < 119
    assert all(each == name[found == each].min() for each in np.unique(found))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 8), st.floats(0, 2 * np.pi))
def test_no_test_has_a_twin_that_is_learned_from(seed, asked, direction):
    """Every trajectory also comes shifted by 2 and by 5 units: all three are on the same side."""
    random = np.random.default_rng(seed)
    base = wander(random, 60)
    towards = np.array([np.cos(direction), np.sin(direction)], np.float32)
    place = np.concatenate([base + shift * towards for shift in SHIFTS])
    group = groups(place, np.arange(len(place)), 5.5)
    rows = random.permutation(len(place))[:asked]
    part = split(place, group, rows, 0.2, 15.0)
    test, learned = part == PARTS.index("test"), np.isin(part, (0, 1))
    assert test[rows].all()
    if learned.any():
        assert apart(place[test], place[learned]).min() > 15.0 - 1e-3
    of_base = part.reshape(len(SHIFTS), 60)
    assert (of_base == of_base[0]).all()


def test_behaviours_of_the_house_are_split_the_same_way():
    house = navigation.load()
    weights = np.random.default_rng(1).normal(0, 0.4, (300, navigation.PARAMETERS)).astype(np.float32)
    place = navigation.rollout(house, None, weights, 200)["pose"][..., :2]
    group = groups(place, np.arange(300), 5.5)
    part = split(place, group, np.arange(0, 300, 30), 0.1, 15.0)
    test, learned = part == PARTS.index("test"), np.isin(part, (0, 1))
    assert apart(place[test], place[learned]).min() > 15
    near = margin(place, group, test, 15.0)
    assert near.any()
    assert not (near & test).any()
    assert (part == PARTS.index("validation")).any()


def test_whether_a_group_is_for_validation_depends_on_it_alone():
    place = wander(np.random.default_rng(0), 4000, 5) + np.arange(4000, dtype=np.float32)[:, None, None] * 100
    group = np.arange(4000) * 7
    part = split(place, group, np.array([0]), 0.1, 15.0)
    assert 0.08 < (part == PARTS.index("validation")).mean() < 0.12
    half = split(place[::2], group[::2], np.array([0]), 0.1, 15.0)
    assert half.tolist() == part[::2].tolist()
    assert set(part[split(place, group, np.array([0]), 0.2, 15.0) == 0].tolist()) == {0}
