"""What a language model may know of BabyAI, in the words of its captions (`grammar`) and missions (`missions`)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from envs.babyai.grammar import describe
from envs.babyai.missions import PLACES, Action, Mission, Thing
from envs.babyai.symbols import AGENT_COLUMN, AGENT_ROW, COLOURS, DOOR, OBJECTS, STATES, VIEW, WALL
from envs.babyai.world import ACTION_NAMES
from envs.knowledge import Goal, Knowledge, Progress

THINGS = ("key", "ball", "box")  # what can be carried
FIXTURES = ("wall", "door", "floor", "goal", "lava")  # what cannot

ABOUT = """\
A flat world of rooms on a grid. Walls are grey; keys, balls, boxes and doors are red, green, blue, purple, yellow or \
grey. You see 7 by 7 cells: 6 steps ahead and 3 to either side, but not through walls or closed doors. You turn on the \
spot and move one step at a time; things block your way. You can pick up the thing one step in front of you if your \
hands are empty, and drop what you carry into the empty cell in front of you. A closed door opens when you toggle it \
from one step away; a locked door only while you carry the key of its colour."""

VIEW_IN_WORDS = """\
What you see: 7 columns from left to right, each of 7 cells from far to near, each of object, colour and state. You \
stand at [3][6] and look towards [3][0], so [3][5] is the cell in front of you. What you carry is in your own cell, \
[3][6]."""

GOALS: list[Goal] = [
    {
        "goal": "pick up the {colour} {thing}",
        "seen": ["You see a {colour} {thing}"],
        "unless": ["You carry a {colour} {thing}", "You carry"],
    },
    {"goal": "open the {colour} door", "seen": ["closed {colour} door"], "unless": ["open {colour} door"]},
    *(
        Goal(
            goal=f"{verb} the {{colour}} door",
            seen=["locked {colour} door"],
            needs=["You carry a {colour} key"],
            unless=["open {colour} door"],
        )
        for verb in ("open", "unlock")  # missions say the one, players the other
    ),
    {
        "goal": "put the {carried_colour} {carried_thing} next to the {colour} {thing}",
        "seen": ["You see a {colour} {thing}"],
        "needs": ["You carry a {carried_colour} {carried_thing}"],
        "worth": 0.9,
    },
    {
        "goal": "go to the {colour} {thing}",
        "seen": ["You see a {colour} {thing}"],
        "unless": ["You see a {colour} {thing} 1 step forward"],
        "worth": 0.6,
    },
    {
        "goal": "go to the {colour} door",
        "seen": ["{state} {colour} door"],
        "unless": ["{state} {colour} door 1 step forward"],
        "worth": 0.5,
    },
]

PROGRESS: list[Progress] = [
    {"seen": "You carry a {colour} {thing}", "worth": 1.0},
    {"seen": "open {colour} door", "worth": 1.0},
    {"seen": "You see a {colour} {thing} 1 step forward", "worth": 0.4},
    {"seen": "{state} {colour} door 1 step forward", "worth": 0.3},
    {"seen": "You see a {colour} {thing}", "worth": 0.1},
    {"seen": "{state} {colour} door", "worth": 0.1},
    {"seen": "You see a wall 1 step forward", "worth": -0.2},
]

FACTS = {
    "can a {thing} be picked up": True,
    "can a {fixture} be picked up": False,
    "can a locked door be opened without": False,
    "can a closed door be opened": True,
    "can a door be opened": True,
    "can a key be opened": False,
    "can a ball be opened": False,
    "can a wall be opened": False,
    "does a {colour} key open a locked {colour} door": True,
    "does a {carried_colour} key open a locked {colour} door": False,
    "can you carry two things": False,
    "can you walk through an open door": True,
    "can you walk through a closed door": False,
    "can you walk through a wall": False,
    "can you walk through a {thing}": False,
    "can you see through a wall": False,
}


def knowledge(name: str = "") -> Knowledge:
    """The same for every level: all are played in one language of captions and missions."""
    return {
        "name": "babyai",
        "about": ABOUT,
        "actions": list(ACTION_NAMES["en"]),
        "slots": {
            "colour": list(COLOURS),
            "thing": list(THINGS),
            "carried_colour": list(COLOURS),
            "carried_thing": list(THINGS),
            "fixture": list(FIXTURES),
            "state": list(STATES),
        },
        "goals": GOALS,
        "progress": PROGRESS,
        "facts": FACTS,
        "symbols": {
            channel: {word: number for number, word in enumerate(words)}
            for channel, words in (("object", OBJECTS), ("colour", COLOURS), ("state", STATES))
        },
        "views": {"image": VIEW_IN_WORDS},
        "corpus": list(dict.fromkeys([*_captions(), *_missions(), *ACTION_NAMES["en"]])),
    }


def _captions() -> list[str]:
    """Carried things, walls, and a fifth of all (place, thing); each is the caption of an image with one cell in it."""
    things = [(OBJECTS.index(noun), colour, 0) for noun, colour in product(THINGS, range(len(COLOURS)))]
    doors = list(product([DOOR], range(len(COLOURS)), range(len(STATES))))
    here = (AGENT_COLUMN, AGENT_ROW)
    places = [place for place in product(range(VIEW), range(VIEW)) if place != here]
    cells = [(here, thing) for thing in things]
    cells += [((AGENT_COLUMN, row), (WALL, 5, 0)) for row in range(AGENT_ROW)]
    cells += [((column, AGENT_ROW), (WALL, 5, 0)) for column in range(VIEW) if column != AGENT_COLUMN]
    # Thirty-six things and a stride of five: from place to place, other things.
    cells += [(place, cell) for place, cell in list(product(places, things + doors))[::5]]
    images = np.zeros((len(cells), VIEW, VIEW, 3), np.uint8)
    images[..., 0] = OBJECTS.index("empty")
    for image, (place, cell) in zip(images, cells, strict=True):
        image[place] = cell
    return [sentence for sentences in describe(images) for sentence in sentences]


def _missions() -> Iterator[str]:
    """Every simple mission without a place, and a sample of those with places and of longer ones."""
    colours = (None, *COLOURS)
    carried = [Thing(n, c, unique=u) for n, c, u in product((*THINGS, "object"), colours, (True, False))]
    doors = [Thing("door", c, unique=u) for c, u in product(colours, (True, False))]
    simple = [Action("go to", (thing,)) for thing in carried + doors]
    simple += [Action("pick up", (thing,)) for thing in carried]
    simple += [Action("open", (thing,)) for thing in doors]
    placed = [
        Action("go to" if noun == "door" else "pick up", (Thing(noun, colour, place),))
        for noun, colour, place in product((*THINGS, "door"), colours, PLACES)
    ]
    put = [Action("put", pair) for pair in product(carried[:42], carried[:42])][::13]
    for action in (*simple, *placed[::3], *put):
        yield Mission((action,)).english()
    for k, action in enumerate(simple):
        other = simple[(37 * k + 11) % len(simple)]
        both = Mission((action, other)), Mission((action,), "then", (other,)), Mission((action,), "after", (other,))
        yield both[k % 3].english()
