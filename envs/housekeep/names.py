"""What objects, pieces of furniture and rooms are called, and by which numbers arrays name them.

Names are those that 372 people were asked about (Kant et al., Housekeep, 2022, arXiv 2205.10712): 269 kinds of objects
and 128 pairs of a room and a piece of furniture in it. Pieces that nobody was asked about are no place for anything.
"""

from __future__ import annotations


def _words(text: str) -> tuple[str, ...]:
    return tuple(" ".join(name.split()) for name in text.split(","))


OBJECTS = _words("""
    action figure, adjustable wrench, android figure, anti slip tape, antidepressant, apple, backpack, balancing
    cactus, banana, baseball, bath sheet, battery, beard color gel, beauty pack, bleach cleanser, blender jar,
    board game, book, bookend, bowl, box, bundt pan, butter dish, cake mix, cake pan, camera, can opener, candle
    holder, candy, candy bar, canister, card game, carrying case, casserole dish, cereal, chain, chocolate,
    chocolate box, chocolate milk pods, chocolate powder, chopping board, clamp, clay, clock, cloth, coffee
    beans, coffee pods, coffeemaker, colored wood blocks, condiment, cracker box, crayon, cube storage box, cup,
    cushion, desk caddy, diaper pack, dietary supplement, dish drainer, dishtowel, dispensing closure, dog bowl,
    dog chew toy, dollhouse toy, donut, drink coaster, duct tape, dumbbell, dumbbell rack, dustpan and brush,
    dutch oven, easter basket, electric heater, electric toothbrush, electronic adapter, electronic cable, face
    moisturizer, file sorter, fingerpaint, fitness tracker wristband, flashlight, flat screwdriver, foam brick,
    folder, fondant, fork, fruit snack, gelatin box, gloves, golf ball, graphics card, guitar, hair color, hair
    conditioner, hair dryer, hair straightener, hammer, hand bell, handbag, hard drive, hard drive case, hat,
    headphones, heavy duty gloves, heavy master chef can, helmet, herring fillets, honey dipper, incontinence
    pads, ink cartridge, instant camera, invitation card, jar, jenga, jewelry box, keyboard, knife, knife block,
    labeling tape, lamp, lantern, laptop, laptop cover, laptop stand, large marker, laundry box, laxative, lego
    duplo, lemon, letter holder, light bulb, lime squeezer, lipstick, lunch bag, lunch box, magnifying glass,
    mascara, master chef can, measuring tape, medicine, milk frother, mini soccer ball, motherboard, mouse,
    mouse pad, movie dvd, mug, multiport hub, mustard bottle, neck rest, nine hole peg test, nintendo switch,
    orange, padlock, paint bottle set, paint maker, pan, paper bag, parchment sheet, peach, pear, peg and hammer
    toy, pencil case, peppermint, pepsi can pack, pet food supplement, phillips screwdriver, phone armband case,
    phone stand, picture frame, pillow, pitcher base, plant, plant container, plant saucer, plate, plum,
    portable speaker, potted meat can, power drill, pressure cooker, pudding box, puzzle game, racquetball,
    ramekin, remote control, router, rubiks cube, salt shaker, sanitary pads, saucer, saute pan, scissors, set-top
    box, shoe, shoe box, shredder, sidewalk chalk, skillet, skillet lid, skin care product, skin
    moisturizer, snack cake, snack dispenser, soap dish, soap dispenser, softball, software cd, sorting toy,
    sparkling water, spatula, sponge, sponge dish, spoon, spoon rest, stacking cups, stand mixer, storage bin,
    strawberry, string lights, stuffed toy, sugar box, sugar sprinkles, surface saver ring, sushi mat, table
    lamp, tablet, tablet holder, tablet stand, tampons, tea can pack, tea pods, teapot, tennis ball, thermal
    laminator, toaster, tomato soup can, toothbrush holder, toothbrush pack, towel, toy airplane, toy animal,
    toy basketball, toy bowling set, toy construction set, toy fishing, toy food, toy furniture set, toy
    instrument, toy kitchen set, toy tool kit, toy vehicle, tray, tumbler, umbrella, usb drive, utensil holder,
    vase, video game, vinyl tape, virtual reality viewer, washcloth, waste basket, water bottle, weight loss
    guide, whale whistle, wipe warmer, wireless accessory, xylitol sweetener
""")
"""Kinds of objects; their place here is the number that arrays have."""

_PLACES = {
    "bathroom": "bathtub, bottom cabinet, carpet, counter, shelf, sink, table, toilet, top cabinet",
    "bedroom": (
        "basket, bed, bottom cabinet, carpet, chair, chest, coffee table, console table, counter, office "
        "chair, shelf, sofa chair, table"
    ),
    "childs room": (
        "bed, bottom cabinet, carpet, chair, chest, counter, shelf, sofa, sofa chair, stool, table, top cabinet"
    ),
    "closet": "bottom cabinet, shelf",
    "corridor": "carpet, chair, chest, console table, dryer, shelf, table, washer",
    "dining room": "bottom cabinet, carpet, chair, console table, counter, sofa, table",
    "exercise room": "treadmill",
    "garage": "bottom cabinet, shelf",
    "home office": "bottom cabinet, carpet, counter, office chair, shelf, table, top cabinet",
    "kitchen": (
        "bottom cabinet, carpet, chair, chest, coffee machine, cooktop, counter, dishwasher, fridge, "
        "microwave, oven, shelf, sink, stove, table, top cabinet"
    ),
    "living room": (
        "bottom cabinet, carpet, chair, chest, coffee table, console table, loudspeaker, office chair, shelf,"
        " sofa, sofa chair, speaker system, stool, table"
    ),
    "lobby": "bottom cabinet, carpet, chair, counter, piano, sofa chair, stool, table",
    "pantry room": "counter, fridge, top cabinet",
    "playroom": "bottom cabinet, carpet, chair, counter, piano, shelf, table",
    "storage room": "counter, dryer, shelf, sink, table, washer",
    "television room": "bottom cabinet, chair, coffee table, shelf, sofa, sofa chair",
    "utility room": "bottom cabinet, carpet, dryer, sink, table, top cabinet, washer",
}
_BARE = _words("""
    bottom cabinet no top, cushion, door, fence, floor lamp, grandfather clock, guitar, heater, mirror, monitor,
    picture, plant, range hood, shower, standing tv, towel rack, trash can, wall mounted tv, window
""")

ROOMS = ("", *_PLACES)
"""Rooms; the first is none, that of a window or a door."""
PLACES = tuple((room, kind) for room, kinds in _PLACES.items() for kind in _words(kinds))
"""The pairs of a room and a piece of furniture that people were asked about."""
KINDS = tuple(sorted({kind for _, kind in PLACES} | set(_BARE)))
"""Pieces of furniture."""
NAMES = tuple(f"{room} {kind}".strip() for room in ROOMS for kind in KINDS)
"""What a piece is called in a room: number room * len(KINDS) + kind."""


def number(room: str, kind: str) -> int:
    """Of a piece of furniture in a room among `NAMES`; no room is "".

    Raises:
        ValueError: there is no such room or piece.
    """
    return ROOMS.index(room) * len(KINDS) + KINDS.index(kind)
