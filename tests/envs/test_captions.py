"""Captions equal the published recordings, and bad images are refused in a sentence."""

import json
from pathlib import Path

import numpy as np
import pytest

import envs
from envs.babyai import describe
from envs.babyai.grammar import NOTHING, caption_words, words_of
from envs.babyai.symbols import code_of

GOLDEN = Path(__file__).parents[1] / "golden" / "babyai_text_captions.json"
FRENCH_LEVEL = "BabyAI-GoToFrench-v0"


@pytest.fixture(scope="module")
def records():
    return json.loads(GOLDEN.read_text())


def blank(number=1):
    """Images of an empty, fully visible room."""
    images = np.zeros((number, 7, 7, 3), np.uint8)
    images[..., 0] = 1
    return images


def with_cell(column, row, *triple):
    images = blank()
    images[0, column, row] = triple
    return images


@pytest.mark.parametrize("language", ["en", "fr"])
def test_every_recorded_image_is_described_as_recorded(records, language):
    chosen = [r for r in records if (r["level"] == FRENCH_LEVEL) == (language == "fr")]
    assert len(chosen) == {"en": 960, "fr": 60}[language]
    described = describe(np.array([r["image"] for r in chosen], np.uint8), language)
    assert described == [r["descriptions"] for r in chosen]


def test_fix_open_changes_open_doors_and_nothing_else(records):
    chosen = [r for r in records if r["level"] != FRENCH_LEVEL]
    fixed = describe(np.array([r["image"] for r in chosen], np.uint8), fix=True)
    expected = [[s.replace("You see a open", "You see an open") for s in r["descriptions"]] for r in chosen]
    assert fixed == expected
    assert any("an open" in s for sentences in fixed for s in sentences)


def test_fix_carried_names_the_carried_thing_in_french():
    holding_a_green_box = with_cell(3, 6, 7, 1, 0)
    assert describe(holding_a_green_box, "fr") == [["Tu portes une box green"]]
    assert describe(holding_a_green_box, "fr", fix=True) == [["Tu portes une boîte verte"]]
    assert describe(holding_a_green_box, "en", fix=True) == [["You carry a green box"]]


@pytest.mark.parametrize(
    ("state", "english", "french"),
    [
        (0, "You see a open red door 2 steps left and 6 steps forward", "ouverte"),
        (1, "You see a closed red door 2 steps left and 6 steps forward", "fermée"),
        (2, "You see a locked red door 2 steps left and 6 steps forward", "fermée à clef"),
    ],
)
def test_doors_tell_their_state(state, english, french):
    image = with_cell(1, 0, 4, 0, state)
    assert describe(image) == [[english]]
    assert describe(image, "fr") == [[f"Tu vois une porte rouge {french} 2 pas à gauche et 6 pas devant"]]


def test_an_object_before_a_wall_hides_it():
    image = with_cell(3, 2, 2, 5, 0)
    assert describe(image) == [["You see a wall 4 steps forward"]]
    image[0, 3, 4] = (5, 2, 0)
    assert describe(image) == [["You see a blue key 2 steps forward"]]


def test_walls_are_seen_across_unseen_cells_only_on_the_three_ways():
    image = with_cell(0, 6, 2, 5, 0)
    image[0, 1, 6] = 0
    assert describe(image) == [["You see a wall 3 steps left"]]
    assert describe(with_cell(2, 5, 2, 5, 0)) == [[]]


def test_empty_and_unseen_images_have_no_sentences():
    assert describe(blank(3)) == [[], [], []]
    assert describe(np.zeros((2, 7, 7, 3), np.uint8)) == [[], []]
    assert describe(blank(0)) == []


def test_a_batch_is_described_as_its_images_alone(records):
    images = np.array([r["image"] for r in records[:50]], np.uint8)
    assert describe(images) == [describe(image[None])[0] for image in images]


@pytest.mark.parametrize(
    "images",
    [
        blank()[0],
        blank().astype(np.int64),
        np.zeros((2, 5, 5, 3), np.uint8),
        np.zeros((2, 7, 7, 1), np.uint8),
        blank().tolist(),
        with_cell(1, 1, 11, 0, 0),
        with_cell(1, 1, 6, 6, 0),
        with_cell(1, 1, 4, 0, 3),
    ],
    ids=["one image", "dtype", "size", "channels", "list", "object", "colour", "door state"],
)
def test_other_images_are_refused(images):
    with pytest.raises(ValueError, match=r"image|door"):
        describe(images)


def test_an_unknown_language_is_refused():
    with pytest.raises(ValueError, match="'de'"):
        describe(blank(), "de")


@pytest.mark.parametrize("language", ["en", "fr"])
def test_the_vocabulary_covers_the_recordings(records, language):
    for record in records:
        if (record["level"] == FRENCH_LEVEL) == (language == "fr"):
            for sentence in record["descriptions"]:
                assert set(words_of(sentence)) <= caption_words(language)


def test_the_caption_field_holds_the_joined_sentences():
    env = envs.make("babyai/GoToDoor", 4, captions=True, fix_captions=True)
    obs = env.begin(np.arange(4))
    for step in range(40):
        expected = [". ".join(sentences) or NOTHING["en"] for sentences in env.captions(obs)]
        assert env.texts.texts(obs["caption"]) == expected
        obs = env.advance(np.full(4, [1, 2, 5, 2][step % 4])).obs


def test_a_view_of_nothing_has_a_caption():
    env = envs.make("babyai/Text-GoToLocal-RedBall-S30", 16, captions=True)
    seen = set()
    obs = env.begin(np.arange(16))
    for _ in range(30):
        seen.update(env.texts.texts(obs["caption"]))
        obs = env.advance(np.ones(16, int)).obs
    assert "You see nothing in front" in seen
    assert "" not in seen


def test_codes_are_unique():
    codes = {code_of(kind, colour, state) for kind in range(11) for colour in range(6) for state in range(3)}
    assert codes == set(range(198))
