"""The mission grammar reads and writes every recorded mission, and speaks French."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.api.records import TEXT_CHARACTERS
from envs.babyai import parse, translate
from envs.babyai.grammar import words_of
from envs.babyai.missions import NOUNS, PLACES, Action, Mission, Thing, mission_words
from envs.babyai.symbols import COLOURS

GOLDEN = Path(__file__).parents[1] / "golden" / "babyai_text_missions.json"

RECORDED = sorted({mission for missions in json.loads(GOLDEN.read_text()).values() for mission in missions})

TRANSLATIONS = {
    "go to the red ball": "aller à la balle rouge",
    "go to a green box": "aller à une boîte verte",
    "go to the grey door on your left": "aller à la porte grise à ta gauche",
    "pick up the key in front of you": "attraper la clef devant toi",
    "pick up the purple object behind you": "attraper l'objet violet derrière toi",
    "pick up a green object": "attraper un objet vert",
    "open the yellow door": "ouvrir la porte jaune",
    "open a door on your right": "ouvrir une porte à ta droite",
    "put the blue ball next to the grey box": "poser la balle bleue à côté de la boîte grise",
    "put a key next to a blue door": "poser une clef à côté d'une porte bleue",
    "put a box next to the grey object": "poser une boîte à côté de l'objet gris",
    "put the box next to a blue object": "poser la boîte à côté d'un objet bleu",
    "pick up a grey box, then go to the key": "attraper une boîte grise, puis aller à la clef",
    "go to a key after you pick up the ball": "aller à une clef après avoir attrapé la balle",
    "open the door after you go to the box": "ouvrir la porte après être allé à la boîte",
    "go to the box and open a door, then pick up the key": (
        "aller à la boîte et ouvrir une porte, puis attraper la clef"
    ),
    "pick up the key after you open the red door and put a box next to the ball": (
        "attraper la clef après avoir ouvert la porte rouge et avoir posé une boîte à côté de la balle"
    ),
}


@pytest.mark.parametrize(("english", "french"), TRANSLATIONS.items(), ids=range(len(TRANSLATIONS)))
def test_translation(english, french):
    assert translate(english) == french


def test_recorded_missions_survive_reading_and_writing():
    assert len(RECORDED) > 300
    for mission in RECORDED:
        assert parse(mission).english() == mission


def things(*nouns):
    return st.builds(
        Thing,
        st.sampled_from(nouns),
        st.none() | st.sampled_from(COLOURS),
        st.none() | st.sampled_from(sorted(PLACES)),
        st.booleans(),
    )


MOVABLE = [noun for noun in NOUNS if noun != "door"]
ACTIONS = st.one_of(
    st.builds(Action, st.just("go to"), st.tuples(things(*NOUNS))),
    st.builds(Action, st.just("open"), st.tuples(things("door"))),
    st.builds(Action, st.just("pick up"), st.tuples(things(*MOVABLE))),
    st.builds(Action, st.just("put"), st.tuples(things(*MOVABLE), things(*NOUNS))),
)
GROUPS = st.lists(ACTIONS, min_size=1, max_size=2).map(tuple)
MISSIONS = st.builds(Mission, GROUPS) | st.builds(Mission, GROUPS, st.sampled_from(["then", "after"]), GROUPS)


@given(MISSIONS)
def test_the_whole_grammar_round_trips(mission):
    assert parse(mission.english()) == mission


@given(MISSIONS)
def test_missions_stay_in_vocabulary_and_alphabet(mission):
    french = translate(mission.english())
    assert set(words_of(mission.english())) <= mission_words("en")
    assert set(words_of(french)) <= mission_words("fr")
    assert set(mission.english() + french) <= TEXT_CHARACTERS


@given(MISSIONS, MISSIONS)
def test_different_missions_differ_in_french(one, other):
    assert (one == other) == (one.french() == other.french())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "go",
        "go to red ball",
        "go to the pink ball",
        "go to the ball ",
        "Go to the ball",
        "open the box",
        "pick up the door",
        "put the door next to the box",
        "put the ball next to",
        "go to the ball and go to the ball and go to the ball",
        "go to the ball, then go to the box, then go to the key",
        "go to the ball after you go to the box after you go to the key",
    ],
)
def test_what_is_no_mission_is_refused(text):
    with pytest.raises(ValueError, match="not a BabyAI mission"):
        translate(text)
