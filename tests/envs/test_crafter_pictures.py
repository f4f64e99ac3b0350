"""Our pictures are those of Crafter's own renderer, pixel by pixel, when both are given the same noise."""

import crafter
import numpy as np
import pytest
from crafter import objects
from PIL import Image, ImageEnhance

from envs.crafter.rules import AREA, ARROW, FACINGS, ITEMS, MATERIALS, MOST, OBJECTS, PLANT
from envs.native.crafter.layout import (
    AT_X,
    AT_Y,
    COUNT,
    FACING,
    FIRST,
    HEALTH,
    ITEM,
    KIND,
    MATERIAL,
    OBJECT,
    ROW,
    SLEEPING,
    STEP,
    X,
    Y,
)
from envs.native.crafter.picture import SIDE, _grey, _washed, daylight, draw, noise

CREATURES = ("cow", "zombie", "skeleton", "arrow", "plant")


class Grain:
    """Stands in for a world's random stream while it is drawn."""

    def __init__(self, seed, step):
        self.seed, self.step = seed, step

    def uniform(self, low, high, shape):
        assert (low, high) == (32, 127)
        out = np.empty(shape)
        noise(self.seed, self.step, out)
        return out


def rendered(env, seed, side=SIDE):
    """The simulator's picture, with our noise."""
    stream, env._world.random = env._world.random, Grain(seed, env._step)
    try:
        return env.render((side, side))
    finally:
        env._world.random = stream


def row_of(env):
    """What a picture shows of a simulator, as a row."""
    row, world, player = np.zeros(ROW, np.int16), env._world, env._player
    row[[X, Y]] = player.pos
    row[FACING], row[SLEEPING], row[STEP] = FACINGS.index(tuple(player.facing)), player.sleeping, env._step
    row[ITEM : ITEM + len(ITEMS)] = [player.inventory[name] for name in ITEMS]
    row[MATERIAL : MATERIAL + AREA * AREA] = world._mat_map.ravel()
    row[COUNT] = len(world.objects)
    for i, thing in enumerate(world.objects):
        kind = OBJECTS.index(type(thing).__name__.lower())
        row[KIND + i], row[HEALTH + i], (row[AT_X + i], row[AT_Y + i]) = kind, thing.health, thing.pos
        row[OBJECT + thing.pos[0] * AREA + thing.pos[1]] = i + 1
        if kind == ARROW:
            row[FIRST + i] = FACINGS.index(tuple(thing.facing))
        elif kind == PLANT:
            row[FIRST + i] = thing.grown
    return row


def drawn(rows, seeds, side=SIDE):
    out = np.full((len(rows), side, side, 3), 99, np.uint8)  # whatever the array held before
    draw(np.stack(rows), np.arange(len(rows)), np.array(seeds, np.int64), out)
    return out


def assert_same(ours, theirs):
    """Equal pictures; else where they are not, and by how much."""
    theirs = np.stack(theirs)
    wrong = np.argwhere(ours != theirs)
    assert not len(wrong), f"{len(wrong)} differ, the first at {wrong[0]}: {ours[*wrong[0]]}, not {theirs[*wrong[0]]}"


# ---- as games go ----------------------------------------------------------------------------------------------------


def play(seed, steps):
    """A game of random actions from a random time on, its player a little tired: rows and the simulator's pictures."""
    generator = np.random.default_rng(seed)
    env = crafter.Env(seed=seed)
    env.reset()
    env._obs = lambda: None  # what a step would draw is not looked at
    env._step = int(generator.integers(300))
    env._player.inventory["energy"] = 5
    rows, pictures = [], []
    for _ in range(steps):
        env._player.inventory["health"] = MOST
        env.step(generator.choice([1, 2, 3, 4, 5, 6, 10], p=[0.2, 0.2, 0.2, 0.2, 0.14, 0.01, 0.05]))
        rows.append(row_of(env))
        pictures.append(rendered(env, seed))
    return rows, pictures


def play_beside(seeds, steps):
    """Compare whole games. Returns how many pictures were by day, at night, and of a sleeper."""
    shown = np.zeros(3, int)
    for seed in seeds:
        rows, pictures = play(seed, steps)
        assert_same(drawn(rows, [seed] * steps), pictures)
        dark = daylight()[[row[STEP] for row in rows]] < 0.5
        shown += (~dark).sum(), dark.sum(), sum(row[SLEEPING] for row in rows)
    return shown.tolist()


def test_games_look_as_the_simulator_draws_them():
    by_day, at_night, asleep = play_beside(range(10), steps=100)
    assert min(by_day, at_night) > 200
    assert asleep > 50


@pytest.mark.slow
def test_long_games_look_as_the_simulator_draws_them():
    assert min(play_beside(range(100, 160), steps=300)) > 500


# ---- as they may be set up ------------------------------------------------------------------------------------------


class Stage:
    """A simulator whose world is what the test wants."""

    def __init__(self):
        self.env = crafter.Env(seed=0)
        self.env.reset()

    def set(self, generator, step=None):
        """Any material, a quarter of the cells with any object on it, any time, inventory, place and sleep."""
        env, world = self.env, self.env._world
        world.reset(seed=0)
        world._mat_map[:] = generator.integers(1, len(MATERIALS), world._mat_map.shape)
        at = generator.integers(-20, AREA + 20, 2).clip(0, AREA - 1)  # at the edges of the map often
        env._player = player = objects.Player(world, at)
        player.facing, player.sleeping = FACINGS[generator.integers(4)], bool(generator.random() < 0.2)
        player.inventory = {name: int(generator.integers(MOST + 1)) for name in ITEMS}
        world.add(player)
        for x in range(max(0, at[0] - 5), min(AREA, at[0] + 6)):
            for y in range(max(0, at[1] - 4), min(AREA, at[1] + 5)):
                if generator.random() < 0.25 and (x, y) != tuple(at):
                    world.add(self.thing(generator, np.array((x, y))))
        env._step = int(generator.integers(1 << 15)) if step is None else step
        env._update_time()
        return row_of(env)

    def thing(self, generator, pos):
        world, name = self.env._world, generator.choice(CREATURES)
        if name == "arrow":
            return objects.Arrow(world, pos, np.array(FACINGS[generator.integers(4)]))
        if name == "plant":
            plant = objects.Plant(world, pos)
            plant.grown = int(generator.choice([0, 300, 301, 5000]))
            return plant
        if name == "cow":
            return objects.Cow(world, pos)
        return {"zombie": objects.Zombie, "skeleton": objects.Skeleton}[name](world, pos, self.env._player)


@pytest.fixture(scope="module")
def stage():
    return Stage()


def cells_in_view(row):
    """(looks, material) of every cell with an object; looks hold all that a texture may depend on."""
    for x in range(max(0, row[X] - 4), min(AREA, row[X] + 5)):
        for y in range(max(0, row[Y] - 3), min(AREA, row[Y] + 4)):
            number = row[OBJECT + x * AREA + y]
            if number:
                kind, state = row[KIND + number - 1], row[FIRST + number - 1]
                own = (row[SLEEPING], not row[SLEEPING] and row[FACING]) if OBJECTS[kind] == "player" else ()
                yield (kind, state > 300 if kind == PLANT else state, *own), row[MATERIAL + x * AREA + y]


def test_any_world_looks_as_the_simulator_draws_it(stage):
    generator = np.random.default_rng(2)
    rows, pictures = [], []
    for seed in range(600):
        rows.append(stage.set(generator))
        pictures.append(rendered(stage.env, seed))
    assert_same(drawn(rows, range(600)), pictures)
    looks = {cell for row in rows for cell in cells_in_view(row)}
    assert len({look for look, _ in looks}) == 14
    assert len(looks) == 14 * (len(MATERIALS) - 1)  # everything stood on everything
    amounts = {(item, row[ITEM + item]) for row in rows for item in range(len(ITEMS))}
    assert len(amounts) == len(ITEMS) * (MOST + 1)
    beyond = [(row[X] < 4) + 2 * (row[X] > 59) + 4 * (row[Y] < 3) + 8 * (row[Y] > 60) for row in rows]
    assert set(beyond) == {0, 1, 2, 4, 8, 5, 6, 9, 10}  # each edge and each corner of the map


@pytest.mark.parametrize("step", range(0, 300, 12))
def test_any_time_looks_as_the_simulator_draws_it(stage, step):
    generator = np.random.default_rng(step)
    rows, pictures = [], []
    for seed in range(8):
        rows.append(stage.set(generator, step + 300 * seed))
        pictures.append(rendered(stage.env, seed))
    assert_same(drawn(rows, range(8)), pictures)


@pytest.mark.parametrize("side", [18, 63, 64, 71, 90, 144, 150, 300])
def test_pictures_of_any_size(stage, side):
    generator = np.random.default_rng(side)
    rows, pictures = [], []
    for seed in range(12):
        rows.append(stage.set(generator))
        pictures.append(rendered(stage.env, seed, side))
    assert_same(drawn(rows, range(12), side), pictures)


@pytest.mark.parametrize("shape", [(1, 64, 64, 3), (2, 64, 63, 3), (2, 17, 17, 3), (2, 64, 64, 4)])
def test_pictures_that_cannot_be_are_refused(stage, shape):
    rows = np.zeros((2, ROW), np.int16)
    with pytest.raises(ValueError, match="pictures of 2 worlds fill"):
        draw(rows, np.arange(2), np.zeros(2, np.int64), np.zeros(shape, np.uint8))


def test_drawing_changes_nothing_and_worlds_do_not_see_each_other(stage):
    generator = np.random.default_rng(4)
    rows = np.stack([stage.set(generator) for _ in range(20)])
    before = rows.copy()
    alone = np.concatenate([drawn([row], [seed]) for seed, row in enumerate(rows)])
    index = generator.integers(0, 20, 50)  # in any order, some of them twice
    out = np.empty((50, SIDE, SIDE, 3), np.uint8)
    draw(rows, index, index, out)
    assert np.array_equal(out, alone[index])
    assert np.array_equal(rows, before)


# ---- light and noise ------------------------------------------------------------------------------------------------


def test_daylight_is_the_simulators_to_the_last_bit(stage):
    for step, bright in enumerate(daylight().tolist()):
        stage.env._step = step
        stage.env._update_time()
        assert stage.env._world.daylight == bright, step


def test_noise_follows_from_seed_and_step():
    grains = {}
    for seed in (0, 1, 2, 10**9, (1 << 48) - 1):
        for step in (0, 1, 2, 299, 32767):
            grains[seed, step] = np.empty((63, 49))
            noise(seed, step, grains[seed, step])
    again = np.empty((63, 49))
    noise(1, 299, again)
    assert np.array_equal(again, grains[1, 299])
    numbers = np.stack([grain.ravel() for grain in grains.values()])
    assert numbers.min() >= 32
    assert numbers.max() < 127
    assert len(np.unique(numbers)) > 0.999 * numbers.size  # no two streams overlap
    assert abs(np.corrcoef(numbers) - np.eye(len(numbers))).max() < 0.1
    assert np.all(abs(np.histogram(numbers, 10, (32, 127))[0] / numbers.size - 0.1) < 0.005)


def test_noise_is_seen_at_night_only(stage):
    by_day = stage.set(np.random.default_rng(1), step=60)
    at_night = stage.set(np.random.default_rng(1), step=210)
    assert daylight()[60] > 0.5 > daylight()[210]
    assert np.array_equal(drawn([by_day], [1]), drawn([by_day], [2]))
    assert not np.array_equal(drawn([at_night], [1]), drawn([at_night], [2]))


def test_colours_fade_as_pillow_fades_them():
    colours = np.random.default_rng(0).integers(0, 256, (100, 200, 3)).astype(np.uint8)
    colours[0, :2] = (0, 0, 0), (255, 255, 255)
    faded = np.asarray(ImageEnhance.Color(Image.fromarray(colours)).enhance(0.4)).reshape(-1, 3).tolist()
    for colour, expected in zip(colours.reshape(-1, 3).tolist(), faded, strict=True):
        assert [_washed(_grey(*colour), channel) for channel in colour] == expected
    grey, channel = (part.astype(np.uint8) for part in np.indices((256, 256)))
    every_pair = np.asarray(Image.blend(Image.fromarray(grey), Image.fromarray(channel), 0.4)).ravel().tolist()
    assert [_washed(g, c) for g in range(256) for c in range(256)] == every_pair
