"""What a language model may know of houses that are to be put in order, in the words of their texts and goals."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from envs.housekeep import home
from envs.housekeep.names import NAMES, OBJECTS
from envs.housekeep.people import table
from envs.housekeep.people.preferences import PLACE_NAMES, RATERS
from envs.knowledge import Knowledge

ACTION_NAMES = ("move forward", "turn left", "turn right", "look up", "look down", "grab or release")

ABOUT = """\
A house of several rooms, in which some things lie where people would not want them. You walk a quarter of a metre at \
a time, turn by 20 degrees and look up or down. What is in the middle of your picture, and at most three metres away, \
you can pick up if it is a thing and your hand is empty; and you can put down what you hold on any piece of furniture \
in the middle of your picture that has room. You hold one thing at a time. Each thing is to be put where people would \
keep it."""

PREMISE = "Would people keep the {object} in or on the {place}?"


def knowledge(name: str = "") -> Knowledge:
    """The same for every house, but that a task names its own objects and places. Our own table says what belongs where
    (`facts`), for a model that answers by rules."""
    own = name in home.TASKS
    objects, pieces = (home.TASKS[name], home.places()) if own else (OBJECTS, sorted(set(NAMES)))
    return {
        "name": "housekeep",
        "about": ABOUT,
        "actions": list(ACTION_NAMES),
        "slots": {"object": list(objects), "place": list(pieces)},
        "facts": _facts(objects, pieces),
        "dissent": _dissent(objects, pieces),
        "goals": [
            {
                "goal": "pick {object}",
                "seen": ["You see the {object} on the {place}"],
                "premise": PREMISE,
                "wanted": False,
            },
            {
                "goal": "{object} in {place}",
                "seen": ["You know of the {place}"],
                "needs": ["You hold the {object}"],
                "premise": PREMISE,
            },
        ],
        "endings": [{"reached": "{object} in", "ends": ["{object} in", "pick {object}"]}],
    }


def _facts(objects: Iterable[str], places: Iterable[str]) -> dict[str, bool]:
    """What belongs where, a question each; and last, that nothing belongs anywhere else."""
    things, pieces = set(objects), set(places)
    right = [(OBJECTS[i], NAMES[j]) for i, j in np.argwhere(table().plain).tolist()]
    kept = [PREMISE.format(object=thing, place=place) for thing, place in right if thing in things and place in pieces]
    return dict.fromkeys(kept, True) | {PREMISE: False}


def _dissent(objects: Iterable[str], places: Iterable[str]) -> dict[str, float]:
    """Where people disagree: the share of those who say otherwise than most, in (0, 0.5], a question each."""
    things, pieces, people = set(objects), set(places), table()
    yes = people.positive / RATERS
    shares = np.where(people.right, 1 - yes, np.minimum(yes, 0.5))
    asked = [(OBJECTS[i], NAMES[PLACE_NAMES[j]], float(shares[i, j])) for i, j in np.argwhere(shares > 0).tolist()]
    return {
        PREMISE.format(object=thing, place=place): share
        for thing, place, share in asked
        if thing in things and place in pieces
    }
