"""What an archive knows of a sentence, on a few behaviours whose texts and ends are known."""

import numpy as np
import pytest

from envs import navigation
from learner.behaviours.lookup import Lookup
from learner.behaviours.words import Description, asked

ENDS = np.array([[500, 60], [490, 66], [480, 60], [60, 60], [500, 500], [100, 100]], np.float32)
TEXTS = [
    ["go to the bathtub, then go to the sofa"],
    ["first the bathtub, then the sofa", "go to the sofa"],
    ["go to the bathtub, then go to the sofa"],
    ["go to the sofa, then go to the bathtub"],
    ["go to the bed quickly"],
    [],
]


SCENE = navigation.Scene(navigation.load())


def told(text, order="forwards"):
    return Description(text, tuple(asked(SCENE, text, order)))


@pytest.fixture
def archive():
    return Lookup(ENDS, [[told(text) for text in own] for own in TEXTS])


def test_texts_count_by_what_they_ask_for_not_by_the_order_of_their_names():
    texts = ["go to the sofa, but first go to the bathtub", "go to the sofa, then go to the bathtub"]
    archive = Lookup(ENDS[:2], [[told(texts[0], "end first")], [told(texts[1])]])
    for way in (told("via the bathtub to the sofa"), told("to the sofa after the bathtub", "backwards")):
        assert [entry.likeness for entry in archive.by_text(way, 2)] == [1, 0.5]
        assert archive.by_text(way, 1)[0].text == texts[0]
    place, alike = archive.leads_to(told("via the fan to the sofa"))
    assert (place.tolist(), alike) == (ENDS[0].tolist(), 1)


def test_texts_are_alike_that_name_the_same_places_in_order(archive):
    alike = archive.likeness(told("visit the bathtub and end at the sofa"))
    assert alike["go to the bathtub, then go to the sofa"] == alike["first the bathtub, then the sofa"] == 1
    assert alike["go to the sofa, then go to the bathtub"] == 2 * 1 / 4
    assert alike["go to the sofa"] == pytest.approx(2 * 1 / 3)
    assert alike["go to the bed quickly"] == 0
    words = archive.likeness(told("Go quickly"))  # it names no place
    assert words["go to the bed quickly"] == 2 * 2 / (2 + 5)
    assert max(words, key=words.get) == "go to the bed quickly"
    assert set(archive.likeness(told("xyzzy")).values()) == {0.0}


def test_the_nearest_by_text_have_different_texts(archive):
    asked = told("first the bathtub, then the sofa")
    found = archive.by_text(asked, 3)
    assert [entry.text for entry in found] == [asked.text, "go to the bathtub, then go to the sofa", "go to the sofa"]
    assert [entry.likeness for entry in found] == pytest.approx([1, 1, 2 / 3])  # equal words come first
    near = archive.by_text(asked, 2, np.array([478, 60], np.float32))
    assert [entry.row for entry in near] == [2, 1]  # of row 0 and 2, which have one text, the nearer one
    assert len(archive.by_text(asked, 99)) == 5


def test_the_nearest_by_end_need_no_text(archive):
    found = archive.by_end(np.array([95, 100], np.float32), 2, told("go to the bathtub"))
    assert [(entry.row, entry.text, entry.likeness) for entry in found] == [
        (5, "", 0.0),
        (3, "go to the sofa, then go to the bathtub", pytest.approx(2 / 3)),
    ]
    (one,) = archive.by_end(np.array([490, 70], np.float32), 1, told("the sofa"))
    assert (one.row, one.text, one.likeness) == (1, "go to the sofa", 1)  # of its two texts the one that is more alike


def test_a_sentence_leads_where_texts_with_its_last_place_end(archive):
    place, alike = archive.leads_to(told("via the bathtub: destination the sofa"))
    assert alike == 3
    np.testing.assert_array_equal(place, ENDS[1])  # the nearest to (490, 60), the median of three ends
    place, alike = archive.leads_to(told("to the bathtub"))  # two texts name it first, and end elsewhere
    assert (place.tolist(), alike) == (ENDS[3].tolist(), 1)
    place, alike = archive.leads_to(told("from the sofa to the fan"))  # none ends at the fan
    assert (place.tolist(), alike) == (ENDS[1].tolist(), 1)
    place, alike = archive.leads_to(told("quickly"))
    assert (place.tolist(), alike) == (ENDS[4].tolist(), 1)
    place, alike = archive.leads_to(told("xyzzy"))
    assert np.isnan(place).all()
    assert alike == 0
    place, alike = archive.leads_to(told("to the bathtub after the sofa", "backwards"))
    assert (place.tolist(), alike) == (ENDS[3].tolist(), 1)
