"""Thresholds of similarity: what counts as a match, what is counted, what follows."""

import numpy as np
import pytest

from benchmarks import __main__ as command
from benchmarks import thresholds
from benchmarks.thresholds import OTHER, Pairs, compare, markdown, recommended, wordings
from envs.crafter.rules import COMBINED, SENSIBLE, SYNONYMS
from envs.crafter.tasks import GOALS


def test_it_is_no_benchmark():
    assert "thresholds" not in command.names()


def test_every_goal_is_said_in_other_words_that_are_nobodys_name():
    assert thresholds.REWORDED.keys() == set(GOALS)
    said = [phrase for phrases in thresholds.REWORDED.values() for phrase in phrases]
    assert len(set(said)) == len(said) >= 60
    assert not set(said) & set(COMBINED)


def test_every_action_is_a_goal_a_second_name_or_another():
    found = wordings()
    assert found["the goal's name"] == [(goal, goal) for goal in GOALS]
    assert ("chop the tree", "chop tree") in found["with articles"]
    assert ("go and sleep", "sleep") in found["with articles"]
    assert dict(found["second name"]) == SYNONYMS
    named = [said for kind in ("the goal's name", "second name", OTHER) for said, _ in found[kind]]
    assert sorted(named) == sorted(COMBINED)


def letters(text):
    """An embedding that can be reckoned by hand: which letters a text has."""
    vector = np.array([float(chr(97 + i) in text.lower()) for i in range(26)], np.float32)
    return vector / np.linalg.norm(vector)


def test_pairs_are_those_of_every_event():
    goals = [("Chop the tree", "chop tree"), ("eat cow", "attack cow")]
    matches, sensible, senseless = compare(goals, letters)
    assert len(matches) == 1 + 2  # a cow that is eaten is attacked
    assert len(sensible) == 2 * len(SENSIBLE) - 3
    assert len(senseless) == 2 * (len(COMBINED) - len(SENSIBLE))
    assert matches.tolist() == pytest.approx(
        [letters("chop the tree") @ letters("chop tree"), 1.0, letters("eat cow") @ letters("attack cow")]
    )


def test_the_lowest_threshold_without_a_false_match_is_recommended():
    def pairs(sensible, senseless=0.97):
        return Pairs(*(np.array([value], np.float32) for value in (0.86, sensible, senseless)))

    found = {said: pairs(0.6) for said in wordings()}
    assert recommended(found, everything=False) == 0.7
    found["other words"], found[OTHER] = pairs(0.84), pairs(0.93)
    assert recommended(found, everything=False) == 0.85
    assert recommended(found, everything=True) == 0.99
    table = markdown(found)
    assert "| 0.85 | 0 of 1 | 0 of 1 | 0 of 1 | 0 of 1 | 0 | 4 | 2 |" in table
    assert "| 0.95 | 1 of 1 | 1 of 1 | 1 of 1 | 1 of 1 | 0 | 4 | 1 |" in table
    assert "Recommended: 0.85 for goals of this world" in table
