"""What the scripted model suggests in Crafter: from a manual of its own, wrong as often and in such ways as it is told.

Each kind of error is recognised here from the rules of the environment, which the model does not read.
"""

import asyncio
import math
from itertools import product

import numpy as np
import pytest

import envs
from envs.crafter.rules import COMBINED, NOUNS, SENSIBLE, VERBS
from envs.crafter.tasks import GOALS, needs
from llm_service import tasks
from llm_service.backends import module
from llm_service.backends.scripted import sense
from llm_service.backends.scripted.manual import FOLDER, known
from llm_service.embedding import embed_one
from llm_service.records import Call, Reply
from llm_service.world import World

scripted = module("scripted")
WORLD = World(**envs.knowledge("crafter"))
TASK = tasks.task("suggest_goals")
THINGS = ["the cow", "the crafting table", "the grass", "the stone", "the tree"]
HELD = {"wood": "some wood", "stone": "some stone", "wood_pickaxe": "a wood pickaxe"}
SEEN = f"You see {', '.join(THINGS[:-1])} and {THINGS[-1]}"
HAVE = "You have some wood and a wood pickaxe"


def model(**options):
    return scripted.make(scripted.Config(**{"wrong": 0.0, "malformed": 0.0, "errors": 0.0} | options), WORLD)


EXACT = model()


def told(backend, calls):
    """The goals of each reply, as the parser gives them to an agent."""
    found = []
    for call, reply in zip(calls, asyncio.run(backend.answer(calls)), strict=True):
        assert isinstance(reply, Reply)
        found.append(TASK.parse(reply, TASK.Inputs(**call.inputs), 0, WORLD)["goals"])
    return found


def question(n=0, sentences=(SEEN, HAVE), **inputs) -> Call:
    """A question in a situation, another one for every n, which only adds what is no goal."""
    achieved = [f"count {n}", *inputs.pop("achieved", [])]
    return TASK.calls(TASK.Inputs(observation=list(sentences), free=True, achieved=achieved, **inputs), WORLD)[0]


def possible(goal, things=THINGS, held=frozenset({"wood", "wood_pickaxe"})):
    """Whether the rules allow a goal now; amounts are not told."""
    need = needs(1)[goal]
    return all(f"the {name}" in things for name in need.seen) and not (need.items.keys() - held) and not need.sleepy


def pointless(goal, things=THINGS):
    need = needs(1)[goal]
    tool = goal.removeprefix("make ").replace(" ", "_")
    return any(f"the {name}" in things for name in need.unseen) or need.sleepy or tool in HELD


WORDS = {"sleep"} | set(" ".join((*VERBS, *NOUNS)).split())
KINDS = {
    "senseless": lambda goal: goal not in SENSIBLE and set(goal.split()) <= WORDS,
    "early": lambda goal: goal in GOALS and not possible(goal),
    "done": lambda goal: goal in GOALS and pointless(goal),
    "vague": lambda goal: goal not in COMBINED and possible(nearest(goal)),
}


def nearest(goal):
    """The environment's goal that a sentence encoder takes it for."""
    return GOALS[int(np.argmax([embed_one(name) @ embed_one(goal) for name in GOALS]))]


def within(count, number, share):
    """Four and a half standard deviations of a binomial count."""
    return abs(count - number * share) <= 4.5 * math.sqrt(number * share * (1 - share)) + 0.5


# ---- errors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_error_comes_at_its_rate_and_is_what_it_is_called(kind, rate):
    (right,) = told(EXACT, [question(limit=1)])[0]
    calls = [question(n, limit=1) for n in range(200)]
    false = [goal for (goal,) in told(model(**{kind: rate}), calls) if goal != right]
    assert within(len(false), len(calls), rate)
    assert all(map(KINDS[kind], false)), {goal for goal in false if not KINDS[kind](goal)}


@pytest.mark.parametrize("rate", [0.2, 0.4, 0.8])
def test_one_number_sets_all_kinds_in_equal_parts(rate):
    split = scripted.Config(**dict.fromkeys(scripted.SUGGESTED, rate / 4))
    assert scripted.Config(errors=rate).rates() == split.rates()
    (right,) = told(EXACT, [question(limit=1)])[0]
    false = [goal for (goal,) in told(model(errors=rate), [question(n, limit=1) for n in range(500)]) if goal != right]
    assert within(len(false), 500, rate)
    assert within(sum(map(KINDS["vague"], false)), 500, rate / 4)
    assert within(sum(map(KINDS["senseless"], false)), 500, rate / 4)


def test_a_kind_may_have_a_rate_of_its_own():
    rates = scripted.Config(errors=0.4, vague=0.0).rates()
    assert [rates[kind] for kind in scripted.SUGGESTED] == [0.1, 0.1, 0.1, 0.0]


def test_errors_are_the_same_whenever_asked_and_grow_with_the_rate():
    calls = [question(n) for n in range(100)]
    low, high = (told(model(errors=rate), calls) for rate in (0.3, 0.6))
    assert low == told(model(errors=0.3), calls[::-1])[::-1]
    assert low != told(model(errors=0.3, seed=1), calls)
    right = told(EXACT, calls)
    assert {n for n in range(100) if low[n] != right[n]} < {n for n in range(100) if high[n] != right[n]}


def test_a_second_name_of_an_event_is_not_senseless():
    """It was: "eat cow" pays like "attack cow"."""
    found = {goal for goals in told(model(senseless=1.0), [question(n) for n in range(100)]) for goal in goals}
    assert len(found) > 30
    assert not found & set(SENSIBLE)


def test_reached_goals_are_left_out_and_others_move_up():
    first = told(EXACT, [question(limit=2)])[0]
    then = told(EXACT, [question(limit=2, achieved=first[:1])])[0]
    assert first[0] not in then
    assert then[0] == first[1]
    assert len(then) == 2


# ---- what it knows -------------------------------------------------------------------------------------------------


def test_the_manual_names_the_environment_s_goals_and_says_more():
    entries = known(WORLD)
    assert {entry.goal for entry in entries} == set(GOALS)
    assert [entry.worth for entry in entries] == sorted((entry.worth for entry in entries), reverse=True)
    for entry in entries:
        assert len(entry.said) >= 2
        for said in entry.said:
            assert TASK.parse(Reply(f"- {said}"), TASK.Inputs(observation=[], free=True), 0, WORLD)["goals"] == [said]
            assert max(embed_one(name) @ embed_one(said) for name in GOALS) < 0.97, "it would be matched as if by name"
    others = [said for entry in entries for said in entry.said if nearest(said) != entry.goal]
    assert len(others) <= 4, others  # the encoder, too, may miss what was meant


def test_what_it_knows_is_no_copy_of_the_rules_of_the_oracle():
    """It reads a file, and differs where a manual does: amounts, a table beside a furnace, a second tool of a kind."""
    blind = World(**envs.knowledge("crafter")).model_copy(update={"goals": [], "facts": {}, "progress": []})
    assert known(blind) == known(WORLD)
    differ = {
        ("place furnace", ("You see the grass", "You have some stone")): False,
        ("place furnace", ("You see the crafting table", "You have some stone")): True,
        ("make wood pickaxe", (SEEN, HAVE)): False,
        ("place plant", ("You see the stone", "You have a plant")): False,
    }
    for (goal, sentences), suggested in differ.items():
        assert (goal in told(EXACT, [question(sentences=sentences, limit=20)])[0]) == suggested, (goal, sentences)


def test_it_agrees_with_the_rules_in_most_situations():
    """Over views of a few things and what may be held: what it suggests is possible, but for amounts."""
    views, held = list(product([0, 1], repeat=len(THINGS))), list(product([0, 1], repeat=len(HELD)))
    right, false, missed = 0, 0, 0
    for view, have in product(views[1:], held):
        things = [thing for thing, shown in zip(THINGS, view, strict=True) if shown]
        items = {item: name for (item, name), owned in zip(HELD.items(), have, strict=True) if owned}
        sentences = (f"You see {', '.join(things)}", f"You have {', '.join(items.values()) or 'nothing'}")
        suggested = set(told(EXACT, [question(sentences=sentences, limit=20)])[0])
        allowed = {
            goal for goal in GOALS if possible(goal, things, items) and not (goal == "place crafting table" and view[1])
        }
        right, false, missed = (
            right + len(suggested & allowed),
            false + len(suggested - allowed),
            missed + len(allowed - suggested),
        )
    assert false == 0
    assert 0.05 < missed / (missed + right) < 0.2


def test_a_world_without_a_manual_is_known_by_what_it_publishes():
    world = World(**envs.knowledge("babyai"))
    assert [goal.model_dump(exclude={"said", "pointless_without"}) for goal in known(world)] == [
        goal.model_dump() for goal in world.goals
    ]
    assert sense.Sense(world).reworded("go to the red ball", lambda options: options[0]) == "go and go to the red ball"


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.yaml")))
def test_manuals_are_of_environments_that_there_are(name):
    assert name in envs.families()
    assert {goal.goal for goal in known(World(**envs.knowledge(name)))} <= {
        g["goal"] for g in envs.knowledge(name)["goals"]
    }


def test_a_name_that_is_a_path_reads_no_file():
    world = World(name="../manuals/crafter", about="", actions=[])
    assert known(world) == []


def test_another_manual_is_another_model(monkeypatch, tmp_path):
    before = model().model
    changed = (FOLDER / "crafter.yaml").read_text().replace("hit the cow", "hunt the cow")
    (tmp_path / "crafter.yaml").write_text(changed)
    monkeypatch.setattr("llm_service.backends.scripted.manual.FOLDER", tmp_path)
    assert model().model != before
