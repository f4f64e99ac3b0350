"""Tasks of Crafter: what pays and when, the way there, and what language models are told of goals."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import envs
from envs.crafter import TASKS, possible
from envs.crafter.rules import (
    AREA,
    COMBINED,
    COW,
    CRAFTER,
    ELLM,
    FACINGS,
    GRASS,
    ITEMS,
    LAVA,
    NAMED,
    PLANT,
    STONE,
    SYNONYMS,
    TABLE,
    TREE,
    WATER,
    ZOMBIE,
)
from envs.crafter.tasks import BASE, GOALS, OWN, task
from envs.native.crafter.layout import FACING, ITEM, KIND, MATERIAL, OBJECT, X, Y
from llm_service.backends.scripted.sense import Sense, Situation, Verdict
from llm_service.world import World
from tests.envs.test_crafter_rules import SCENES, Stage, chosen, said, sow, stage_of, truly

AROUND = [(dx, dy) for dx in (-1, 0, 1) for dy in (-1, 0, 1) if (dx, dy) != (0, 0)]


def mission(stage):
    return stage.env.texts[int(stage.env._observe(slice(None))["mission"][0])]


def until(stage, action, steps=200):
    """Repeat what succeeds by chance; the reward of the step in which it did."""
    for _ in range(steps):
        event, reward = stage.do(action)
        if event:
            return reward
    pytest.fail(f"{action} never succeeded")


# ---- single events ---------------------------------------------------------------------------------------------------


def test_there_is_a_task_for_every_event_and_nine_more():
    assert set(BASE) == set(SCENES)
    assert len(OWN) == 9
    assert set(TASKS) == set(BASE) | set(OWN)


@pytest.mark.parametrize("name", BASE)
def test_an_event_pays_once_and_only_it(name):
    stage = stage_of(name, task=name)
    assert mission(stage) == name
    rewards = [stage.do(name)[1] for _ in range(100 if name == "chop grass" else 1)]
    assert sum(rewards) == 1
    assert stage.env._pursuit.reached[0]
    again = [stage.do(name)[1] for _ in range(30)]
    assert sum(again) == 0


@pytest.mark.parametrize("name", [n for n in BASE if not n.startswith(("move", "sleep", "make crafting"))])
def test_to_try_an_event_does_not_pay(name):
    stage = Stage(task=name, success="loose").walled().hold(sapling=1, wood_pickaxe=1, stone_sword=1)
    assert stage.do(name)[1] == 0
    assert not stage.env._pursuit.reached[0]


@pytest.mark.parametrize(("name", "synonym"), [*SYNONYMS.items(), *((b, a) for a, b in SYNONYMS.items())])
def test_synonyms_pay(name, synonym):
    assert stage_of(name, task=name).do(synonym)[1] == 1


def test_to_hit_a_cow_is_not_to_eat_it():
    walls = ((2, 0), (1, 1), (1, -1))
    for name, paid in (("eat cow", [0, 0, 1]), ("attack cow", [1, 0, 0])):
        stage = Stage("Standard", task=name, observe=["counts"]).put(-COW)
        for at in walls:
            stage.put(TABLE, at=at)
        assert [stage.do("do")[1] for _ in range(3)] == paid


@pytest.mark.parametrize("engine", ["native", "crafter"])
def test_a_task_may_end_the_episode(engine):
    stage = stage_of("chop tree", engine=engine, task="chop tree", end_on_success=True)
    done = stage.env.advance(np.array([COMBINED.index("chop tree")]))
    assert done.terminated.all()
    assert done.episodes.success.tolist() == [True]
    assert done.episodes.total.tolist() == [1.0]
    assert not stage.env._pursuit.reached[0]  # of the next episode
    assert stage.env.env_spec.task_kinds == ("chop tree",)


def test_the_episode_goes_on_if_it_is_not_told_to_end():
    stage = stage_of("chop tree", task="chop tree", length=3)
    assert [stage.do(action)[1] for action in ("chop tree", "do nothing")] == [1.0, 0.0]
    done = stage.env.advance(np.array([0]))
    assert done.truncated.all()
    assert done.episodes.success.tolist() == [True]


def test_what_is_not_reached_is_no_success():
    stage = Stage(task="chop tree", length=1)
    assert stage.env.advance(np.array([0])).episodes.success.tolist() == [False]


def test_the_reward_of_achievements_may_come_on_top():
    assert stage_of("chop tree", task="chop tree", reward="achievements").do("chop tree")[1] == 2.0
    assert stage_of("chop tree", task="drink water").do("chop tree")[1] == 0.0


# ---- tasks of more than an event -------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["native", "crafter"])
@pytest.mark.parametrize("at", AROUND)
def test_a_plant_row_is_a_plant_beside_another(at, engine):
    stage = Stage(task="plant row", engine=engine).hold(sapling=9)
    stage.put(GRASS)
    assert stage.do("place plant") == ("place plant", 0.0)  # alone
    where = (1 + at[0], at[1])
    if where == (0, 0):  # the player stands there
        return
    stage = Stage(task="plant row", engine=engine).hold(sapling=1).put(GRASS).put(GRASS, -PLANT, at=where)
    assert stage.do("place plant") == ("place plant", 1.0)


def test_a_plant_further_away_makes_no_row():
    for at in ((3, 0), (1, 2), (3, 2), (-1, 0)):
        stage = Stage(task="plant row").hold(sapling=1).put(GRASS).put(GRASS, -PLANT, at=at)
        assert stage.do("place plant") == ("place plant", 0.0)


@pytest.mark.parametrize("at", AROUND)
def test_a_workshop_is_a_table_beside_another(at):
    assert Stage(task="make workshop").hold(wood=1).do("place crafting table") == ("place crafting table", 0.0)
    where = (1 + at[0], at[1])
    if where != (0, 0):
        stage = Stage(task="make workshop").hold(wood=1).put(TABLE, at=where)
        assert stage.do("make crafting table")[1] == 1.0
    assert Stage(task="make workshop").hold(wood=1).put(TABLE, at=(3, 0)).do("place crafting table")[1] == 0.0


@pytest.mark.parametrize("facing", range(4))
def test_rows_count_on_every_side_of_the_player(facing):
    stage = Stage(task="make workshop").hold(wood=1)
    dx, dy = FACINGS[facing]
    stage.row[FACING] = facing
    stage.put(TABLE, at=(2 * dx, 2 * dy))
    assert stage.do("place crafting table")[1] == 1.0


def test_grass_is_to_be_chopped_with_a_wood_pickaxe_in_hand():
    name = "chop grass with wood pickaxe"
    assert until(Stage(task=name).put(GRASS), "chop grass") == 0
    assert until(Stage(task=name).put(GRASS).hold(stone_pickaxe=1), "chop grass") == 0
    assert until(Stage(task=name).put(GRASS).hold(wood_pickaxe=1), "chop grass") == 1


def test_vegetarians_drink_then_chop_grass():
    stage = Stage(task="vegetarianism").hold(drink=5).put(GRASS)
    assert until(stage, "chop grass") == 0  # before its turn
    assert stage.put(WATER).do("drink water") == ("drink water", 0.0)
    assert until(stage.put(GRASS), "chop grass") == 1
    assert until(stage, "chop grass") == 0


def test_deforestation_is_five_trees():
    stage = Stage(task="deforestation")
    assert [stage.put(TREE).do("chop tree")[1] for _ in range(7)] == [0, 0, 0, 0, 1, 0, 0]


def test_gardening():
    stage = Stage(task="gardening").put(GRASS)
    assert until(stage, "chop grass") == 0
    assert stage.do("place plant") == ("place plant", 0.0)  # too early
    assert stage.put(TREE, at=(0, 1)).do("move down")[1] == 0
    assert stage.do("chop tree")[1] == 0
    stage.hold(sapling=1).put(GRASS, at=(0, 1))
    assert stage.do("place plant") == ("place plant", 1.0)


def test_work_and_sleep():
    stage = Stage(task="work and sleep").put(TREE)
    assert stage.do("chop tree")[1] == 0
    assert stage.do("place crafting table") == ("place crafting table", 0.0)
    assert stage.hold(energy=4).do("sleep") == ("sleep", 1.0)


def test_wilderness_survival():
    stage = Stage(task="wilderness survival").put(GRASS).hold(energy=8)
    stage.do("sleep")
    stage.hold(energy=9)
    assert until(stage, "chop grass") == 0
    assert stage.put(-ZOMBIE).do("attack zombie") == ("attack zombie", 1.0)


def test_survival_pays_every_step_of_life():
    stage = Stage(task="survival", length=3)
    assert mission(stage) == "survival"
    rewards = []
    for _ in range(3):
        done = stage.env.advance(np.array([0]))
        rewards.append(done.reward[0])
    assert rewards == [np.float32(0.05)] * 3
    assert done.episodes.success.tolist() == [True]
    dead = Stage(task="survival").put(LAVA)
    done = dead.env.advance(np.array([COMBINED.index("move right")]))
    assert done.terminated.all()
    assert (done.reward[0], done.episodes.success[0]) == (0.0, False)


# ---- the way ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rules", [ELLM, CRAFTER])
@pytest.mark.parametrize("goal", GOALS)
def test_who_follows_the_way_has_what_the_event_takes(goal, rules):
    """A bookkeeper with nothing does each part as often as it asks for, and can always afford the next."""
    prices = {"place crafting table": {"wood": rules.table_wood}, "place furnace": {"stone": 4}}
    prices |= {"place stone": {"stone": 1}, "place plant": {"sapling": 1}}
    tools = {"mine stone": "wood_pickaxe", "mine coal": "wood_pickaxe", "mine iron": "stone_pickaxe"}
    tools |= {"mine diamond": "iron_pickaxe"}
    for tool in ("pickaxe", "sword"):
        prices |= {f"make wood {tool}": {"wood": 1}, f"make stone {tool}": {"wood": 1, "stone": 1}}
        prices[f"make iron {tool}"] = {"wood": 1, "coal": 1, "iron": 1}
    held, there = Counter(), set()

    def do(event):
        assert held[tools[event]] if event in tools else True
        if event.startswith("make"):
            assert "place crafting table" in there
            assert "iron" not in event or "place furnace" in there
        for item, amount in prices.get(event, {}).items():
            assert held[item] >= amount, (goal, event, item)
            held[item] -= amount
        held[{"chop tree": "wood", "chop grass": "sapling"}.get(event, "_".join(event.split()[1:]))] += 1
        there.add(event)

    made = task(goal, rules)
    for part in made.way:
        do(part.event)
        while part.item and held[part.item] < part.amount:
            do(part.event)
    do(made.parts[0].event)
    assert [part.event for part in made.parts] == [goal]


def test_the_way_to_diamond():
    way = [part.name for part in task("mine diamond", ELLM).way]
    assert way == [
        *("chop tree", "place crafting table", "chop tree", "make wood pickaxe", "mine stone", "place furnace"),
        *("mine stone", "chop tree", "make stone pickaxe", "mine iron", "mine coal", "chop tree", "make iron pickaxe"),
    ]


def play(stage, script):
    """(mission before, event, reward) of each scripted step: an action, or what is put and held before it."""
    told = []
    for step in script:
        if isinstance(step, str):
            before = mission(stage)
            told.append((before, *stage.do(step)))
        else:
            step(stage)
    return told


SCRIPT = [
    lambda s: s.put(TREE),
    "drink water",
    "chop tree",
    "make wood pickaxe",
    "place crafting table",
    lambda s: s.put(TREE, at=(0, 1)),
    "move down",
    "chop tree",
    "make wood pickaxe",
    "make wood pickaxe",
]


@pytest.mark.parametrize(("subgoals", "paid"), [("rewarded", [1, 1, 1, 1]), ("shown", [0, 0, 0, 1])])
def test_the_way_is_said_part_by_part(subgoals, paid):
    told = play(Stage(task="make wood pickaxe", subgoals=subgoals), SCRIPT)
    assert told == [
        ("chop tree", "", 0),
        ("chop tree", "chop tree", paid[0]),
        ("place crafting table", "", 0),
        ("place crafting table", "place crafting table", paid[1]),
        ("chop tree", "", 0),
        ("chop tree", "chop tree", paid[2]),
        ("make wood pickaxe", "make wood pickaxe", paid[3]),
        ("make wood pickaxe", "", 0),
    ]


def test_without_subgoals_the_mission_is_the_task_and_its_end_pays():
    told = play(Stage(task="make wood pickaxe"), SCRIPT)
    assert {name for name, _, _ in told} == {"make wood pickaxe"}
    assert [reward for _, _, reward in told] == [0, 0, 0, 0, 0, 0, 1, 0]


@pytest.mark.parametrize("subgoals", ["rewarded", "shown"])
def test_who_needs_no_way_is_done_at_once(subgoals):
    stage = stage_of("make wood pickaxe", task="make wood pickaxe", subgoals=subgoals)
    assert mission(stage) == "chop tree"
    assert stage.do("make wood pickaxe")[1] == 1
    assert stage.env._pursuit.reached[0]
    assert stage.put(TREE).do("chop tree")[1] == 0  # the way pays no more


def test_a_part_that_asks_for_more_waits_for_it():
    stage = Stage(task="place furnace", subgoals="rewarded").put(TREE)
    stage.do("chop tree")
    stage.do("place crafting table")
    stage.hold(wood=1).do("make wood pickaxe")  # the way still says: chop tree
    assert mission(stage) == "chop tree"
    stage.put(TREE, at=(0, 1)).do("move down")
    stage.do("chop tree")
    stage.do("make wood pickaxe")
    stones = []
    for _ in range(5):
        stones.append((mission(stage), stage.put(STONE, at=(0, 1)).do("mine stone")[1]))
    assert stones == [("mine stone", 0)] * 3 + [("mine stone", 1), ("place furnace", 0)]


@pytest.mark.parametrize("name", ["deforestation", "gardening"])
def test_parts_of_a_task_are_paid_if_subgoals_are(name):
    stage = Stage(task=name, subgoals="rewarded").put(GRASS)
    total = 0.0
    for _ in range(6):
        total += stage.put(TREE).do("chop tree")[1]
    if name == "gardening":
        assert total == 0
        assert mission(stage) == "chop grass"
        assert until(stage.put(GRASS), "chop grass") == 1
        assert mission(stage) == "chop tree"
    else:
        assert total == 5


@pytest.mark.parametrize("name", ["plant row", "make workshop"])
def test_the_last_part_of_a_row_says_what_it_is(name):
    what = "plant" if name == "plant row" else "crafting table"
    assert f"place {what} next to {what}" in envs.make("crafter/Text", 1, task=name)._pursuit.names


# ---- rewards are what they say, in play ------------------------------------------------------------------------------


class Bookkeeper:
    """A slow follower of one task, from rows alone."""

    def __init__(self, name, subgoals):
        made = task(name, ELLM)
        self.way, self.parts, self.each = list(made.way), list(made.parts), made.each_step
        self.subgoals, self.over = subgoals, not made.parts

    def met(self, part, events, row):
        asked = {part.event, SYNONYMS.get(part.event, part.event)} | {a for a, b in SYNONYMS.items() if b == part.event}
        if not asked & events or (part.item and row[ITEM + ITEMS.index(part.item)] < part.amount):
            return False
        if not part.beside:
            return True
        x, y = row[X] + FACINGS[row[FACING]][0], row[Y] + FACINGS[row[FACING]][1]
        for dx, dy in AROUND:
            i, j = x + dx, y + dy
            if 0 <= i < AREA and 0 <= j < AREA:
                thing = row[OBJECT + i * AREA + j] - 1
                if part.beside == "plant" and thing >= 0 and row[KIND + thing] == PLANT:
                    return True
                if part.beside == "crafting table" and row[MATERIAL + i * AREA + j] == TABLE:
                    return True
        return False

    def paid(self, events, row):
        reward = self.each * (row[ITEM] > 0)
        if self.over:
            return reward
        if self.met(self.parts[0], events, row):
            self.parts.pop(0)
            self.over = not self.parts
            return reward + (self.subgoals == "rewarded" or self.over)
        if self.way and self.met(self.way[0], events, row):
            self.way.pop(0)
            return reward + (self.subgoals == "rewarded")
        return reward

    @property
    def said(self):
        return (self.way or self.parts)[0].name if self.way or self.parts else None


@settings(max_examples=20)
@given(
    seed=st.integers(0, 10**6),
    name=st.sampled_from([*OWN, *GOALS]),
    subgoals=st.sampled_from(["none", "rewarded", "shown"]),
    success=st.sampled_from(["strict", "loose"]),
    rich=st.booleans(),
)
def test_no_reward_without_the_event(seed, name, subgoals, success, rich):
    assume(subgoals == "none" or name != "survival")  # which has no parts, and is refused
    env = envs.make("crafter/Text", 2, seed=seed, task=name, subgoals=subgoals, success=success, dying=False)
    env.begin()
    generator, names = np.random.default_rng(seed), list(COMBINED)
    books = [Bookkeeper(name, subgoals) for _ in range(2)]
    for step in range(100):
        if rich and step % 30 == 0:
            sow(env, generator)
        actions = chosen(env, generator, names)
        rows, achieved, sleeping = env.rows.copy(), env.achieved.copy(), env.sleeping.copy()
        done = env.advance(actions)
        for i, book in enumerate(books):
            own = names[actions[i]]
            so = own in SCENES and truly(own, rows[i], env.rows[i], achieved[i], env.achieved[i])
            so = bool(env.effect[i]) if own == "sleep" and sleeping[i] else so
            assert done.reward[i] == np.float32(book.paid({own} if so else set(), env.rows[i]))
            text = env.texts[int(done.obs["mission"][i])]
            if subgoals == "none" or book.each:
                assert text == name
            elif not book.over:
                assert text == book.said


@pytest.mark.parametrize("engine", ["native", "crafter"])
@pytest.mark.parametrize("name", ["make wood pickaxe", "deforestation", "plant row"])
def test_restore_brings_the_task_back(name, engine):
    def make():
        return envs.make("crafter/Named", 3, seed=8, engine=engine, task=name, subgoals="rewarded", length=60)

    env, generator = make(), np.random.default_rng(5)
    env.begin()
    actions = generator.choice([NAMED.index(n) for n in NAMED if n[:4] in ("move", "chop", "plac")], (130, 3))
    for action in actions[:83]:
        env.advance(action)
    other = make()
    other.restore(env.state())
    assert said(other) == [""] * 3  # a state does not tell them
    for action in actions[83:]:
        one, two = env.advance(action), other.advance(action)
        assert np.array_equal(one.reward, two.reward)
        assert np.array_equal(one.episodes.total, two.episodes.total)
        assert np.array_equal(one.episodes.success, two.episodes.success)
        assert env.texts.texts(one.obs["mission"]) == other.texts.texts(two.obs["mission"])
        assert said(env) == said(other)


# ---- what language models are told -----------------------------------------------------------------------------------


def test_the_patterns_of_goals_say_of_situations_what_possible_says_of_numbers():
    """But for how many of an item are held, which situations do not tell: here it is none or all."""
    published = envs.knowledge("crafter") | {"name": "published"}  # the scripted model has a manual of "crafter"
    sense = Sense(World(**published))
    env = envs.make("crafter/Text", 8, seed=3, dying=False)
    env.begin()
    generator, names, met = np.random.default_rng(0), list(COMBINED), set()
    for step in range(150):
        if step % 10 == 0:
            sow(env, generator)
        items = env.rows[:, ITEM + 4 : ITEM + 16]
        items[:] = 9 * (items > 4)
        env._look(np.arange(8))
        sensible = possible(env.inventory, env.symbols)
        for i, situation in enumerate(env.texts.texts(env.situations())):
            told = Situation(situation.split(". "))
            found = {choice.text for choice in sense.goals(told) if choice.verdict is Verdict.SENSIBLE}
            assert found == {NAMED[k] for k in np.flatnonzero(sensible[i])}
            met |= found
        env.advance(chosen(env, generator, names))
    assert met == set(GOALS)


def test_every_goal_published_is_an_event_and_every_event_that_is_a_goal_is_published():
    known = envs.knowledge("crafter")
    assert {goal["goal"] for goal in known["goals"]} == set(GOALS)
    assert known["actions"] == list(NAMED)
    for name in ("Standard", "Text", "Named"):
        assert envs.knowledge(f"crafter/{name}")["actions"] == list(envs.spec(f"crafter/{name}").action_names)


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Is a wood pickaxe needed to mine stone?", True),
        ("Is a stone pickaxe needed to mine iron?", True),
        ("Is a wood pickaxe needed to chop a tree?", False),
        ("Can diamond be mined with a wood pickaxe?", False),
        ("Can coal be mined without a pickaxe?", False),
        ("Can a cow be eaten?", True),
        ("Can a zombie be eaten?", False),
        ("Is a furnace needed to make an iron sword?", True),
        ("Is a furnace needed to make a wood sword?", False),
        ("Can you drink water?", True),
        ("Can you drink lava?", False),
        ("Can you walk through water?", False),
    ],
)
def test_facts(question, answer):
    assert Sense(World(**envs.knowledge("crafter"))).fact(question) is answer


def test_a_sequence_of_events_has_a_merit():
    sense = Sense(World(**envs.knowledge("crafter")))
    assert sense.merit(["mine diamond"]) > sense.merit(["chop tree"]) > 0
    assert sense.merit(["You feel hurt"]) < 0
