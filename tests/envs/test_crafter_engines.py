"""Both engines of Crafter are one game, row by row and random number by random number, and that game is Crafter."""

from dataclasses import replace

import crafter
import numpy as np
import pytest
from crafter import objects
from hypothesis import given
from hypothesis import strategies as st

import envs
from envs.crafter.rules import (
    ACHIEVEMENTS,
    AREA,
    CRAFTER,
    FACINGS,
    GAME_ACTIONS,
    GRASS,
    ITEMS,
    MATERIALS,
    OBJECTS,
    WATER,
)
from envs.native.crafter import layout as at
from envs.native.crafter.objects import add
from envs.native.crafter.twister import below, sow, uniform
from envs.native.crafter.world import NativeCrafter

READ = ("symbols", "inventory", "achieved", "ahead", "sleeping", "effect")  # what the world above an engine reads
WALK = np.array([1, 8, 8, 8, 8, 30, 2, *[2] * 10]) / 85  # meets things and does something to them
NAMES = ["Standard", "Text"]  # Crafter's rules, and those with other damage and price
ENGINES = ["native", "crafter"]


def both(seeds, name="Standard"):
    """The two engines at the beginning of the same episodes: compiled, reference."""
    pair = [envs.make(f"crafter/{name}", len(seeds), engine=engine, observe=["symbols"]) for engine in ENGINES]
    for env in pair:
        env.begin(np.array(seeds))
    return pair


def row_of(simulator):
    """State of one of the simulator's environments as a row and a random row, as `layout` says."""
    world, player = simulator._world, simulator._player
    row = np.zeros(at.ROW, np.int16)
    row[[at.X, at.Y]] = player.pos
    row[at.FACING] = FACINGS.index(tuple(player.facing))
    row[at.SLEEPING] = player.sleeping
    row[[at.HUNGER, at.THIRST, at.RECOVER]] = [2 * player._hunger, 2 * player._thirst, 2 * player._recover]
    row[[at.FATIGUE, at.LAST_HEALTH, at.STEP]] = [player._fatigue, player._last_health, simulator._step]
    row[at.ITEM : at.ITEM + len(ITEMS)] = [player.inventory[item] for item in ITEMS]
    row[at.ACHIEVED : at.ACHIEVED + len(ACHIEVEMENTS)] = [player.achievements[name] for name in ACHIEVEMENTS]
    row[at.CHUNKS] = len(world._chunks)
    for place, (x, _, y, _) in enumerate(world._chunks):
        row[at.CHUNK_NUMBER + place] = x // 12 * 6 + y // 12
    row[at.COUNT] = len(world.objects)
    for place, thing in enumerate(world.objects):
        kind, (x, y) = type(thing).__name__.lower(), thing.pos
        first = {"zombie": "cooldown", "skeleton": "reload", "plant": "grown"}.get(kind)
        row[at.KIND + place] = OBJECTS.index(kind)
        row[[at.AT_X + place, at.AT_Y + place]] = x, y
        row[at.HEALTH + place] = 0 if kind == "player" else thing.health
        row[at.FIRST + place] = getattr(thing, first) if first else 0
        if kind == "arrow":
            row[at.FIRST + place] = FACINGS.index(tuple(thing.facing))
        row[at.OBJECT + x * AREA + y] = place + 1
    row[at.MATERIAL : at.OBJECT] = world._mat_map.ravel()
    _, words, used, *_ = world.random.get_state()
    return row, np.append(words, np.uint32(used))


def assert_same(native, reference, message=""):
    for i, simulator in enumerate(reference.simulators):
        row, random = row_of(simulator)
        different = np.flatnonzero(native.rows[i] != row)
        assert not len(different), (message, i, different, native.rows[i, different], row[different])
        assert np.array_equal(native.randoms[i], random), (message, i)
    for name in READ:
        np.testing.assert_array_equal(getattr(native, name), getattr(reference, name), f"{message} {name}")


# ---- random numbers --------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 2**31 - 1), max_size=900))
def test_the_twister_is_numpys(seed, ranges):
    """0 stands for a uniform number, n for one below n."""
    ours, theirs = np.zeros(at.RANDOM, np.uint32), np.random.RandomState(seed)
    sow(ours, seed)
    for n in ranges:
        if n:
            assert below(ours, n) == theirs.randint(0, n)
        else:
            assert uniform(ours) == theirs.uniform()
    _, words, used, *_ = theirs.get_state()
    assert np.array_equal(ours, np.append(words, np.uint32(used)))


def test_the_twister_is_numpys_for_long():
    for seed in (0, 1, 2**31 - 2, 2**32 - 1):
        ours, theirs = np.zeros(at.RANDOM, np.uint32), np.random.RandomState(seed)
        sow(ours, seed)
        assert [uniform(ours) for _ in range(3000)] == theirs.uniform(size=3000).tolist()


# ---- new worlds ------------------------------------------------------------------------------------------------------


def generate_beside(seeds):
    native = envs.make("crafter/Standard", len(seeds), observe=["symbols"])
    native.begin(np.array(seeds))
    plain = crafter.Env()
    for i, seed in enumerate(seeds):
        plain._seed, plain._episode = seed, 0
        plain.reset()
        row, random = row_of(plain)
        assert np.array_equal(native.rows[i], row), seed
        assert np.array_equal(native.randoms[i], random), seed


def test_worlds_are_the_simulators():
    generate_beside([*range(18), 999_999_999, 2**40, 2**63 - 1])


@pytest.mark.slow
def test_worlds_are_the_simulators_for_long():
    generate_beside(range(100, 300))


# ---- play ------------------------------------------------------------------------------------------------------------


def stir(simulator, random):
    """Turn one of the simulator's worlds over, so that what is rare in play happens soon."""
    world, player = simulator._world, simulator._player
    simulator._step = int(random.integers(0, 700))
    for item in ITEMS:
        player.inventory[item] = int(random.integers(1, 10) if item in ITEMS[:4] else random.choice([0, 1, 5, 9]))
    player.inventory["energy"] = int(random.choice([1, 8, 9]))
    player._hunger, player._thirst = int(random.integers(0, 26)), int(random.integers(0, 21))
    player._fatigue, player._recover = int(random.integers(-10, 31)), int(random.integers(-15, 26))
    place = random.integers(0, AREA, 2)
    place[random.integers(2)] = random.choice([0, 1, AREA - 1, AREA // 2])
    if random.random() < 0.5 and world[place][1] is None:
        world.move(player, place)
    x, y = player.pos
    for material in ("table", "furnace"):
        beside = player.pos + FACINGS[random.integers(4)]
        if random.random() < 0.3 and world[beside][0]:
            world[beside] = material
    if len(world.objects) > 300:
        return
    for cell in ((x + dx, y + dy) for dx in range(-4, 5) for dy in range(-3, 4)):
        if world[cell][0] is None or world[cell][1] is not None:
            continue
        if random.random() < 0.4:
            world[cell] = MATERIALS[random.choice([1, 2, 2, 2, 3, 4, 4, 5, 6, 7, 8, 9, 10, 11, 12])]
        if random.random() < 0.15:
            thing = [objects.Cow, objects.Plant][random.integers(2)](world, cell)
            if random.random() < 0.6:
                thing = [objects.Zombie, objects.Skeleton][random.integers(2)](world, cell, player)
            elif random.random() < 0.3:
                thing = objects.Arrow(world, cell, np.array(FACINGS[random.integers(4)]))
            if isinstance(thing, objects.Plant):
                thing.grown = int(random.choice([0, 290, 301, 400]))
            thing.health = int(random.integers(0, 5))
            world.add(thing)


def play_beside(seeds, steps, name, stirred):
    """Play both engines and compare all that they are after every step. Returns which achievements were made."""
    native, reference = both(seeds, name)
    assert_same(native, reference)
    random = np.random.default_rng(seeds[0])
    made = np.zeros(len(ACHIEVEMENTS), bool)
    everyone = np.arange(len(seeds))
    for step in range(steps):
        if stirred and step % 20 == 0:
            for i, simulator in enumerate(reference.simulators):
                stir(simulator, random)
                native.rows[i], native.randoms[i] = row_of(simulator)
        actions = random.choice(17, len(seeds), p=WALK)
        if step % 20 == 12:
            actions[::3] = GAME_ACTIONS.index("sleep")
        native._act(everyone, actions)
        reference._act(everyone, actions)
        assert_same(native, reference, f"seeds {seeds}, step {step}")
        made |= (native.achieved > 0).any(0)
    return made


@pytest.mark.parametrize("name", NAMES)
def test_the_engines_are_one_game(name):
    play_beside(range(6), 200, name, stirred=False)


def test_the_engines_are_one_game_in_all_that_can_happen():
    made = np.zeros(len(ACHIEVEMENTS), bool)
    for name in NAMES:
        made |= play_beside(range(10, 20), 200, name, stirred=True)
    assert made.all(), [name for name, seen in zip(ACHIEVEMENTS, made, strict=True) if not seen]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("stirred", [False, True])
def test_the_engines_are_one_game_for_long(name, stirred):
    for first in range(1000, 1050, 10):
        play_beside(range(first, first + 10), 1000, name, stirred)


# ---- the reference is Crafter ----------------------------------------------------------------------------------------


class Plain(crafter.Env):
    """The simulator as it is; `drawn` tells that a creature was drawn from a set, in whatever order that was."""

    drawn = False

    def _balance_object(self, chunk, objs, cls, *rest):
        choices, before = sum(isinstance(thing, cls) for thing in objs), self._world.random.get_state()[2]
        super()._balance_object(chunk, objs, cls, *rest)
        words = (self._world.random.get_state()[2] - before) % 624
        self.drawn |= choices > 1 and words > 2  # a chance takes two


class Ordered(crafter.Env):
    """The simulator without pictures, with the creatures of a chunk in order."""

    drawn = False

    def _balance_object(self, chunk, objs, cls, *rest):
        order = {id(thing): place for place, thing in enumerate(self._world.objects)}
        super()._balance_object(chunk, sorted(objs, key=lambda thing: order[id(thing)]), cls, *rest)

    def _obs(self):
        return None


def follow(simulator, seeds, steps):
    """The reference beside a simulator, until a creature is drawn from a set: how many steps they were equal."""
    reference = envs.make("crafter/Standard", 1, engine="crafter", observe=["symbols"])
    equal = 0
    for seed in seeds:
        reference.begin(np.array([seed]))
        simulator._seed, simulator._episode, simulator.drawn = seed, 0, False
        simulator.reset()
        random = np.random.default_rng(seed)
        for step in range(steps):
            action = random.choice(17, 1, p=WALK)
            simulator.step(action[0])
            reference._act(np.array([0]), action)
            if simulator.drawn:
                break
            for ours, theirs in zip(row_of(reference.simulators[0]), row_of(simulator), strict=True):
                assert np.array_equal(ours, theirs), (seed, step)
            equal += 1
    return equal


def test_the_reference_is_crafter_by_day():
    """At night the simulator draws its pictures' noise from the world's stream, which we do not."""
    assert follow(Plain(), range(20), 147) >= 200


def test_the_reference_is_crafter_but_for_pictures_and_order():
    assert follow(Ordered(), range(3), 450) == 3 * 450


@pytest.mark.parametrize("engine", ENGINES)
def test_looking_does_not_change_the_game(engine):
    looked, other = (envs.make("crafter/Standard", 1, engine=engine, observe=["symbols"]) for _ in range(2))
    random = np.random.default_rng(0)
    for env in (looked, other):
        env.begin(np.array([3]))
    for step in range(240):
        if step > 180:
            looked.frame(0)
        action = random.choice(17, 1, p=WALK)
        for env in (looked, other):
            env._act(np.array([0]), action)
        assert np.array_equal(looked.symbols, other.symbols)


def test_people_are_shown_the_same_by_both_engines():
    pictures = []
    for engine in ENGINES:
        env = envs.make("crafter/Standard", 1, engine=engine, observe=["symbols"])
        env.begin(np.array([3]))
        pictures.append(env.frame(0))
    assert pictures[0].shape == (126, 126, 3)
    assert np.array_equal(*pictures)


# ---- worlds side by side ---------------------------------------------------------------------------------------------


def test_worlds_do_not_know_each_other():
    seeds = np.array([5, 6, 7, 8])
    together = envs.make("crafter/Standard", 4, observe=["symbols"])
    together.begin(seeds)
    actions = np.random.default_rng(1).choice(17, (150, 4), p=WALK)
    for action in actions:
        together._act(np.arange(4), action)
    for i in (3, 1):
        alone = envs.make("crafter/Standard", 2, observe=["symbols"])
        alone.begin(seeds[[0, i]])
        for action in actions:
            alone._act(np.array([1]), action[[i]])
        assert np.array_equal(alone.rows[1], together.rows[i])
        assert np.array_equal(alone.randoms[1], together.randoms[i])
        for name in READ:
            assert np.array_equal(getattr(alone, name)[1], getattr(together, name)[i]), name
    assert alone.rows[0, at.STEP] == 0


def test_another_seed_is_another_world():
    native, _ = both([1, 2, 1])
    assert np.array_equal(native.rows[0], native.rows[2])
    assert not np.array_equal(native.rows[0], native.rows[1])


# ---- what counts as an effect ----------------------------------------------------------------------------------------

AHEAD = (32, 33)  # of a player who has just begun


def hold(**items):
    return lambda world, player: player.inventory.update(items)


def ground(material, place=AHEAD):
    return lambda world, player: world.__setitem__(place, material)


def stand(kind, **state):
    def put(world, player):
        thing = kind(world, AHEAD, player) if kind in (objects.Zombie, objects.Skeleton) else kind(world, AHEAD)
        vars(thing).update(state)
        world.add(thing)

    return put


def arrow(world, player):
    world.add(objects.Arrow(world, AHEAD, np.array((0, 1))))


def at_edge(world, player):
    world.move(player, (0, 32))


def at_bottom(world, player):
    world.move(player, (32, 63))


def asleep(world, player):
    player.sleeping = True


EFFECTS = [
    ("noop", [], False),
    ("move_left", [], True),
    ("move_left", [ground("stone", (31, 32))], False),
    ("move_down", [ground("lava")], True),
    ("move_down", [stand(objects.Cow)], False),
    ("move_down", [at_bottom], False),
    ("do", [at_bottom], False),
    ("do", [ground("tree")], True),
    ("do", [ground("tree"), hold(wood=8)], True),
    ("do", [ground("tree"), hold(wood=9)], False),
    ("do", [ground("stone")], False),
    ("do", [ground("stone"), hold(wood_pickaxe=1)], True),
    ("do", [ground("stone"), hold(wood_pickaxe=1, stone=9)], False),
    ("do", [ground("coal"), hold(wood_pickaxe=1)], True),
    ("do", [ground("iron"), hold(wood_pickaxe=1)], False),
    ("do", [ground("iron"), hold(stone_pickaxe=1)], True),
    ("do", [ground("diamond"), hold(stone_pickaxe=1)], False),
    ("do", [ground("diamond"), hold(iron_pickaxe=1)], True),
    ("do", [ground("water"), hold(drink=8)], True),
    ("do", [ground("water")], False),
    ("do", [ground("table")], False),
    ("do", [ground("grass"), hold(sapling=9)], False),
    ("do", [stand(objects.Cow)], True),
    ("do", [stand(objects.Zombie)], True),
    ("do", [stand(objects.Skeleton)], True),
    ("do", [arrow], False),
    ("do", [stand(objects.Plant, grown=300)], False),
    ("do", [stand(objects.Plant, grown=301)], True),
    ("sleep", [], False),
    ("sleep", [hold(energy=8)], True),
    ("sleep", [hold(energy=8), asleep], True),
    ("do", [ground("tree"), hold(energy=8), asleep], False),
    ("do", [stand(objects.Cow), hold(energy=8), asleep], False),
    ("move_left", [hold(energy=8), asleep], False),
    ("move_left", [asleep], True),  # well rested, it wakes up and goes
    ("place_stone", [], False),
    ("place_stone", [hold(stone=1)], True),
    ("place_stone", [hold(stone=1), ground("water")], True),
    ("place_stone", [hold(stone=1), ground("lava")], True),
    ("place_stone", [hold(stone=1), ground("tree")], False),
    ("place_stone", [hold(stone=1), stand(objects.Cow)], False),
    ("place_stone", [hold(stone=1), at_bottom], False),
    ("place_table", [hold(wood=1)], False),
    ("place_table", [hold(wood=2)], True),
    ("place_furnace", [hold(stone=3)], False),
    ("place_furnace", [hold(stone=4)], True),
    ("place_furnace", [hold(stone=4), ground("water")], False),
    ("place_plant", [hold(sapling=1)], True),
    ("place_plant", [hold(sapling=1), ground("sand")], False),
    ("place_plant", [hold(sapling=1), hold(energy=8), asleep], False),
    ("make_wood_pickaxe", [hold(wood=1)], False),
    ("make_wood_pickaxe", [hold(wood=1), ground("table", (33, 33))], True),
    ("make_wood_pickaxe", [hold(wood=1), ground("table", (34, 33))], False),
    ("make_wood_pickaxe", [hold(wood=1), at_edge, ground("table", (1, 32))], False),
    ("make_wood_pickaxe", [hold(wood=1, wood_pickaxe=9), ground("table")], True),
    ("make_wood_sword", [hold(wood=1), ground("table")], True),
    ("make_stone_pickaxe", [hold(wood=1), ground("table")], False),
    ("make_stone_pickaxe", [hold(wood=1, stone=1), ground("table")], True),
    ("make_stone_sword", [hold(wood=1, stone=1), ground("table")], True),
    ("make_iron_pickaxe", [hold(wood=1, coal=1, iron=1), ground("table")], False),
    ("make_iron_pickaxe", [hold(wood=1, coal=1, iron=1), ground("table"), ground("furnace", (31, 31))], True),
    ("make_iron_sword", [hold(wood=1, coal=1, iron=1), ground("table"), ground("furnace", (31, 31))], True),
]


@pytest.fixture(scope="module")
def pairs():
    return {name: both([0], name) for name in NAMES}


def act_in_meadow(pair, action, scene):
    """Both engines do one action in a world of grass alone, changed by a scene: their equal effect."""
    for env in pair:
        env.begin(np.array([0]))
    native, reference = pair
    world, player = reference.simulators[0]._world, reference.simulators[0]._player
    for thing in world.objects[1:]:
        world.remove(thing)
    world._mat_map[:] = GRASS
    for change in scene:
        change(world, player)
    native.rows[0], native.randoms[0] = row_of(reference.simulators[0])
    for env in pair:
        env._act(np.array([0]), np.array([GAME_ACTIONS.index(action)]))
    assert_same(native, reference)
    return bool(native.effect[0])


@pytest.mark.parametrize(("action", "scene", "expected"), EFFECTS)
def test_what_counts_as_an_effect(pairs, action, scene, expected):
    assert act_in_meadow(pairs["Standard"], action, scene) == expected


@pytest.mark.parametrize(
    ("name", "weapon", "left"),
    [
        ("Standard", {}, 4),
        ("Standard", {"wood_sword": 1}, 3),
        ("Standard", {"wood_sword": 1, "stone_sword": 1}, 2),
        ("Standard", {"iron_sword": 1}, 0),
        ("Text", {}, 0),
        ("Text", {"wood_sword": 1}, 0),
    ],
)
def test_what_a_blow_does_to_a_zombie(pairs, name, weapon, left):
    native, _ = pairs[name]
    act_in_meadow(pairs[name], "do", [stand(objects.Zombie), hold(**weapon)])
    assert native.rows[0, at.COUNT] == 1 + (left > 0)
    assert native.rows[0, at.HEALTH + 1] == left
    assert native.achieved[0, ACHIEVEMENTS.index("defeat_zombie")] == (left == 0)


@pytest.mark.parametrize(("name", "wood", "left"), [("Standard", 5, 3), ("Text", 5, 4), ("Text", 1, 0), ("Text", 0, 0)])
def test_what_a_table_takes(pairs, name, wood, left):
    native, _ = pairs[name]
    assert act_in_meadow(pairs[name], "place_table", [hold(wood=wood)]) == (wood > 0)
    assert native.inventory[0, ITEMS.index("wood")] == left


# ---- limits of rows --------------------------------------------------------------------------------------------------


def test_there_is_no_place_for_an_object_too_many():
    native, _ = both([0])
    row = native.rows[0]
    free = [(x, y) for x in range(AREA) for y in range(AREA) if row[at.OBJECT + x * AREA + y] == 0 and abs(x - 32) > 20]
    while row[at.COUNT] < at.OBJECTS_MOST:
        assert add(row, OBJECTS.index("plant"), *free.pop(), 1, 0)
    assert not add(row, OBJECTS.index("plant"), *free.pop(), 1, 0)
    row[at.ITEM + ITEMS.index("sapling")] = 1
    row[at.MATERIAL + 32 * AREA + 33] = MATERIALS.index("grass")
    native._act(np.array([0]), np.array([GAME_ACTIONS.index("place_plant")]))
    assert not native.effect[0]
    assert native.inventory[0, ITEMS.index("sapling")] == 1


def test_episodes_that_a_row_cannot_count_are_refused():
    spec = envs.spec("crafter/Standard")
    with pytest.raises(ValueError, match="up to 32767 steps an episode, not length=40000"):
        NativeCrafter(spec, 1, rules=replace(CRAFTER, length=40_000))


def test_the_edge_of_the_map_is_nothing():
    native, reference = both([0])
    simulator = reference.simulators[0]
    simulator._world[63, 63] = MATERIALS[WATER]
    simulator._world.move(simulator._player, (62, 63))
    native.rows[0], native.randoms[0] = row_of(simulator)
    for env in (native, reference):
        env._act(np.array([0]), np.array([GAME_ACTIONS.index("move_down")]))
        assert env.ahead[0].tolist() == [0, 0]
        assert not env.symbols[0, :, 4:].any()
        assert not env.symbols[0, 6:].any()
        assert env.symbols[0, 5, 3, 0] == WATER
