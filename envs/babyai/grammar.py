"""What an image says: egocentric 7x7 grids -> sentences, in English or French.

The agent stands at column 3, row 6 and looks towards row 0. An image is described, in this order, by

    You carry a grey key                                   what is drawn in the agent's own cell
    You see a wall 2 steps forward                         the first thing met straight ahead, then to the left,
                                                           then to the right, each only if it is a wall
    You see a closed red door 1 step left and 3 steps forward
                                                           every other thing, column by column from the left,
                                                           farthest first inside a column

Images hold few symbols, so every possible sentence is built once and looked up by (cell code, column, row).
The sentences are those of the published BabyAI-Text recordings, with their two slips unless asked otherwise: an open
door is "a open", and the French sentence for a carried thing names it in English.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from envs.babyai.symbols import (
    AGENT_COLUMN,
    AGENT_ROW,
    CODES,
    COLOURS,
    DOOR,
    FLOOR,
    LAVA,
    OBJECTS,
    STATES,
    TRIPLE,
    VIEW,
    WALL,
)

Language = Literal["en", "fr"]

NOTHING = {"en": "You see nothing in front", "fr": "Tu ne vois rien devant"}
"""Stands for an empty list of sentences where a text is needed."""

FRENCH_NOUN = {
    "wall": "mur",
    "floor": "sol",
    "door": "porte",
    "key": "clef",
    "ball": "balle",
    "box": "boîte",
    "goal": "but",
    "lava": "lave",
}
FRENCH_COLOUR = {  # masculine, feminine
    "red": ("rouge", "rouge"),
    "green": ("vert", "verte"),
    "blue": ("bleu", "bleue"),
    "purple": ("violet", "violette"),
    "yellow": ("jaune", "jaune"),
    "grey": ("gris", "grise"),
}
FRENCH_STATE = {"open": "ouverte", "closed": "fermée", "locked": "fermée à clef"}
_FRENCH_WAY = {"forward": "devant", "left": "à gauche", "right": "à droite"}

PLACED_SENTENCES = CODES * VIEW * VIEW  # sentences "see something somewhere"; then "carry something"; then walls
PLACED_AND_CARRIED = PLACED_SENTENCES + CODES
_WALL_WAYS = (  # way, the cells met on it as (columns, rows)
    ("forward", [AGENT_COLUMN] * AGENT_ROW, [5, 4, 3, 2, 1, 0]),
    ("left", [2, 1, 0], [AGENT_ROW] * 3),
    ("right", [4, 5, 6], [AGENT_ROW] * 3),
)


def describe(images: NDArray[np.uint8], language: Language = "en", *, fix: bool = False) -> list[list[str]]:
    """Sentences for each image.

    Args:
        images: uint8 [N, 7, 7, 3], (object, colour, state) at [column, row].
        language: "en" or "fr".
        fix: correct both slips of the published sentences.

    Returns:
        N lists; an image that shows nothing has an empty one.

    Raises:
        ValueError: another shape or dtype, or symbols that Minigrid does not have.
    """
    counts, ids = sentence_ids(images)
    sentences = sentence_table(language, fix)[ids].tolist()
    ends = np.cumsum(counts).tolist()
    return [sentences[end - count : end] for end, count in zip(ends, counts.tolist(), strict=True)]


def sentence_ids(images: NDArray[np.uint8]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The sentences of `images` as rows of the sentence table.

    Returns:
        How many sentences each image has, [N], and the rows of all of them in order, [sum].
    """
    _check(images)
    kind, colour, state = images[..., 0], images[..., 1], images[..., 2]
    code = (kind.astype(np.intp) * len(COLOURS) + colour) * len(STATES) + np.where(kind == DOOR, state, 0)
    thing = (kind >= FLOOR) & (kind <= LAVA)
    image_parts: list[NDArray[np.intp]] = []
    id_parts: list[NDArray[np.intp]] = []

    holding = np.flatnonzero(thing[:, AGENT_COLUMN, AGENT_ROW])
    image_parts.append(holding)
    id_parts.append(PLACED_SENTENCES + code[holding, AGENT_COLUMN, AGENT_ROW])

    first_wall = PLACED_AND_CARRIED
    for _, columns, rows in _WALL_WAYS:
        met = kind[:, columns, rows]
        distance = np.argmax(met >= WALL, axis=1)
        blocked = np.flatnonzero(met[np.arange(len(met)), distance] == WALL)
        image_parts.append(blocked)
        id_parts.append(first_wall + distance[blocked])
        first_wall += len(columns)

    elsewhere = thing.copy()
    elsewhere[:, AGENT_COLUMN, AGENT_ROW] = False
    image, column, row = np.nonzero(elsewhere)
    image_parts.append(image)
    id_parts.append((code[image, column, row] * VIEW + column) * VIEW + row)

    image = np.concatenate(image_parts)
    order = np.argsort(image, kind="stable")  # stable: keeps carried, walls, things apart inside an image
    return np.bincount(image, minlength=len(images)), np.concatenate(id_parts)[order]


def words_of(text: str) -> list[str]:
    """The words of a mission or caption, as policies split them: at blanks, commas and full stops; lower case."""
    return text.lower().replace(",", " ").replace(".", " ").split()


@cache
def caption_words(language: Language) -> frozenset[str]:
    """Every word that a caption in `language` may hold, with and without the fixes."""
    found = set(words_of(NOTHING[language]))
    for fixed in (False, True):
        for sentence in sentence_table(language, fixed).tolist():
            found.update(words_of(sentence))
    return frozenset(found)


def _check(images: Any) -> None:
    shape, dtype = getattr(images, "shape", None), getattr(images, "dtype", None)
    if dtype != np.uint8 or shape is None or shape[1:] != (VIEW, VIEW, 3) or len(shape) != 4:
        raise ValueError(f"captions need uint8 images [N, 7, 7, 3], got {dtype} {shape}")
    kind, colour, state = images[..., 0], images[..., 1], images[..., 2]
    if (kind >= len(OBJECTS)).any() or (colour >= len(COLOURS)).any():
        raise ValueError(f"an image holds symbols beyond object {len(OBJECTS) - 1} or colour {len(COLOURS) - 1}")
    if ((kind == DOOR) & (state >= len(STATES))).any():
        raise ValueError("a door of an image is neither open, closed nor locked (state 0, 1, 2)")


@cache
def sentence_table(language: Language, fix: bool) -> NDArray[np.object_]:
    """The sentence table: things by (code, column, row), carried things by code, walls by way and distance."""
    if language not in NOTHING:
        raise ValueError(f"captions are written in en or fr, not in {language!r}")
    table = []
    for kind, colour, state in TRIPLE.tolist():
        if not FLOOR <= kind <= LAVA:
            table += [""] * VIEW * VIEW  # never said
            continue
        shown = _see(language, OBJECTS[kind], COLOURS[colour], STATES[state], fix)
        for column in range(VIEW):
            for row in range(VIEW):
                table.append(f"{shown} {_place(language, column - AGENT_COLUMN, AGENT_ROW - row)}")
    for kind, colour, _ in TRIPLE.tolist():
        table.append(_carry(language, OBJECTS[kind], COLOURS[colour], fix) if FLOOR <= kind <= LAVA else "")
    wall = "You see a wall" if language == "en" else "Tu vois un mur à"
    for way, columns, _ in _WALL_WAYS:
        table += [f"{wall} {_steps(language, distance, way)}" for distance in range(1, len(columns) + 1)]
    return np.array(table, object)


def _see(language: Language, noun: str, colour: str, state: str, fix: bool) -> str:
    if language == "fr":
        shown = f"Tu vois une {_french(noun, colour)}"
        return f"{shown} {FRENCH_STATE[state]}" if noun == "door" else shown
    if noun != "door":
        return f"You see a {colour} {noun}"
    article = "an" if fix and state == "open" else "a"
    return f"You see {article} {state} {colour} door"


def _carry(language: Language, noun: str, colour: str, fix: bool) -> str:
    if language == "en":
        return f"You carry a {colour} {noun}"
    return f"Tu portes une {_french(noun, colour) if fix else f'{noun} {colour}'}"


def _french(noun: str, colour: str) -> str:
    return f"{FRENCH_NOUN[noun]} {FRENCH_COLOUR[colour][1]}"


def _place(language: Language, right: int, ahead: int) -> str:
    """Sideways first: "2 steps left and 1 step forward"."""
    ways = [_steps(language, abs(right), "left" if right < 0 else "right")] if right else []
    ways += [_steps(language, ahead, "forward")] if ahead else []
    return {"en": " and ", "fr": " et "}[language].join(ways)


def _steps(language: Language, number: int, way: str) -> str:
    if language == "fr":
        return f"{number} pas {_FRENCH_WAY[way]}"
    return f"{number} step{'s' if number > 1 else ''} {way}"
