"""Patterns are found where they stand, filled with what was found, and nowhere else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_service.errors import UsageError
from llm_service.patterns import Pattern, agree, joined

SLOTS = {
    "colour": ["red", "blue", "Dark Blue"],
    "thing": ["ball", "key", "pickaxe", "stone pickaxe"],
    "other": ["red", "blue"],
    "odd": ["c++", "a.b", "x|y"],
}
words = st.fixed_dictionaries({slot: st.sampled_from(options) for slot, options in SLOTS.items()})
texts = st.lists(
    st.sampled_from(["{colour}", "{thing}", "{odd}", "go to", "the", "(now)", "*"]), min_size=1, max_size=8
)


@given(texts, words, st.sampled_from([str.lower, str.upper, str]), st.text(" .,;", max_size=3))
def test_a_filled_pattern_is_found_and_gives_its_words_back(parts, binding, case, around):
    pattern = Pattern(" ".join(parts), SLOTS)
    text = case(pattern.fill(binding))
    expected = {slot: binding[slot] for slot in pattern.slots}
    assert pattern.whole(f" {text}\n") == expected
    assert expected in pattern.find([f"{around} {text} {around}"])
    assert pattern.find([f"x{text}x"]) == [] or not text[0].isalnum() or not text[-1].isalnum()


@given(st.text(), texts)
def test_any_text_can_be_searched(text, parts):
    pattern = Pattern(" ".join(parts), SLOTS)
    for binding in pattern.find([text]):
        assert all(binding[slot] in SLOTS[slot] for slot in pattern.slots)


@pytest.mark.parametrize("text", ["\u017f\u0130\u0131\u212aey", "a {thing} \u017ftone pickaxe", "{", "}", "{}"])
def test_letters_that_only_look_alike_are_not_words(text):
    assert Pattern("stone {thing}", SLOTS).find([text]) == []
    assert Pattern("{thing}", SLOTS).find(["\u212aey"]) == [{"thing": "key"}]  # the Kelvin sign in lower case is k


def test_every_distinct_binding_is_found_once_in_order():
    pattern = Pattern("a {colour} {thing}", SLOTS)
    found = pattern.find(["a red ball and a dark blue stone pickaxe", "A RED BALL", "a blue key, a redball"])
    assert found == [
        {"colour": "red", "thing": "ball"},
        {"colour": "Dark Blue", "thing": "stone pickaxe"},
        {"colour": "blue", "thing": "key"},
    ]


def test_the_longest_word_wins_and_blanks_between_words_of_a_pattern_may_be_longer():
    pattern = Pattern("make a {thing}", SLOTS)
    assert pattern.find(["make \t a stone pickaxe"]) == [{"thing": "stone pickaxe"}]
    assert pattern.whole("make a pickaxe now") is None


def test_a_slot_that_is_named_twice_holds_one_word():
    same = Pattern("a {colour} key opens a {colour} door", SLOTS)
    assert same.slots == ("colour",)
    assert same.whole("a red key opens a red door") == {"colour": "red"}
    assert same.whole("a red key opens a blue door") is None
    assert Pattern("{colour} key, {other} door", SLOTS).whole("red key, blue door") == {
        "colour": "red",
        "other": "blue",
    }


def test_a_slot_without_words_is_refused():
    with pytest.raises(UsageError, match="names the slot 'hue', which has no words"):
        Pattern("the {hue} one", SLOTS)


def test_joined_patterns_share_their_words():
    seen = [Pattern("see {colour}", SLOTS), Pattern("hold {colour} {thing}", SLOTS)]
    sentences = ["see red, see blue", "hold blue key", "hold red ball", "hold blue ball"]
    assert joined(seen, sentences) == [
        {"colour": "red", "thing": "ball"},
        {"colour": "blue", "thing": "key"},
        {"colour": "blue", "thing": "ball"},
    ]
    assert joined(seen, sentences, {"thing": "key"}) == [{"colour": "blue", "thing": "key"}]
    assert joined([], sentences, {"thing": "key"}) == [{"thing": "key"}]
    assert agree({"a": "1"}, {"b": "2"})
    assert not agree({"a": "1"}, {"a": "2"})


def test_what_is_not_given_stays_open():
    assert Pattern("put {colour} by {thing}", SLOTS).fill({"thing": "key"}) == "put {colour} by key"


def test_a_million_characters_that_almost_match():
    pattern = Pattern("a {colour} {thing} next to a {colour} {thing}", SLOTS)
    assert pattern.find(["a red ball next to a red key " * 30_000]) == []
    assert pattern.find(["a" + " " * 1_000_000]) == []
