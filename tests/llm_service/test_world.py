"""A world's description is read as rules, and the rules are true of what the world shows."""

import json
from pathlib import Path

import numpy as np
import pytest

import envs
from envs.babyai.symbols import AGENT_COLUMN, AGENT_ROW, COLOURS, OBJECTS, STATES
from llm_service import tiny
from llm_service.backends.scripted.sense import Sense, Situation, Verdict
from llm_service.errors import UsageError
from llm_service.world import NOWHERE, World, load

WRITER = """python -c 'import envs; open("llm_service/corpus/worlds.txt", "w").writelines(
s + chr(10) for f in envs.families() for s in envs.knowledge(f).get("corpus", []))'"""


@pytest.fixture(scope="module")
def world():
    return World(**envs.knowledge("babyai"))


@pytest.fixture(scope="module")
def sense(world):
    return Sense(world)


@pytest.mark.parametrize("family", envs.families())
def test_what_every_family_publishes_is_a_world(family, tmp_path):
    known = envs.knowledge(family)
    path = tmp_path / "world.json"
    path.write_text(json.dumps(known))
    world = load(path)
    assert world == World(**known)
    assert {**known, **world.model_dump(exclude_unset=True)} == known
    Sense(world)


def test_second_names_and_views_are_no_part_of_any_question():
    known = envs.knowledge("crafter")
    assert World(**known).synonyms
    assert World(**known).views
    assert World(**known).digest == World(**{**known, "synonyms": [], "views": {}}).digest


def test_a_bad_description_is_one_sentence(tmp_path):
    with pytest.raises(UsageError, match="cannot read"):
        load(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text('{"name": "x", "about": "", "actions": [], "password": 1}')
    with pytest.raises(UsageError, match="not an environment's description"):
        load(tmp_path / "bad.json")
    with pytest.raises(UsageError, match="slot 'hue', which has no words"):
        Sense(World(name="x", about="", actions=[], goals=[{"goal": "find the {hue} one"}]))


def test_the_committed_corpus_is_what_the_worlds_publish_now():
    published = [s for family in envs.families() for s in envs.knowledge(family).get("corpus", [])]
    found = Path(tiny.CORPUS).read_text(encoding="utf-8").splitlines()
    assert found == published, f"rewrite it from the repository's root:\n{WRITER}"


def cells(image):
    """(object, colour, state) of all but the agent's own cell, and of that."""
    own = image[AGENT_COLUMN, AGENT_ROW].tolist()
    rest = np.delete(image.reshape(-1, 3), AGENT_COLUMN * image.shape[1] + AGENT_ROW, axis=0).tolist()
    return [(OBJECTS[o], COLOURS[c], STATES[s]) for o, c, s in rest], (OBJECTS[own[0]], COLOURS[own[1]])


@pytest.mark.parametrize("level", ["GoToLocal", "MixedTrainLocal", "UnlockToUnlock", "OpenDoorsOrderN4", "GoTo"])
def test_the_goals_of_real_captions_are_those_in_view(level, sense):
    """Compared with the image itself, over walks that pick up, drop and toggle."""
    env = envs.make(f"babyai/{level}", 4, seed=5, captions=True)
    generator = np.random.default_rng(0)
    obs = env.begin()
    for _ in range(60):
        for image, sentences in zip(obs["image"], env.captions(obs), strict=True):
            rest, own = cells(image)
            things = {f"{colour} {kind}" for kind, colour, _ in rest if kind in ("key", "ball", "box")}
            doors = {(colour, state) for kind, colour, state in rest if kind == "door"}
            carried = f"{own[1]} {own[0]}" if own[0] in ("key", "ball", "box") else None
            near = image[AGENT_COLUMN, AGENT_ROW - 1]
            here = Situation(sentences)
            by_verdict = {verdict: set() for verdict in Verdict}
            for choice in sense.goals(here):
                by_verdict[choice.verdict].add(choice.text)
                if "{" not in choice.text:
                    assert sense.verdict(choice.text, here) is choice.verdict
            sensible = by_verdict[Verdict.SENSIBLE]
            ahead = f"{COLOURS[near[1]]} {OBJECTS[near[0]]}"
            assert {g for g in sensible if g.startswith("pick up")} == (
                set() if carried else {f"pick up the {thing}" for thing in things}
            )
            everything = things | {f"{colour} door" for colour, _ in doors}
            assert {g for g in sensible if g.startswith("go to")} == {f"go to the {t}" for t in everything - {ahead}}
            opened = {colour for colour, state in doors if state == "open"}
            shut = {(colour, state) for colour, state in doors if colour not in opened}
            assert {g for g in sensible if g.startswith(("open", "unlock"))} == {
                f"{verb} the {colour} door"
                for colour, state in shut
                for verb in ("open", "unlock")
                if (state == "closed" and verb == "open") or (state == "locked" and carried == f"{colour} key")
            }
            assert {g for g in sensible if g.startswith("put")} == {
                f"put the {carried} next to the {thing}" for thing in things if carried
            }
        obs = env.advance(generator.choice([0, 1, 2, 2, 2, 3, 3, 4, 5, 5], 4)).obs


def test_a_locked_door_wants_its_key(sense):
    locked = ["You see a locked red door 2 steps forward"]
    for goal in ("open the red door", "unlock the red door"):
        assert sense.verdict(goal, Situation(locked)) is Verdict.EARLY
        assert sense.verdict(goal, Situation(locked, ["You carry a blue key"])) is Verdict.EARLY
        assert sense.verdict(goal, Situation(locked, ["You carry a red key"])) is Verdict.SENSIBLE
        assert sense.verdict(goal, Situation(["You see a open red door 1 step forward"])) is Verdict.DONE
        assert sense.verdict(goal, Situation(["You see a locked blue door 1 step forward"])) is Verdict.UNSEEN
    assert sense.verdict("Open a RED door", Situation(locked, [], ["open the red door"])) is Verdict.DONE
    assert sense.verdict("open the red ball", Situation(locked)) is Verdict.UNKNOWN


def test_what_was_reached_is_read_from_a_walk(sense):
    walk = [
        ["You see a red key 2 steps forward"],
        ["You see a red key 1 step forward"],
        ["You carry a red key", "You see a locked red door 1 step right"],
        ["You carry a red key", "You see a locked red door 1 step forward"],
        ["You carry a red key", "You see a open red door 1 step forward"],
    ]
    assert sense.reached(walk) == [
        ["go to the red key"],
        ["pick up the red key"],
        ["go to the red door"],
        ["open the red door", "unlock the red door"],
    ]
    assert sense.reached(walk[:1]) == []
    assert sense.named("go to a red key, then open the Red door") == ["open the red door", "go to the red key"]
    assert sense.named("a red key") == []  # which may be gone to, or picked up


def test_behaviour_has_the_worth_of_its_events_once(sense):
    assert sense.merit(["You stand somewhere"]) is None
    assert sense.merit(["You carry a red key"] * 3) == pytest.approx(1.0)
    assert sense.merit(["You see a wall 1 step forward"]) == pytest.approx(-0.2)
    assert sense.merit(["You carry a red key", "You see a blue ball 1 step forward"]) == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Can a ball be picked up?", True),
        ("can a wall be picked up", False),
        ("Can a closed door be opened?", True),
        ("can a locked door be opened without a key?", False),
        ("Does a red key open a locked red door?", True),
        ("Does a red key open a locked blue door?", False),
        ("Is it raining?", None),
    ],
)
def test_facts_answer_questions(sense, question, answer):
    assert sense.fact(question) is answer


def test_goals_with_counts_and_without_slots_can_be_told():
    """Worlds with inventories of numbers and recipes fit the same form."""
    slots = {"number": [str(i) for i in range(1, 10)], "way": ["left", "right"]}
    goals = [
        {"goal": "collect wood", "seen": ["tree"]},
        {"goal": "place table", "needs": ["{number} wood"], "unless": ["a table"]},
        {"goal": "turn {way}"},
    ]
    sense = Sense(World(name="woods", about="", actions=[], slots=slots, goals=goals))

    def sensible(*situation):
        return {c.text for c in sense.goals(Situation(*situation)) if c.verdict is Verdict.SENSIBLE}

    turns = {"turn left", "turn right"}
    assert sensible(["a tree ahead"]) == {"collect wood"} | turns
    assert sensible(["grass"], ["3 wood"]) == {"place table"} | turns
    assert sensible(["a table ahead"], ["3 wood"]) == turns
    assert sense.verdict("place table", Situation(["grass"])) is Verdict.EARLY
    assert Sense(NOWHERE).goals(Situation(["a tree"])) == []
