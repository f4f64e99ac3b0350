"""What worlds publish for language models is plain, whole and in their own words."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest

import envs
from envs import navigation
from envs.babyai import parse
from envs.babyai.grammar import caption_words, words_of
from envs.babyai.symbols import COLOURS, OBJECTS
from envs.navigation.knowledge import plan as plan_of

FAMILIES = envs.families()


def patterns(known):
    for goal in known.get("goals", []):
        yield from (goal["goal"], *goal.get("seen", []), *goal.get("needs", []), *goal.get("unless", []))
    yield from (event["seen"] for event in known.get("progress", []))
    yield from known.get("facts", {})


@pytest.mark.parametrize("family", FAMILIES)
def test_it_is_plain_data_with_every_slot_defined(family):
    known = envs.knowledge(family)
    assert json.loads(json.dumps(known)) == known
    assert known["name"] == family
    assert known["about"]
    for pattern in patterns(known):
        for slot in re.findall(r"\{(.*?)\}", pattern):
            assert re.fullmatch(r"\w+", slot)
            assert known["slots"][slot], pattern
    named = [name for names in known.get("synonyms", []) for name in names]
    assert len(set(named)) == len(named)
    assert all(len(names) > 1 for names in known.get("synonyms", []))
    corpus = known.get("corpus", [])
    assert len(set(corpus)) == len(corpus)
    assert all(sentence == " ".join(sentence.split()) for sentence in corpus)


@pytest.mark.parametrize("env_id", ["toy/Line", "babyai/GoToLocal", "gym/CartPole-v1"])
def test_an_id_is_known_with_the_actions_of_its_world(env_id):
    assert envs.knowledge(env_id)["actions"] == list(envs.spec(env_id).action_names)


def test_the_house_is_known_as_its_map_is(tmp_path):
    plan = navigation.load().as_json()
    rooms = {"objects": [{"name": "grand_piano", "x": 98, "y": 175}], "tiles": [["violet", "beige"]]}
    (tmp_path / "other.json").write_text(json.dumps(plan | rooms))
    known = envs.knowledge("navigation", {"map": str(tmp_path / "other.json")})
    assert known["slots"] == {"object": ["grand piano"], "colour": ["violet", "beige"]}
    assert envs.knowledge("navigation", {"map": ""}) == envs.knowledge("navigation")
    assert "fridge" in envs.knowledge("navigation")["slots"]["object"]
    (tmp_path / "bare.json").write_text(json.dumps(plan | {"objects": [], "tiles": []}))
    bare = envs.knowledge("navigation/House", {"map": str(tmp_path / "bare.json")})
    assert not bare["goals"]
    assert not any("{" in pattern for pattern in patterns(bare))
    assert not bare["other_names"]
    assert not any("tile" in line or "Tiles" in line for line in bare["plan"])
    with pytest.raises(ValueError, match="cannot read the map"):
        envs.knowledge("navigation", {"map": str(tmp_path / "gone.json")})
    assert envs.knowledge("toy", {}) == envs.knowledge("toy")  # no option changes it


def test_the_plan_of_the_house_says_where_everything_is():
    known = envs.knowledge("navigation")
    whole = "\n".join(known["plan"])
    assert "red, green, blue; yellow, orange, purple; pink, gray, white" in whole
    lines = {line.partition(":")[0]: line for line in known["plan"]}
    # The published judge was told of a cactus at (180, 27) on purple, and of a file cabinet on orange or green.
    assert lines["cactus"] == "cactus: at (180, 67), on the white tile."
    assert lines["file cabinet"] == "file cabinet: at (140, 138), on the blue tile."
    assert lines["fan"] == "fan: at (60, 140), on the red tile."
    assert "sofa is also couch or settee" in whole
    walls = next(line for line in known["plan"] if line.startswith("Walls"))
    free = np.ones((200, 200), bool)
    for x0, y0, x1, y1 in (map(int, wall) for wall in re.findall(r"\((\d+), (\d+)\) to \((\d+), (\d+)\)", walls)):
        free[200 - y1 : 200 - y0, x0:x1] = False
    np.testing.assert_array_equal(~free, navigation.load().walls)


def test_a_plan_lists_the_largest_walls_of_a_map_with_many():
    random = np.random.default_rng(0)
    walls = np.pad(random.random((60, 60)) < 0.3, 1, constant_values=True)
    lines = plan_of(navigation.Scene(navigation.Map(186.0, walls, (0, 0, 0), (0, 0))))
    (told,) = (line for line in lines if line.startswith("Walls"))
    assert "the largest 40 of " in told
    assert told.count(" to (") == 40
    assert "(0, 61) to (62, 62)" in told


def test_unknown_worlds_are_refused():
    with pytest.raises(envs.UnknownEnv):
        envs.knowledge("babyay")
    with pytest.raises(envs.UnknownEnv):
        envs.knowledge("babyai/GoToNowhere")


def test_the_corpus_of_babyai_is_made_of_captions_and_missions():
    corpus = envs.knowledge("babyai")["corpus"]
    captions = [s for s in corpus if s.startswith("You ")]
    actions = envs.knowledge("babyai")["actions"]
    missions = [s for s in corpus if not s.startswith("You ") and s not in actions]
    assert corpus[-len(actions) :] == actions
    assert 300 <= len(captions) <= 1000
    assert 300 <= len(missions) <= 1000
    assert {word for s in captions for word in words_of(s)} <= caption_words("en")
    assert all(parse(mission).english() == mission for mission in missions)
    for colour in COLOURS:
        for thing in ("key", "ball", "box", "door"):
            assert any(f"{colour} {thing}" in s for s in captions)
            assert f"go to the {colour} {thing}" in missions


def test_the_symbols_of_babyai_are_the_numbers_of_its_images():
    env = envs.make("babyai/GoToLocal", 4, captions=True)
    obs = env.begin()
    symbols = envs.knowledge("babyai")["symbols"]
    assert list(symbols) == ["object", "colour", "state"]
    assert [symbols["object"][name] for name in OBJECTS] == list(range(len(OBJECTS)))
    checked = 0
    for image, sentences in zip(obs["image"], env.captions(obs), strict=True):
        for colour, thing in (m.groups() for s in sentences if (m := re.match(r"You see a (\w+) (\w+) \d", s))):
            wanted = [symbols["object"][thing], symbols["colour"][colour]]
            assert (image[..., :2] == wanted).all(axis=-1).any()
            checked += 1
    assert checked > 4


def test_it_is_the_same_in_every_process():
    code = "import envs, json; print(json.dumps([envs.knowledge(f) for f in envs.families()]))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120).stdout
    assert json.loads(found) == [envs.knowledge(family) for family in FAMILIES]
