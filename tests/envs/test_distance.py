"""The distance to the target, which only the world knows: equal in both engines, and what its name says."""

import numpy as np
import pytest

import envs
from envs.babyai import Expert, names

TEXT = [name for name in names() if name.startswith("Text-")]


def lived(level, seed, noise=0.2, steps=800, most=3):
    """An episode of Minigrid's bot with some random actions, in both engines: observations, rewards, simulators."""
    options = {"distance": True}
    reference = envs.make(f"babyai/{level}", 1, engine="minigrid", **options)
    native = envs.make(f"babyai/{level}", 1, levels="exact", **options)
    expert, random = Expert(), np.random.default_rng(seed)
    obs = [env.begin(np.array([seed])) for env in (reference, native)]
    for _ in range(steps):
        np.testing.assert_array_equal(obs[0]["distance"], obs[1]["distance"])
        yield obs[1]["distance"].item() * native.room, 0.0, reference
        action = random.integers(0, most, 1) if random.random() < noise else expert.act(reference)
        both = [env.advance(action) for env in (reference, native)]
        obs = [transition.obs for transition in both]
        if len(both[0].final_index):
            last = [transition.final_obs["distance"] for transition in both]
            np.testing.assert_array_equal(*last)
            yield last[1].item() * native.room, both[0].reward.item(), None
            return


def test_there_are_seventeen_levels_with_named_targets():
    assert len(TEXT) == 17


@pytest.mark.parametrize("level", TEXT)
def test_it_ends_at_nothing_where_the_mission_is_accomplished(level):
    told = list(lived(level, seed=3))
    (*_, (last, reward, _)) = told
    assert reward > 0
    assert last == pytest.approx(0, abs=1e-5)
    assert max(cells for cells, _, _ in told) > 3
    # a step of one cell, but where the next goal's turn begins
    apart = np.abs(np.diff([cells for cells, _, _ in told]))
    assert (apart > 1.5).sum() <= ("GoTo-" in level)


@pytest.mark.parametrize("level", ["PutNextLocal", "PickUpSeqPickUpLocal", "SynthSeq", "MixedTrainLocal"])
def test_both_engines_tell_the_same_of_missions_of_every_kind(level):
    assert sum(len(list(lived(level, seed, steps=120, most=6))) for seed in range(3)) > 30


@pytest.mark.parametrize("seed", range(3))
def test_it_is_counted_from_the_nearest_thing_that_the_mission_names(seed):
    """By the map and the sentence alone."""
    for cells, _, reference in lived("GoToLocal", seed, noise=0.5):
        if reference is None:
            return
        simulator = reference.simulator(0)
        _, _, _, colour, noun = simulator.mission.split()
        x, y = simulator.agent_pos
        places = [(i, j) for i in range(8) for j in range(8)
                  if (thing := simulator.grid.get(i, j)) and (thing.color, thing.type) == (colour, noun)]  # fmt: skip
        if places and simulator.carrying is None:
            assert cells == pytest.approx(min(abs(i - x) + abs(j - y) for i, j in places) - 1, abs=1e-4)


def test_drawn_levels_tell_it_too():
    world = envs.make("babyai/Text-GoTo-RedBallBlueBox-S20", 64, 1, levels="native", distance=True)
    assert world.drawn
    distance = world.begin()["distance"]
    assert distance.dtype == np.float32
    assert distance.shape == (64, 1)
    assert 0 <= distance.min() < 0.2
    assert 0.4 < distance.max() <= 33 / 40
