"""What gives goals to players of Crafter: which goals make sense now, second names, and every action by its name."""

import asyncio

import numpy as np
import pytest

import envs
from envs.crafter import possible
from envs.crafter.captions import POSSESSIONS, UNNAMED, say_situation
from envs.crafter.rules import MOST, NAMED, SENSIBLE, SYNONYMS, TREE, VITALS
from envs.crafter.tasks import GOALS
from llm_service import tasks
from llm_service.backends import module
from llm_service.world import World
from tests.envs.test_crafter_rules import SCENES, Stage, chosen, said, sow, stage_of

IDS = ("crafter/Standard", "crafter/Text", "crafter/Named")


def play(env, steps, sown=10, seed=0):
    """Random play among plenty: yields (names of the actions, what the step yielded) after each step."""
    generator, names = np.random.default_rng(seed), list(env.env_spec.action_names)
    env.begin()
    for step in range(steps):
        if step % sown == 0:
            sow(env, generator)
        actions = chosen(env, generator, names)
        transition = env.advance(actions)
        yield [names[action] for action in actions], transition


# ---- goals that make sense now ---------------------------------------------------------------------------------------


def goals_of(env):
    """For each env the goals that make sense."""
    return [{env.env_spec.goals[k] for k in np.flatnonzero(row)} for row in env.possible_goals()]


@pytest.mark.parametrize("env_id", IDS)
def test_goals_are_known_before_the_world_is_built(env_id):
    assert envs.spec(env_id).goals == GOALS
    env = envs.make(env_id, 3)
    with pytest.raises(ValueError, match="has not begun"):
        env.possible_goals()
    env.begin()
    assert env.possible_goals().shape == (3, 22)
    assert env.possible_goals().dtype == np.bool_


@pytest.mark.parametrize("goal", GOALS)
def test_what_can_be_done_makes_sense_and_without_means_it_does_not(goal):
    assert goal in goals_of(stage_of(goal).env)[0]
    bare = Stage()
    assert goals_of(bare.env) == [set()]
    things, items = SCENES[goal]
    if things and set(items) - {"drink"}:
        assert goal not in goals_of(bare.put(*things).env)[0]


def test_the_rules_of_the_env_decide():
    for wood, there in ((2, set()), (3, {"place crafting table"})):
        assert goals_of(Stage(table_wood=3).hold(wood=wood).env)[0] == there
    standard = Stage("Standard", observe=["counts"])
    assert goals_of(standard.hold(wood=1).env)[0] == set()
    assert goals_of(standard.hold(wood=2).env)[0] == {"place crafting table"}


def test_they_are_of_the_running_episode():
    stage = Stage(length=2).hold(wood=1, sapling=1)
    held = {"place crafting table", "place plant"}
    assert held <= goals_of(stage.env)[0]
    stage.do("do nothing")
    assert held <= goals_of(stage.env)[0]
    stage.do("do nothing")
    assert not held & goals_of(stage.env)[0]  # of the next one


def test_both_engines_find_the_same():
    one, other = (envs.make("crafter/Named", 2, seed=6, engine=engine) for engine in ("native", "crafter"))
    one.begin()
    other.begin()
    generator = np.random.default_rng(1)
    for _ in range(40):
        assert goals_of(one) == goals_of(other)
        actions = generator.integers(0, len(NAMED), 2)
        one.advance(actions)
        other.advance(actions)


def test_a_world_without_goals_says_so():
    env = envs.make("toy/Line", 2)
    env.begin()
    assert env.env_spec.goals == ()
    with pytest.raises(LookupError, match="toy/Line has no goals"):
        env.possible_goals()


# ---- by yes and no ---------------------------------------------------------------------------------------------------


def judged(situations):
    """Does a model without errors say yes, for each of the goals in each situation? bool [n, 22]."""
    world, scripted, asked = World(**envs.knowledge("crafter")), module("scripted"), tasks.task("yes_no")
    model = scripted.make(scripted.Config(**dict.fromkeys(scripted.RATES, 0.0)), world)
    items = [
        asked.Inputs(question=f"Does it make sense to {goal} now?", context=situation.split(". "))
        for situation in situations
        for goal in GOALS
    ]
    replies = asyncio.run(model.answer([call for item in items for call in asked.calls(item, world)]))
    yes = []
    for k, item in enumerate(items):
        odds = [asked.parse(reply, item, i, world) for i, reply in enumerate(replies[2 * k : 2 * k + 2])]
        yes.append(asked.combine(odds, item)["probability"] > 0.5)
    return np.array(yes).reshape(len(situations), len(GOALS))


def test_to_be_asked_about_each_goal_finds_those_that_make_sense():
    """But for what the model's manual says otherwise: a furnace beside a table, a plant in grass, one tool of a kind.

    Nor does it know amounts, of which situations tell none: one stone looks like the four that a furnace takes.
    """
    env = envs.make("crafter/Text", 8, seed=3, dying=False)
    told, sensible, plenty = [], [], []
    for _ in play(env, 25, sown=3):
        told += env.texts.texts(env.situations())
        sensible.append(env.possible_goals())
        inventory = env.inventory.copy()
        inventory[:, VITALS:] = MOST * (inventory[:, VITALS:] > 0)
        plenty.append(possible(inventory, env.symbols, env.rules)[:, [NAMED.index(goal) for goal in GOALS]])
    where = {text: k for k, text in enumerate(dict.fromkeys(told))}
    yes = judged(list(where))[[where[text] for text in told]]
    assert not (yes & ~np.concatenate(plenty)).any()
    same = [goal not in ("place furnace", "place plant") and not goal.startswith("make") for goal in GOALS]
    assert np.array_equal(yes[:, same], np.concatenate(sensible)[:, same])
    assert (np.concatenate(plenty) & ~yes)[:, np.logical_not(same)].any()
    assert yes.any(0).all()
    assert 0.2 < yes.mean() < 0.8


def test_the_fullest_situation_can_be_asked_about():
    fullest = say_situation((1 << UNNAMED) - 1, 0, (1 << len(POSSESSIONS)) - 1, sleepy=True).split(". ")
    asked = tasks.contents("suggest_goals", [{"observation": fullest, "free": True}])
    asked += tasks.contents("yes_no", [{"question": "Does it make sense to sleep now?", "context": fullest}])
    assert all(sentence in content for content in asked for sentence in fullest)


# ---- names -----------------------------------------------------------------------------------------------------------


def test_second_names_are_published_beside_the_goal_that_they_mean():
    published = envs.knowledge("crafter")["synonyms"]
    assert published == [["attack cow", "eat cow"], ["place crafting table", "make crafting table"]]
    assert {other: ours for ours, other in published} == SYNONYMS
    assert all(SENSIBLE[ours] == SENSIBLE[other] for ours, other in published)
    assert all(ours in GOALS and other not in GOALS for ours, other in published)


@pytest.mark.parametrize("name", ["Text", "Named"])
def test_every_action_may_be_told_whatever_came_of_it(name):
    env = envs.make(f"crafter/{name}", 4, seed=2, success="any", length=25)
    told, ended = set(), 0
    for taken, transition in play(env, 120):
        assert said(env) == taken
        told |= set(taken)
        ended += len(transition.final_index)
    assert ended >= 16  # the last step of an episode too
    assert {"do nothing", "sleep", "move left"} <= told
    if name == "Text":
        assert told - set(SENSIBLE)


def test_a_sleeper_that_tries_is_told():
    stage = Stage(success="any").put(TREE).hold(energy=3)
    assert [stage.do(action)[0] for action in ("sleep", "drink tree")] == ["sleep", "drink tree"]
    assert stage.env.sleeping[0]


def test_what_is_told_changes_nothing_else():
    """Tasks count strict success only: trying does not pay."""
    played = []
    for success in ("strict", "any"):
        env = envs.make("crafter/Text", 4, seed=5, success=success, task="mine stone", subgoals="rewarded", length=50)
        steps = [transition for _, transition in play(env, 120)]
        played.append([np.stack([getattr(step, part) for step in steps]) for part in ("reward", "terminated")])
    assert all(np.array_equal(one, other) for one, other in zip(*played, strict=True))
    assert played[0][0].sum() > 0
    stage = Stage(success="any", task="chop tree")
    assert stage.do("chop tree") == ("chop tree", 0.0)
    assert stage.put(TREE).do("chop tree") == ("chop tree", 1.0)


@pytest.mark.parametrize(
    ("name", "options", "match"),
    [
        ("Standard", {"success": "any"}, r"env\.success=any .*17 of crafter/Standard .*use crafter/Text"),
        ("Text", {"success": "some"}, "success"),
        ("Text", {"task": "survival", "end_on_success": True}, r"env\.end_on_success: the task 'survival' has no end"),
        ("Text", {"task": "survival", "subgoals": "shown"}, r"env\.subgoals: the task 'survival' has no end"),
    ],
)
def test_options_that_make_no_sense_are_refused_in_one_sentence(name, options, match):
    for build in (envs.spec, lambda env_id, **rest: envs.make(env_id, 1, **rest)):
        with pytest.raises(ValueError, match=match):
            build(f"crafter/{name}", **options)
