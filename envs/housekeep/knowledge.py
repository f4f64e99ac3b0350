"""What a language model may know of houses that are to be put in order, in the words of their texts and goals."""

from __future__ import annotations

from envs.housekeep.names import NAMES, OBJECTS, PLACES
from envs.knowledge import Knowledge

ACTION_NAMES = ("move forward", "turn left", "turn right", "look up", "look down", "grab or release")

ABOUT = """\
A house of several rooms, in which some things lie where people would not want them. You walk a quarter of a metre at \
a time, turn by 20 degrees and look up or down. What is in the middle of your picture, and at most three metres away, \
you can pick up if it is a thing and your hand is empty; and you can put down what you hold on any piece of furniture \
in the middle of your picture that has room. You hold one thing at a time. Each thing is to be put where people would \
keep it."""

PREMISE = "Would people keep the {object} in or on the {place}?"

EVERY = 7
"""Of objects and places one in so many stands in the corpus."""


def knowledge(name: str = "") -> Knowledge:
    """The same for every house: all are told in one language."""
    places = [f"{room} {kind}" for room, kind in PLACES]
    return {
        "name": "housekeep",
        "about": ABOUT,
        "actions": list(ACTION_NAMES),
        "slots": {"object": list(OBJECTS), "place": sorted(set(NAMES), key=lambda place: (-len(place), place))},
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
        "corpus": [
            *(f"You see the {thing} on the {place}" for thing, place in zip(OBJECTS, places * 3, strict=False)),
            *(f"You hold the {thing}" for thing in OBJECTS[::EVERY]),
            *(f"pick {thing}" for thing in OBJECTS[::EVERY]),
            *(f"{thing} in {place}" for thing in OBJECTS[::EVERY] for place in places[::EVERY]),
        ],
    }
