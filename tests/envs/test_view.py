"""The batched view equals Minigrid's, cell by cell, also on worlds that no level makes."""

import numpy as np
from minigrid.core.world_object import Ball, Box, Door, Key, Wall

from envs.babyai.levels import build
from envs.babyai.symbols import CODES, TRANSPARENT, TRIPLE, code_of, code_of_cell
from envs.babyai.view import Views

COLOURS = ["red", "green", "blue", "purple", "yellow", "grey"]


def random_cell(generator, walls):
    """Nothing, a wall, a door in any state, or an object."""
    colour = COLOURS[generator.integers(6)]
    roll = generator.random()
    if roll < walls:
        return Wall()
    if roll < walls + 0.15:
        state = generator.integers(3)
        return Door(colour, is_open=state == 0, is_locked=state == 2)
    if roll < walls + 0.3:
        return (Key, Ball, Box)[generator.integers(3)](colour)
    return None


def test_random_worlds_are_seen_as_minigrid_sees_them():
    generator = np.random.default_rng(5)
    level = build("GoToLocal")
    level.reset(seed=0)
    views = Views(1, level.width, level.height)
    hidden = 0
    for world in range(60):
        for x in range(level.width):
            for y in range(level.height):
                level.grid.set(x, y, random_cell(generator, walls=world % 6 * 0.1))
        level.carrying = (None, Key("red"), Box("grey"))[world % 3]
        for _ in range(8):  # anywhere, at the edge of the map and on doors too
            level.agent_pos = tuple(int(v) for v in generator.integers(0, 8, 2))
            level.agent_dir = int(generator.integers(4))
            views.load(0, level)
            expected = level.gen_obs()["image"]
            assert np.array_equal(views.images(np.array([0]))[0], expected)
            hidden += int((expected[..., 0] == 0).sum())
    assert hidden > 1000  # sight was blocked, so blocking was compared


def test_envs_do_not_see_each_other():
    levels = [build("GoTo") for _ in range(5)]
    views = Views(5, levels[0].width, levels[0].height)
    expected = []
    for i, level in enumerate(levels):
        level.reset(seed=i)
        views.load(i, level)
        expected.append(level.gen_obs()["image"])
    assert np.array_equal(views.images(np.arange(5)), expected)
    assert np.array_equal(views.images(np.array([3, 1])), [expected[3], expected[1]])


def test_codes_stand_for_cells():
    for code in range(CODES):
        assert code_of(*TRIPLE[code].tolist()) == code
    assert TRIPLE[code_of_cell(None)].tolist() == [1, 0, 0]
    for cell in (Wall(), Door("red"), Door("red", is_open=True), Door("red", is_locked=True), Box("green")):
        assert TRIPLE[code_of_cell(cell)].tolist() == list(cell.encode())
        assert TRANSPARENT[code_of_cell(cell)] == cell.see_behind()
