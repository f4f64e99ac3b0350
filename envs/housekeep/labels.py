"""What people say of the questions that a language model is asked: does this thing belong there?

A task's questions are those of its five objects and the 34 names of its home's furniture, whether anybody was asked
about that or not: of a window people say no. A house by seed may have any of 269 objects and of 128 places.
"""

from __future__ import annotations

import numpy as np

from envs.housekeep import home
from envs.housekeep.knowledge import PREMISE
from envs.housekeep.names import KINDS, NAMES, OBJECTS, PLACES, ROOMS, number
from envs.housekeep.people import table
from envs.knowledge import Labels

STORAGE = ("shelf", "bottom cabinet", "top cabinet", "chest")
"""Where most things belong, whatever they are."""
_TEST = """
    action figure, adjustable wrench, android figure, anti slip tape, apple, backpack, balancing cactus, banana,
    battery, beard color gel, beauty pack, board game, book, bookend, bowl, box, canister, card game, carrying case,
    chain, clamp, clay, colored wood blocks, crayon, cube storage box, cup, cushion, desk caddy, dog bowl, dog chew
    toy, dollhouse toy, drink coaster, duct tape, easter basket, electronic adapter, electronic cable, face
    moisturizer, file sorter, fingerpaint, flat screwdriver, foam brick, folder, graphics card, guitar, hair color,
    hair conditioner, hammer, hand bell, hard drive, hard drive case, headphones, ink cartridge, invitation card,
    jar, jenga, jewelry box, keyboard, labeling tape, laptop cover, laptop stand, large marker, laundry box, lego
    duplo, lemon, letter holder, lipstick, lunch bag, lunch box, magnifying glass, mascara, measuring tape,
    motherboard, mouse, mouse pad, movie dvd, mug, multiport hub, neck rest, nine hole peg test, nintendo switch,
    orange, padlock, paint bottle set, paint maker, paper bag, peach, pear, peg and hammer toy, pencil case,
    phillips screwdriver, phone armband case, phone stand, pillow, plum, power drill, puzzle game, remote control,
    rubiks cube, scissors, shoe box, sidewalk chalk, skin care product, skin moisturizer, snack dispenser, software
    cd, sorting toy, stacking cups, storage bin, strawberry, stuffed toy, tablet holder, tablet stand, toy airplane,
    toy animal, toy basketball, toy bowling set, toy construction set, toy fishing, toy food, toy furniture set, toy
    instrument, toy kitchen set, toy tool kit, toy vehicle, tray, tumbler, usb drive, video game, vinyl tape, waste
    basket, whale whistle, wireless accessory
"""
"""Objects of the published split that are neither for training nor for validation (Kant et al. 2022)."""


def labelled(name: str, preferences: str) -> Labels:
    """Of a world, by these preferences (`people.table`).

    Raises:
        ValueError: the file of preferences cannot be read.
    """
    people = table(preferences)
    own = name in home.TASKS
    things = list(home.TASKS[name]) if own else list(OBJECTS)
    places = [NAMES.index(place) for place in home.places()] if own else [number(*place) for place in PLACES]
    suits = people.suits(places) if own else people.plain
    rows = np.array([OBJECTS.index(thing) for thing in things])
    objects, where = (pair.ravel() for pair in np.meshgrid(rows, places, indexing="ij"))
    rooms, kinds = np.array([room or "no room" for room in ROOMS]), np.array(KINDS)
    groups = {
        "object": np.array(OBJECTS)[objects],
        "room": rooms[where // len(KINDS)],
        "furniture": kinds[where % len(KINDS)],
    }
    return Labels(
        people.source,
        tuple(
            PREMISE.format(object=thing, place=NAMES[place])
            for thing, place in zip(groups["object"], where, strict=True)
        ),
        suits[objects, where],
        groups,
        "object",
        frozenset(" ".join(_TEST.split()).split(", ")),
        {"storage furniture": np.isin(groups["furniture"], STORAGE)},
    )
