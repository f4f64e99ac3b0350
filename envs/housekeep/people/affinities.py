"""Where we would look for things: 19 groups of objects, and how well each goes with rooms and with furniture.

    3   it belongs there                  2   most would call that tidy
    1   it is left lying there            0   nobody would look for it there

What is not listed has the weight of `ROOM` or `KINDS`. A place's affinity is its furniture's weight times the root of a
third of its room's. So a thing belongs where both fit: a pan in a kitchen cabinet, neither in a bedroom cabinet nor on
a kitchen chair; and a cupboard in a room that hardly fits is still better than the floor of the right one.
`EXCEPTIONS` change some weights for some objects; `ONLY` names those that have one place or two.

This is written by hand from common sense, to be read and argued with.
"""

from __future__ import annotations

from typing import NamedTuple


class Habit(NamedTuple):
    """Names after commas; weights as "kitchen 3, garage 0.5"."""

    objects: str
    rooms: str = ""
    kinds: str = ""


ROOM = 0.35
"""Of a room that is not listed."""
KINDS = """
    top cabinet 2.6, bottom cabinet 2.8, shelf 2.8, chest 2.4, basket 1.5, counter 1.2, table 1.2, coffee table 1.1,
    console table 1.2, sofa 1, sofa chair 1, chair 1, office chair 1, stool 1, bed 1, carpet 0.8, washer 0.5, dryer 0.5,
    piano 0.6, sink 0.5, loudspeaker 0.4, speaker system 0.4, coffee machine 0.3, cooktop 0.3, stove 0.3, bathtub 0.3,
    treadmill 0.2, dishwasher 0.2, microwave 0.2, oven 0.1, fridge 0.1, toilet 0.1
"""
"""Of furniture that is not listed: things are put away in storage furniture, and left on everything else."""

GROUPS = {
    "packaged food": Habit(
        """
        cake mix, candy, candy bar, cereal, chocolate, chocolate box, chocolate milk pods, chocolate powder, coffee
        beans, coffee pods, condiment, cracker box, donut, fondant, fruit snack, gelatin box, heavy master chef can,
        herring fillets, master chef can, mustard bottle, peppermint, pepsi can pack, potted meat can, pudding box,
        snack cake, sparkling water, sugar box, sugar sprinkles, tea can pack, tea pods, tomato soup can, xylitol
        sweetener
        """,
        "kitchen 3, pantry room 3, dining room 1.8, storage room 1.5, living room 1, television room 0.9, bathroom 0.1",
        "top cabinet 3, shelf 3, bottom cabinet 2.8, fridge 1.4, counter 1.3, bed 0.4, carpet 0.3, chest 1",
    ),
    "fruit": Habit(
        "apple, banana, lemon, orange, peach, pear, plum, strawberry",
        "kitchen 3, pantry room 3, dining room 2.6, living room 1.4, television room 1, bathroom 0.1",
        """
        fridge 3, counter 2.4, table 2.4, coffee table 1.5, shelf 1.8, top cabinet 1.2, bottom cabinet 1.2, chest 0.5,
        bed 0.3, carpet 0.3
        """,
    ),
    "cooking utensil": Habit(
        """
        bundt pan, cake pan, can opener, casserole dish, chopping board, dutch oven, honey dipper, lime squeezer, pan,
        parchment sheet, saute pan, shredder, skillet, skillet lid, sushi mat
        """,
        "kitchen 3, pantry room 2.4, dining room 1.6, storage room 1.2, living room 0.6, bedroom 0.2, bathroom 0.2",
        """
        bottom cabinet 3, top cabinet 2.8, shelf 2.6, counter 1.7, stove 1.5, cooktop 1.5, oven 1.2, dishwasher 1.3,
        sink 1.2, bed 0.2, sofa 0.4
        """,
    ),
    "cutlery": Habit(
        "fork, knife, knife block, spatula, spoon, utensil holder",
        "kitchen 3, dining room 2.4, pantry room 1.8, living room 0.5, television room 0.4, bathroom 0.2",
        "bottom cabinet 3, top cabinet 2.8, counter 1.6, table 1.4, dishwasher 1.5, sink 1.1, shelf 2.4, bed 0.2",
    ),
    "crockery": Habit(
        "bowl, butter dish, cup, mug, pitcher base, plate, ramekin, saucer, teapot, tumbler",
        """
        kitchen 3, dining room 2.6, pantry room 2.2, living room 1.2, television room 1, home office 0.9, bedroom 0.7,
        bathroom 0.3
        """,
        """
        top cabinet 3, bottom cabinet 2.9, shelf 2.8, dishwasher 1.7, sink 1.3, counter 1.6, table 1.5, coffee table
        1.4, coffee machine 0.8, bed 0.4
        """,
    ),
    "kitchen accessory": Habit(
        """
        blender jar, canister, dish drainer, dishtowel, dispensing closure, dog bowl, drink coaster, jar, salt shaker,
        spoon rest, surface saver ring, tray, water bottle
        """,
        "kitchen 3, pantry room 2.4, dining room 2.2, storage room 1.2, living room 0.8, bathroom 0.3, bedroom 0.4",
        "top cabinet 2.9, bottom cabinet 2.9, shelf 2.8, counter 1.6, table 1.3, sink 1, dishwasher 1, bed 0.3",
    ),
    "sanitary": Habit(
        """
        bath sheet, bleach cleanser, cloth, diaper pack, dustpan and brush, electric toothbrush, incontinence pads,
        sanitary pads, soap dish, soap dispenser, sponge, sponge dish, tampons, toothbrush holder, toothbrush pack,
        towel, washcloth, wipe warmer
        """,
        """
        bathroom 3, utility room 2.3, storage room 2, closet 2.2, bedroom 1.3, garage 1, kitchen 0.8, childs room 0.8,
        corridor 0.7, dining room 0.2
        """,
        "bottom cabinet 3, top cabinet 2.9, shelf 2.9, counter 1.4, sink 1.2, bathtub 1.1, toilet 0.8, washer 0.9",
    ),
    "medical": Habit(
        "antidepressant, dietary supplement, laxative, medicine, pet food supplement, weight loss guide",
        "bathroom 2.8, bedroom 1.8, kitchen 1.8, pantry room 1.5, storage room 1.4, closet 1.4, home office 1",
        "top cabinet 3, shelf 2.6, bottom cabinet 2.3, carpet 0.3, chest 1.6, sofa 0.6",
    ),
    "cosmetic": Habit(
        """
        beard color gel, beauty pack, face moisturizer, hair color, hair conditioner, lipstick, mascara, skin care
        product, skin moisturizer
        """,
        "bathroom 3, bedroom 2.3, closet 2, utility room 1, living room 0.7, kitchen 0.3, garage 0.2",
        """
        top cabinet 3, bottom cabinet 2.7, shelf 2.9, counter 1.5, sink 1.2, bathtub 1, table 1.4, console table 1.5,
        toilet 0.5
        """,
    ),
    "apparel": Habit(
        "backpack, gloves, handbag, hat, shoe, umbrella",
        """
        closet 3, bedroom 2.6, corridor 2.2, lobby 2, childs room 1.8, garage 1.3, utility room 1.2, storage room 1.6,
        living room 0.9, kitchen 0.2, bathroom 0.4, pantry room 0.2
        """,
        "bottom cabinet 3, shelf 2.8, chest 2.8, chair 1.1, carpet 1.2, top cabinet 2.2, bed 1, console table 1.5",
    ),
    "furnishing": Habit(
        "cushion, neck rest, pillow",
        "bedroom 3, living room 2.4, television room 2.2, childs room 2.4, closet 2.3, playroom 1, lobby 1.2",
        """
        bed 3, sofa 2.8, sofa chair 2.6, chair 1.6, office chair 1.3, chest 2.6, bottom cabinet 2.4, shelf 2.1, top
        cabinet 1.8, table 0.6, counter 0.5, coffee table 0.6
        """,
    ),
    "decoration": Habit(
        """
        balancing cactus, candle holder, clock, hand bell, lantern, picture frame, plant, plant container, plant saucer,
        string lights, vase
        """,
        """
        living room 2.8, bedroom 2.2, lobby 2.4, corridor 2.2, dining room 2.2, home office 2.1, television room 2.1,
        childs room 1.4, storage room 1.6, garage 1.4, closet 1, kitchen 0.8, bathroom 0.6, playroom 1, pantry room 0.3
        """,
        """
        shelf 2.9, table 1.6, console table 1.8, coffee table 1.5, counter 1.5, bottom cabinet 2.4, top cabinet 2.1,
        chest 2.1, piano 1.2, carpet 0.8, bed 0.3, chair 0.6, sofa 0.5
        """,
    ),
    "storage": Habit(
        """
        box, carrying case, cube storage box, easter basket, jewelry box, laundry box, lunch bag, lunch box, paper bag,
        shoe box, snack dispenser, storage bin, waste basket
        """,
        """
        closet 3, storage room 2.8, garage 2.6, bedroom 1.9, utility room 2, pantry room 1.5, childs room 1.6, corridor
        1.4, home office 1.4, living room 1.1, kitchen 1, bathroom 0.6
        """,
        "bottom cabinet 2.8, shelf 3, chest 2, top cabinet 2.3, carpet 1.2, bed 0.6",
    ),
    "stationery": Habit(
        """
        book, bookend, desk caddy, file sorter, folder, invitation card, labeling tape, large marker, letter holder,
        magnifying glass, pencil case, scissors
        """,
        """
        home office 3, bedroom 2, living room 2, childs room 1.9, corridor 1.2, storage room 1.5, closet 1.2, playroom
        1.4, television room 1.3, lobby 1.1, dining room 0.8, kitchen 0.5, bathroom 0.1
        """,
        "shelf 3, bottom cabinet 2.7, top cabinet 2.4, table 1.5, counter 1.3, console table 1.3",
    ),
    "electronic accessory": Habit(
        """
        battery, camera, electronic adapter, electronic cable, fitness tracker wristband, graphics card, hard drive,
        hard drive case, headphones, ink cartridge, instant camera, keyboard, laptop, laptop cover, laptop stand,
        motherboard, mouse, mouse pad, movie dvd, multiport hub, nintendo switch, phone armband case, phone stand,
        portable speaker, remote control, router, set-top box, software cd, tablet, tablet holder, tablet stand, usb
        drive, video game, virtual reality viewer, wireless accessory
        """,
        """
        home office 3, living room 2.1, bedroom 1.9, television room 2.2, childs room 1.3, storage room 1.6, garage 1.2,
        closet 1.2, playroom 1.1, corridor 0.9, lobby 0.8, dining room 0.7, kitchen 0.4, bathroom 0.1, pantry room 0.1
        """,
        "shelf 2.9, bottom cabinet 2.8, top cabinet 2.5, table 1.5, counter 1.2, office chair 0.7, chest 2, carpet 0.4",
    ),
    "appliance": Habit(
        """
        coffeemaker, electric heater, hair dryer, hair straightener, lamp, light bulb, milk frother, pressure cooker,
        stand mixer, table lamp, thermal laminator, toaster
        """,
        "storage room 2, garage 1.5, utility room 1.6, closet 1.4",
        "shelf 2.7, bottom cabinet 2.8, top cabinet 2.3, counter 1.8, sofa 0.4, bed 0.4",
    ),
    "tool": Habit(
        """
        adjustable wrench, anti slip tape, chain, clamp, duct tape, flashlight, flat screwdriver, hammer, heavy duty
        gloves, measuring tape, padlock, phillips screwdriver, power drill, vinyl tape
        """,
        """
        garage 3, storage room 2.6, utility room 2.5, closet 1.6, corridor 1.1, home office 1.1, living room 0.8,
        kitchen 1, childs room 0.1, bathroom 0.3, bedroom 0.4, dining room 0.3
        """,
        "bottom cabinet 3, shelf 3, top cabinet 2.5, chest 2.3, table 1.5, counter 1.6, bed 0.2, sofa 0.4",
    ),
    "sporting": Habit(
        """
        baseball, dumbbell, dumbbell rack, golf ball, helmet, mini soccer ball, racquetball, softball, tennis ball
        """,
        """
        garage 2.8, closet 2.5, exercise room 2.8, childs room 2, storage room 2.2, playroom 2, bedroom 1.6, utility
        room 1, corridor 1.1, living room 0.8, lobby 0.8, kitchen 0.2, bathroom 0.2, dining room 0.3
        """,
        "bottom cabinet 2.9, shelf 2.7, chest 2.7, basket 2.4, carpet 1.2, top cabinet 2, table 1, counter 1, sink 0.1",
    ),
    "toy": Habit(
        """
        action figure, android figure, board game, card game, clay, colored wood blocks, crayon, dog chew toy, dollhouse
        toy, fingerpaint, foam brick, guitar, jenga, lego duplo, nine hole peg test, paint bottle set, paint maker, peg
        and hammer toy, puzzle game, rubiks cube, sidewalk chalk, sorting toy, stacking cups, stuffed toy, toy airplane,
        toy animal, toy basketball, toy bowling set, toy construction set, toy fishing, toy food, toy furniture set, toy
        instrument, toy kitchen set, toy tool kit, toy vehicle, whale whistle
        """,
        """
        childs room 3, playroom 3, bedroom 1.5, living room 1.6, television room 1.4, storage room 1.8, closet 1.9,
        garage 1.4, corridor 0.9, lobby 0.7, dining room 0.5, kitchen 0.2, bathroom 0.3
        """,
        "shelf 3, chest 3, bottom cabinet 2.9, top cabinet 2.2, table 1.5, basket 2.3, carpet 1.4, bed 1.2, sink 0.1",
    ),
}

EXCEPTIONS = (
    # kitchen machines, hair and light are appliances of other rooms
    Habit(
        "coffeemaker, milk frother, pressure cooker, stand mixer, toaster",
        "kitchen 3, pantry room 2.3, dining room 1.5, storage room 1.5, garage 0.6, bedroom 0.2, bathroom 0.1",
        "counter 2.7, table 1.6, stove 0.6, cooktop 0.6",
    ),
    Habit(
        "hair dryer, hair straightener",
        "bathroom 3, bedroom 2.2, closet 2.1, utility room 1.6, garage 0.4",
        "counter 1.8, sink 1, table 1.6, console table 1.6",
    ),
    Habit(
        "lamp, table lamp",
        "bedroom 2.7, living room 2.7, home office 2.6, lobby 2, corridor 1.8, childs room 2.2, television room 2",
        "table 3, console table 3, coffee table 2.2, shelf 2, counter 1.7, bottom cabinet 1.9, top cabinet 1.3",
    ),
    Habit(
        "light bulb",
        "garage 2.6, storage room 2.7, utility room 2.6, closet 2.2, corridor 1.2, living room 1, kitchen 0.9",
    ),
    Habit("thermal laminator", "home office 3, storage room 2, garage 1, closet 1.6, living room 1", "table 2.1"),
    Habit("electric heater", "bedroom 2.2, living room 2.2, closet 1.9, home office 1.5", "carpet 2, top cabinet 0.9"),
    # what is kept cold, and what is not
    Habit("sparkling water, pepsi can pack", kinds="fridge 2.9, bottom cabinet 2.5"),
    Habit("mustard bottle, condiment, chocolate milk pods, chocolate, chocolate box", kinds="fridge 2.6"),
    Habit("snack cake, donut, pudding box, gelatin box", kinds="fridge 2, counter 2, table 1.7"),
    Habit("coffee beans, coffee pods, tea pods, tea can pack", kinds="counter 2, coffee machine 1.4, fridge 0.6"),
    Habit("candy, candy bar, fruit snack, peppermint", "living room 1.6", "coffee table 1.7, fridge 0.8"),
    # cleaning is done in more rooms than the bathroom
    Habit("bleach cleanser, cloth, dustpan and brush, sponge", "utility room 2.9, kitchen 2.1, garage 1.6", "sink 1.8"),
    Habit("sponge dish, soap dispenser, soap dish", "kitchen 2", "sink 2.2, counter 2.1, shelf 2.3, bathtub 1.3"),
    Habit("electric toothbrush, toothbrush holder", kinds="sink 2.3, counter 2.3"),
    Habit("bath sheet, towel, washcloth", "closet 2.6, bedroom 1.7", "shelf 3, washer 1.2, dryer 1.2"),
    Habit("diaper pack, wipe warmer", "childs room 2.5, bedroom 1.9, bathroom 2.2"),
    # where it is used
    Habit("dishtowel, dish drainer", "kitchen 3, pantry room 1.6", "sink 2, counter 2.2"),
    Habit("drink coaster", "living room 2.3, dining room 2.6, television room 2", "coffee table 2.6, table 2.5"),
    Habit("dog bowl", "utility room 1.8, storage room 1.8, dining room 1.4", "carpet 1.8, counter 1, top cabinet 1.6"),
    Habit("water bottle", "exercise room 1.5, bedroom 1.2", "fridge 2.2"),
    Habit("shoe", kinds="bed 0.3, table 0.3, counter 0.3, carpet 1.5, chair 0.4, sofa 0.3"),
    Habit("umbrella", "lobby 2.5, corridor 2.5, garage 1.6, bedroom 1.6"),
    Habit("book", "living room 2.4, bedroom 2.3", "shelf 3, coffee table 1.8"),
    Habit("movie dvd, video game, nintendo switch, set-top box, remote control", "television room 3, living room 2.7"),
    Habit("remote control", kinds="coffee table 2.5, table 2.3, sofa 1.5"),
    Habit("router", "living room 2.5, corridor 1.7", "shelf 3, table 2.2"),
    Habit("fitness tracker wristband, phone armband case", "bedroom 2.4, closet 1.7, exercise room 1.6"),
    Habit("headphones, phone stand, tablet, laptop", "bedroom 2.3, living room 2.3", "table 2.5, coffee table 1.8"),
    Habit("ink cartridge, graphics card, motherboard", "living room 1.2, bedroom 1.1, television room 0.9"),
    Habit("battery, electronic cable, electronic adapter", "garage 1.9, utility room 1.8, storage room 2.2"),
    Habit("dumbbell, dumbbell rack", "bedroom 1.6, childs room 0.7, playroom 0.5", "carpet 1.8, top cabinet 0.5"),
    Habit("guitar", "living room 2.3, bedroom 2", "sofa 1.3, top cabinet 0.8, carpet 1.5"),
    Habit("board game, card game, puzzle game, jenga, rubiks cube", "living room 2.4, television room 2"),
    Habit("dog chew toy", "living room 2, utility room 1.8, childs room 1, playroom 1.6", "carpet 1.8"),
    Habit("stuffed toy", "bedroom 2", "bed 2.4"),
    Habit("sidewalk chalk, toy basketball, toy bowling set", "garage 2.2"),
    Habit("clay, crayon, fingerpaint, paint bottle set, paint maker", "home office 1.6", "table 1.8"),
    Habit("jewelry box", "bedroom 2.9, closet 2.4, garage 0.4", "table 1.9, console table 1.9"),
    Habit("laundry box", "utility room 2.9, bathroom 1.6, bedroom 1.6", "washer 1.7, dryer 1.5"),
    Habit(
        "lunch bag, lunch box, snack dispenser", "kitchen 2.9, pantry room 2.6, closet 1.2, garage 0.6", "counter 1.8"
    ),
    Habit("waste basket", "home office 2, bathroom 1.9, kitchen 1.8", "carpet 2, top cabinet 0.5, shelf 1.6"),
    Habit(
        "plant, plant container, plant saucer", "garage 1.9, utility room 1.4", "bottom cabinet 1.8, top cabinet 1.2"
    ),
    Habit("vase", "dining room 2.5", "table 2.8, coffee table 2.5"),
    Habit("candle holder, lantern", "dining room 2.5, bathroom 1.2", "table 2.6, bottom cabinet 2.5"),
)

ONLY = {
    "chocolate": "kitchen top cabinet",
    "shredder": "kitchen top cabinet",
    "herring fillets": "kitchen fridge, pantry room fridge",
    "strawberry": "kitchen fridge, pantry room fridge",
    "helmet": "bedroom bottom cabinet, garage bottom cabinet",
    "jewelry box": "bedroom chest",
    "dumbbell rack": "garage bottom cabinet",
    "set-top box": "television room shelf, living room shelf",
    "bleach cleanser": "utility room bottom cabinet, bathroom bottom cabinet",
}
"""Objects that one or two places are right for: elsewhere they are at best left lying."""
