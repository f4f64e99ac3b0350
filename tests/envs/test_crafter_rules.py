"""What players of Crafter do by words: which achievements act, when they count, what they earn, when episodes end.

Scenes are set up in the engines' own state; what an achievement changed is read from there, not
from what the world says of it.
"""

import numpy as np
import pytest
from crafter import objects
from hypothesis import given, settings
from hypothesis import strategies as st

import envs
from envs.crafter import possible
from envs.crafter.reference import SimulatedCrafter
from envs.crafter.rules import (
    ACHIEVEMENTS,
    ALONE,
    AREA,
    COAL,
    COMBINED,
    COW,
    DIAMOND,
    FACINGS,
    FURNACE,
    GAME_ACTIONS,
    GRASS,
    IRON,
    ITEMS,
    MATERIALS,
    MOST,
    NAMED,
    NOUNS,
    OBJECTS,
    PATH,
    PLANT,
    RIPE,
    SAND,
    SENSIBLE,
    SKELETON,
    STONE,
    SYNONYMS,
    TABLE,
    TREE,
    VERBS,
    WATER,
    ZOMBIE,
)
from envs.crafter.tasks import GOALS
from envs.native.crafter.layout import (
    COUNT,
    FACING,
    ITEM,
    LAST_HEALTH,
    MATERIAL,
    OBJECT,
    SLEEPING,
    X,
    Y,
)
from envs.native.crafter.objects import add

ENGINES = ("native", "crafter")
HEALTHS = {COW: 3, ZOMBIE: 5, SKELETON: 3, PLANT: 1, RIPE: 1}
MIDDLE = AREA // 2


class Stage:
    """One world: a player on a plain of sand, facing right, with empty hands."""

    def __init__(self, name="Text", engine="native", **options):
        self.env = envs.make(f"crafter/{name}", 1, engine=engine, **options)
        self.env.begin(np.array([4]))
        self.names = self.env.env_spec.action_names
        if isinstance(self.env, SimulatedCrafter):
            self.world, self.player = self.env.simulators[0]._world, self.env.simulators[0]._player
            for thing in self.world.objects[1:]:
                self.world.remove(thing)
            self.world._mat_map[:] = SAND
            self.player.facing = FACINGS[1]
        else:
            self.row = self.env.rows[0]
            self.row[COUNT] = 1
            self.row[MATERIAL : MATERIAL + AREA * AREA] = SAND
            self.row[OBJECT : OBJECT + AREA * AREA] = 0
            self.row[OBJECT + MIDDLE * AREA + MIDDLE] = 1
            self.row[FACING] = 1
        self.refresh()

    def refresh(self):
        if isinstance(self.env, SimulatedCrafter):
            self.env._see(0)
        else:
            self.env._look(np.array([0]))

    def put(self, *things, at=(1, 0)):
        """Materials by number, creatures by -number, at (columns right, rows down) of the player."""
        for thing in things:
            if isinstance(self.env, SimulatedCrafter):
                cell = np.array(self.player.pos) + at
                if thing >= 0:
                    self.world[cell] = MATERIALS[thing]
                    continue
                kind = getattr(objects, OBJECTS[PLANT if thing == -RIPE else -thing].capitalize())
                placed = kind(self.world, cell) if -thing in (COW, PLANT, RIPE) else kind(self.world, cell, self.player)
                self.world.add(placed)
                if thing == -RIPE:
                    placed.grown = 301
                continue
            x, y = self.row[X] + at[0], self.row[Y] + at[1]
            if thing >= 0:
                self.row[MATERIAL + x * AREA + y] = thing
            else:
                kind = PLANT if thing == -RIPE else -thing
                assert add(self.row, kind, x, y, HEALTHS[-thing], 301 if thing == -RIPE else 0)
        self.refresh()
        return self

    def hold(self, **items):
        for item, amount in items.items():
            if isinstance(self.env, SimulatedCrafter):
                self.player.inventory[item] = amount
            else:
                self.row[ITEM + ITEMS.index(item)] = amount
        self.refresh()
        return self

    def walled(self):
        """Nothing can be done, and nowhere be gone."""
        for at in FACINGS:
            self.put(TABLE, at=at)
        return self

    def do(self, action):
        """One step; its event or "", and its reward."""
        transition = self.env.advance(np.array([self.names.index(action)]))
        return said(self.env)[0], float(transition.reward[0])

    @property
    def has(self):
        return dict(zip(ITEMS, self.env.inventory[0].tolist(), strict=True))


def said(env):
    """Events as texts."""
    return ["" if event < 0 else env.texts[event] for event in env.events]


SCENES = {  # achievement -> (what is in front, what is held), just enough of both
    "move left": ((), {}),
    "move right": ((), {}),
    "move up": ((), {}),
    "move down": ((), {}),
    "sleep": ((), {"energy": 8}),
    "eat plant": ((GRASS, -RIPE), {}),
    "eat cow": ((-COW,), {}),
    "attack cow": ((-COW,), {}),
    "attack zombie": ((-ZOMBIE,), {}),
    "attack skeleton": ((PATH, -SKELETON), {}),
    "chop tree": ((TREE,), {}),
    "chop grass": ((GRASS,), {}),
    "mine stone": ((STONE,), {"wood_pickaxe": 1}),
    "mine coal": ((COAL,), {"wood_pickaxe": 1}),
    "mine iron": ((IRON,), {"stone_pickaxe": 1}),
    "mine diamond": ((DIAMOND,), {"iron_pickaxe": 1}),
    "drink water": ((WATER,), {"drink": 8}),
    "place stone": ((), {"stone": 1}),
    "place crafting table": ((), {"wood": 1}),
    "make crafting table": ((), {"wood": 1}),
    "place furnace": ((), {"stone": 4}),
    "place plant": ((GRASS,), {"sapling": 1}),
    **{f"make wood {tool}": ((TABLE,), {"wood": 1}) for tool in ("pickaxe", "sword")},
    **{f"make stone {tool}": ((TABLE,), {"wood": 1, "stone": 1}) for tool in ("pickaxe", "sword")},
    **{f"make iron {tool}": ((TABLE,), {"wood": 1, "coal": 1, "iron": 1}) for tool in ("pickaxe", "sword")},
}


def stage_of(achievement, name="Text", engine="native", **options):
    things, items = SCENES[achievement]
    stage = Stage(name, engine, **options).put(*things).hold(**items)
    return stage.put(FURNACE, at=(0, 1)) if "make iron" in achievement else stage


def achievements_of(achievement):
    """Of which one rises when the achievement is done, in games where each creature dies at once."""
    verb, _, noun = achievement.partition(" ")
    item = {"tree": "wood", "grass": "sapling", "water": "drink"}.get(noun, noun)
    if verb in ("chop", "mine", "drink"):
        return {f"collect_{item}"}
    if noun == "cow":
        return {"eat_cow"}
    if verb == "attack":
        return {f"defeat_{noun}"}
    if noun == "crafting table":
        return {"place_table"}
    return {achievement.replace(" ", "_")}


def truly(achievement, before, after, achieved_before, achieved_after):
    """Did the game change as the achievement says? From rows of the compiled engine before and after a step."""
    if achievement == "sleep":
        woken = min(before[ITEM], after[ITEM]) < before[LAST_HEALTH]  # by a wound, at once
        return bool(before[ITEM + ITEMS.index("energy")] < MOST and (after[SLEEPING] == 1 or woken))
    if achievement.startswith("move"):
        dx, dy = FACINGS[GAME_ACTIONS.index(achievement.replace(" ", "_")) - 1]
        return bool(after[X] - before[X] == dx and after[Y] - before[Y] == dy)
    rose = {name for k, name in enumerate(ACHIEVEMENTS) if achieved_after[k] > achieved_before[k]}
    if not achievements_of(achievement) & rose:
        return False
    gained = {f"collect_{item}": item for item in ITEMS}.get(next(iter(achievements_of(achievement))))
    return gained is None or before[ITEM + ITEMS.index(gained)] < MOST


# ---- which achievements act ------------------------------------------------------------------------------------------


def test_there_are_139_actions_of_text_of_which_29_mean_something():
    assert len(COMBINED) == len(set(COMBINED)) == len(ALONE) + len(VERBS) * len(NOUNS) == 139
    assert len(SENSIBLE) == 29
    assert set(SENSIBLE) <= set(COMBINED)
    assert len(NAMED) == 27
    assert set(SCENES) == set(SENSIBLE) - {"do nothing"}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("achievement", SCENES)
def test_an_achievement_succeeds_where_it_can_and_says_so(achievement, engine):
    stage = stage_of(achievement, engine=engine)
    before, x = stage.has, stage.env.symbols.copy()
    for _ in range(200 if achievement == "chop grass" else 1):  # it gives a plant one time in ten
        event, _ = stage.do(achievement)
        if event:
            break
    assert event == achievement
    if achievement.startswith("move"):
        assert not np.array_equal(stage.env.symbols, x) or stage.env.effect[0]
    elif achievement == "sleep":
        assert stage.env.sleeping[0]
    else:
        (name,) = achievements_of(achievement)
        assert stage.env.achieved[0, ACHIEVEMENTS.index(name)] == 1
        for item in SCENES[achievement][1]:
            if "_" not in item and item != "drink":
                assert stage.has[item] == before[item] - SCENES[achievement][1][item]


@pytest.mark.parametrize("achievement", SENSIBLE)
def test_no_achievement_succeeds_where_nothing_can_be_done(achievement):
    stage = Stage().walled()
    assert stage.do(achievement) == ("", 0.0)
    assert stage.env.achieved.sum() == 0


@pytest.mark.parametrize(
    ("achievement", "item"), [(achievement, item) for achievement, (_, items) in SCENES.items() for item in items]
)
def test_one_less_of_what_it_takes_and_it_fails(achievement, item):
    """A vital of one more, where it is to be below its most."""
    amount = SCENES[achievement][1][item]
    stage = stage_of(achievement).hold(**{item: amount + 1 if item in ITEMS[:4] else amount - 1})
    assert stage.do(achievement)[0] == ""


@pytest.mark.parametrize("tool", ["pickaxe", "sword"])
def test_iron_tools_take_a_furnace_too(tool):
    assert stage_of(f"make iron {tool}").put(SAND, at=(0, 1)).do(f"make iron {tool}")[0] == ""


@pytest.mark.parametrize("front", [TREE, STONE, COAL, WATER, GRASS, TABLE, -COW, -ZOMBIE, -RIPE, SAND])
def test_actions_that_mean_nothing_here_do_what_doing_nothing_does(front):
    """All nonsense, and all sense that is about something else than what is in front."""
    items = {"wood_pickaxe": 1, "drink": 5}
    idle = Stage().put(front).hold(**items)
    before, random = idle.row.copy(), idle.env.randoms.copy()
    idle.do("do nothing")
    after = idle.row.copy()
    facing = {**{m: MATERIALS[m] for m in (TREE, STONE, COAL, WATER, GRASS)}, -COW: "cow", -ZOMBIE: "zombie"}
    facing |= {TABLE: "crafting table", -RIPE: "plant"}
    for achievement in COMBINED:
        game, noun = SENSIBLE.get(achievement, ("noop", ""))
        if game == "noop" or (game == "do" and noun != facing.get(front)):
            idle.row[:], idle.env.randoms[:], idle.env._length[:] = before, random, 0
            idle.refresh()
            assert idle.do(achievement)[0] == ""
            assert np.array_equal(idle.row, after), achievement


@pytest.mark.parametrize(("achievement", "synonym"), SYNONYMS.items())
def test_synonyms_do_the_same(achievement, synonym):
    rows = []
    for name in (achievement, synonym):
        stage = stage_of(achievement)
        assert stage.do(name)[0] == name
        rows.append(stage.row.copy())
    assert np.array_equal(*rows)


@pytest.mark.parametrize("name", ["Text", "Named"])
def test_a_creature_hides_the_ground_it_stands_on(name):
    after = []
    for action in ("do nothing", "chop grass"):
        stage = Stage(name).put(GRASS, -COW)
        assert stage.do(action)[0] == ""
        after.append((stage.row, stage.env.randoms[0]))
    assert all(np.array_equal(one, other) for one, other in zip(*after, strict=True))


def test_named_actions_are_the_27_achievements():
    assert envs.spec("crafter/Named").action_names == NAMED
    for achievement in ("mine stone", "attack cow", "make iron sword"):
        assert stage_of(achievement, "Named").do(achievement)[0] == achievement


# ---- when achievements count -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "things", "items"),
    [
        ("drink tree", (TREE,), {}),
        ("chop cow", (-COW,), {}),
        ("mine stone", (STONE,), {}),
        ("attack crafting table", (TABLE,), {}),
        ("eat plant", (GRASS, -PLANT), {}),
        ("eat plant", (), {"sapling": 1}),
        ("place stone", (TABLE,), {"stone": 1}),
        ("make wood pickaxe", (), {"wood_pickaxe": 1}),
        ("drink coal", (), {"coal": 2}),
        ("mine stone", (STONE,), {"stone": 9, "wood_pickaxe": 1}),
        ("drink water", (WATER,), {"drink": 9}),
    ],
)
def test_to_try_counts_loosely_and_not_strictly(action, things, items):
    assert Stage().put(*things).hold(**items).do(action)[0] == ""
    assert Stage(success="loose").put(*things).hold(**items).do(action)[0] == action


@pytest.mark.parametrize("action", ["mine stone", "drink tree", "place stone", "make iron sword", "sleep", "move left"])
def test_what_is_neither_in_front_nor_held_counts_in_no_way(action):
    assert Stage(success="loose").walled().do(action)[0] == ""


@pytest.mark.parametrize("achievement", SCENES)
def test_what_counts_strictly_counts_loosely(achievement):
    stage = stage_of(achievement, success="loose")
    assert achievement in {stage.do(achievement)[0] for _ in range(100 if achievement == "chop grass" else 1)}


@pytest.mark.parametrize("success", ["strict", "loose"])
def test_a_sleeper_does_nothing(success):
    stage = Stage(success=success).put(TREE).hold(energy=3)
    assert stage.do("sleep")[0] == "sleep"
    for action in ("chop tree", "move left", "attack tree"):
        assert stage.do(action) == ("", 0.0)
    assert stage.env.sleeping[0]
    assert stage.has["wood"] == 0


@pytest.mark.parametrize("engine", ENGINES)
def test_in_the_standard_game_do_is_named_after_what_is_in_front(engine):
    for achievement, (game, noun) in SENSIBLE.items():
        if achievement in SCENES and achievement not in SYNONYMS and achievement != "chop grass":
            options = {"damage": 5, "table_wood": 1, "observe": ["counts"]}
            stage = stage_of(achievement, "Standard", engine, **options)
            event, _ = stage.do(game.replace("_", " ") if not noun else "do")
            assert event == ("eat cow" if noun == "cow" else achievement)
    nothing = Stage("Standard", engine, observe=["counts"])
    for front in (SAND, TABLE, FURNACE, PATH):
        assert nothing.put(front).do("do")[0] == ""


@pytest.mark.parametrize("engine", ENGINES)
def test_a_cow_is_attacked_until_it_is_eaten(engine):
    stage = Stage("Standard", engine, observe=["counts"]).put(-COW)
    for at in ((2, 0), (1, 1), (1, -1)):
        stage.put(TABLE, at=at)  # so that it stays
    assert [stage.do("do")[0] for _ in range(3)] == ["attack cow", "attack cow", "eat cow"]
    text = Stage("Text", engine, damage=1).put(-COW)
    for at in ((2, 0), (1, 1), (1, -1)):
        text.put(TABLE, at=at)
    assert [text.do("eat cow")[0] for _ in range(3)] == ["", "", "eat cow"]  # to hit is not yet to eat


def test_a_world_without_events_has_none():
    env = envs.make("toy/Line", 3)
    env.begin()
    env.advance(np.array([1, 0, 2]))
    assert env.events.tolist() == [-1] * 3
    with pytest.raises(LookupError, match="no situations"):
        env.situations()


def test_events_are_of_the_last_step_and_gone_at_the_beginning():
    stage = stage_of("chop tree", length=2)
    assert stage.do("chop tree")[0] == "chop tree"
    assert stage.do("move left")[0] == "move left"  # of the episode that ended by it
    assert stage.env._length[0] == 0
    stage.env.begin()
    assert said(stage.env) == [""]


# ---- rewards and ends ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
def test_an_achievement_is_paid_once_in_an_episode(engine):
    stage = stage_of("chop tree", engine=engine)
    assert stage.do("chop tree") == ("chop tree", 1.0)
    assert stage.put(TREE).do("chop tree") == ("chop tree", 0.0)
    assert stage.do("place crafting table")[1] == 1.0
    free = stage_of("chop tree", engine=engine, reward="none")
    assert free.do("chop tree") == ("chop tree", 0.0)


@pytest.mark.parametrize("engine", ENGINES)
def test_crafters_reward_is_achievements_and_a_tenth_of_the_health(engine):
    env = envs.make("crafter/Standard", 3, engine=engine, reward="crafter", observe=["counts"], dying=False)
    env.begin(np.arange(3))
    generator = np.random.default_rng(1)
    achieved, health, paid = np.zeros((3, len(ACHIEVEMENTS)), bool), np.full(3, 9), []
    for _ in range(300):
        done = env.advance(generator.integers(0, len(GAME_ACTIONS), 3))
        for i in range(3):
            new = bool(((env.achieved[i] > 0) & ~achieved[i]).any())
            expected = float(new) + (int(env.inventory[i, 0]) - int(health[i])) / 10
            assert done.reward[i] == np.float32(expected)
            paid.append(expected)
        achieved, health = achieved | (env.achieved > 0), env.inventory[:, 0].copy()
    assert max(paid) >= 0.9
    assert min(paid) < 0


@pytest.mark.parametrize("dying", [True, False])
def test_to_die_ends_an_episode_unless_there_is_no_dying(dying):
    stage = Stage(dying=dying).put(MATERIALS.index("lava"))
    done = stage.env.advance(np.array([COMBINED.index("move right")]))
    assert done.terminated.tolist() == [dying]
    assert not done.truncated.any()
    if dying:
        assert done.episodes.success.tolist() == [False]


def test_who_lives_at_the_end_has_survived():
    env = envs.make("crafter/Text", 2, length=3)
    env.begin(np.array([4, 5]))
    for step in range(3):
        done = env.advance(np.zeros(2, np.int64))
        assert done.truncated.tolist() == [step == 2] * 2
    assert done.episodes.success.all()
    assert done.episodes.length.tolist() == [3, 3]
    assert env.env_spec.task_kinds == ("survive",)


def test_the_variants_differ_in_their_rules():
    rules = {name: envs.make(f"crafter/{name}", 1).rules for name in ("Standard", "Text", "Named")}
    assert rules["Text"] == rules["Named"]
    assert [(r.damage, r.table_wood, r.length, r.dying) for r in (rules["Standard"], rules["Text"])] == [
        (1, 2, 10_000, True),
        (5, 1, 400, True),
    ]
    own = envs.make("crafter/Text", 1, damage=2, table_wood=3, length=7, dying=False).rules
    assert (own.damage, own.table_wood, own.length, own.dying) == (2, 3, 7, False)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"observe": []}, "observe"),
        ({"observe": ["smell"]}, "smell"),
        ({"damage": 0}, "damage"),
        ({"length": 0}, "length"),
        ({"engine": "other"}, "engine"),
        ({"subgoals": "shown"}, "subgoals of crafter/Text is about a task"),
        ({"end_on_success": True}, "end_on_success of crafter/Text is about a task"),
        ({"task": "mine ston"}, "did you mean mine stone"),
    ],
)
def test_bad_options_are_refused(options, match):
    with pytest.raises(ValueError, match=match):
        envs.make("crafter/Text", 1, **options)
    with pytest.raises(ValueError, match=match):
        envs.spec("crafter/Text", **options)


# ---- prerequisites of goals ------------------------------------------------------------------------------------------

OUGHT = {  # goal -> (items, names in view)
    "sleep": ({}, ()),
    "eat plant": ({}, (-RIPE,)),
    "attack zombie": ({}, (-ZOMBIE,)),
    "attack skeleton": ({}, (-SKELETON,)),
    "attack cow": ({}, (-COW,)),
    "chop tree": ({}, (TREE,)),
    "chop grass": ({}, (GRASS,)),
    "mine stone": ({"wood_pickaxe": 1}, (STONE,)),
    "mine coal": ({"wood_pickaxe": 1}, (COAL,)),
    "mine iron": ({"stone_pickaxe": 1}, (IRON,)),
    "mine diamond": ({"iron_pickaxe": 1}, (DIAMOND,)),
    "drink water": ({}, (WATER,)),
    "place stone": ({"stone": 1}, ()),
    "place crafting table": ({"wood": 1}, ()),
    "place furnace": ({"stone": 4}, ()),
    "place plant": ({"sapling": 1}, ()),
    **{f"make wood {tool}": ({"wood": 1}, (TABLE,)) for tool in ("pickaxe", "sword")},
    **{f"make stone {tool}": ({"wood": 1, "stone": 1}, (TABLE,)) for tool in ("pickaxe", "sword")},
    **{f"make iron {tool}": ({"wood": 1, "coal": 1, "iron": 1}, (TABLE, FURNACE)) for tool in ("pickaxe", "sword")},
}


def state(items, things):
    """Inventory and symbols of one player who holds and sees these."""
    inventory, symbols = np.zeros((1, len(ITEMS)), np.int16), np.zeros((1, 9, 7, 3), np.uint8)
    inventory[0, :4] = MOST
    symbols[..., 0] = SAND
    symbols[0, 4, 3, 1] = 1
    for item, amount in items.items():
        inventory[0, ITEMS.index(item)] = amount
    for cell, thing in enumerate(things):
        symbols[0, cell, 0, int(thing < 0)] = abs(thing)
    return inventory, symbols


def test_every_goal_has_its_prerequisites():
    assert set(OUGHT) == set(GOALS)
    assert len(GOALS) == 22


@pytest.mark.parametrize("goal", OUGHT)
def test_a_goal_makes_sense_with_all_it_needs_and_with_nothing_less(goal):
    items, things = OUGHT[goal]
    tired = {"energy": 8} if goal == "sleep" else {}

    def sensible(items, things):
        return bool(possible(*state(items | tired, things))[0, NAMED.index(goal)])

    assert sensible(items, things)
    for item, amount in items.items():
        assert not sensible(items | {item: amount - 1}, things)
    for left_out in things:
        assert not sensible(items, [thing for thing in things if thing != left_out])
    if goal == "sleep":
        assert not possible(*state({}, ()))[0, NAMED.index(goal)]
    if goal == "place crafting table":
        assert not sensible(items, (TABLE,))
        rules = envs.make("crafter/Standard", 1).rules
        assert not possible(*state({"wood": 1}, ()), rules)[0, NAMED.index(goal)]
        assert possible(*state({"wood": 2}, ()), rules)[0, NAMED.index(goal)]


def test_moving_and_doing_nothing_are_never_goals():
    everything = possible(*state(dict.fromkeys(ITEMS, 9), (TREE, STONE, COAL, IRON, DIAMOND, WATER, GRASS, -COW)))
    assert not everything[0, [NAMED.index(name) for name in NAMED if name not in GOALS]].any()


# ---- no event without its change -------------------------------------------------------------------------------------


GROUND = (GRASS, GRASS, PATH, SAND, TREE, STONE, COAL, IRON, DIAMOND, WATER, TABLE, FURNACE)


def sow(env, generator):
    """Put things of every kind around the players of a compiled engine, and some of everything into their hands."""
    for row in env.rows:
        row[ITEM : ITEM + 16] = np.where(
            np.arange(16) < 4, generator.integers(5, 10, 16), generator.integers(0, 10, 16)
        )
        for dx, dy in generator.integers((-4, -3), (5, 4), (30, 2)).tolist():
            x, y = row[X] + dx, row[Y] + dy
            if 0 <= x < AREA and 0 <= y < AREA and row[OBJECT + x * AREA + y] == 0:
                row[MATERIAL + x * AREA + y] = generator.choice(GROUND)
                kind = generator.choice([COW, ZOMBIE, SKELETON, PLANT, RIPE])
                if row[MATERIAL + x * AREA + y] in (GRASS, PATH) and generator.random() < 0.5:
                    add(row, min(kind, PLANT), x, y, HEALTHS[kind], 301 if kind == RIPE else 0)
    env._look(np.arange(env.num_envs))


def chosen(env, generator, names):
    """Actions of text that often mean something: what can be done in front, or a random achievement."""
    actions = np.zeros(env.num_envs, np.int64)
    for i in range(env.num_envs):
        options = [achievement for achievement in SENSIBLE if SENSIBLE[achievement][0] != "do" and achievement in names]
        front = {0: MATERIALS[env.ahead[i, 0]], COW: "cow", ZOMBIE: "zombie", SKELETON: "skeleton"}
        noun = front.get(int(env.ahead[i, 1]), "plant")
        options += [d for d, (game, needed) in SENSIBLE.items() if game == "do" and needed == noun and d in names] * 6
        options += [name for name in NAMED if name.startswith("move")] * 6
        actions[i] = names.index(options[generator.integers(len(options))])
        if generator.random() < 0.1:
            actions[i] = generator.integers(len(names))
    return actions


@settings(max_examples=12)
@given(
    seed=st.integers(0, 10**6),
    name=st.sampled_from(["Text", "Named"]),
    success=st.sampled_from(["strict", "loose"]),
)
def test_no_event_without_the_change_that_it_states(seed, name, success):
    env = envs.make(f"crafter/{name}", 2, seed=seed, success=success, dying=False)
    env.begin()
    generator, names = np.random.default_rng(seed), list(env.env_spec.action_names)
    for step in range(120):
        if step % 30 == 0:
            sow(env, generator)
        actions = chosen(env, generator, names)
        rows, achieved, ahead, sleeping = env.rows.copy(), env.achieved.copy(), env.ahead.copy(), env.sleeping.copy()
        env.advance(actions)
        for i, event in enumerate(said(env)):
            own = names[actions[i]]
            assert event in ("", own)
            changed = own in SCENES and truly(own, rows[i], env.rows[i], achieved[i], env.achieved[i])
            if success == "strict":
                if own != "sleep" or not sleeping[i]:  # a sleeper that goes on sleeping
                    assert bool(event) == changed, (own, event)
            elif event and not changed:
                noun = own.partition(" ")[2]
                front = OBJECTS[ahead[i, 1]] if ahead[i, 1] else MATERIALS[ahead[i, 0]]
                front = {"table": "crafting table", "ripe plant": "plant"}.get(front, front)
                held = {"sapling" if noun == "plant" else noun.replace(" ", "_")} & set(ITEMS)
                assert front == noun or any(rows[i, ITEM + ITEMS.index(item)] > 0 for item in held)
                assert not sleeping[i]


def test_every_kind_of_event_is_met_in_play():
    """So that the property above is about something."""
    env = envs.make("crafter/Text", 8, seed=1, dying=False)
    env.begin()
    generator, names, met = np.random.default_rng(0), list(COMBINED), set()
    for step in range(390):
        if step % 15 == 0:
            sow(env, generator)
        env.advance(chosen(env, generator, names))
        met |= set(said(env))
    assert set(GOALS) <= met
