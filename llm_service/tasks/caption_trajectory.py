"""A description of a behaviour in one or two sentences: as a request, as an instruction, or as a story.

Value: {"caption": 1 to 60 words of letters, digits and plain punctuation}

A caption contains no names that are not in the inputs or the environment, and no address or path. Requests and
narratives contain no digits: they are about things, not about steps and coordinates.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any, Literal

from llm_service.errors import Malformed
from llm_service.records import Call, Parameters, Reply
from llm_service.tasks._grammar import PUNCTUATION, after
from llm_service.tasks._inputs import TrajectoryInputs
from llm_service.tasks._template import STOP, Template, about, only, plan, quote
from llm_service.world import World

_TEMPLATE = Template("caption_trajectory.v2")
VERSION = _TEMPLATE.version
combine = only

MAX_WORDS = 60
MAX_CHARACTERS = 600
STYLES = {
    "request": "a request for this behaviour by somebody who wants it, without any numbers",
    "instruction": "an instruction to the player, in the imperative",
    "narrative": "a short story of what the player did, in the past tense, without any numbers",
}
SYNONYMS = "; call things by other everyday words than the behaviour does"
DIRECTIONS = "; say where the player turned left or right"
ORDERS = {
    "forwards": "",
    "end first": "; begin with what came last, and only then tell how it came to that, from the start on",
    "backwards": "; tell it backwards: begin with what came last, then what came just before that, and so on",
}
_ADVICE = """\
Name two to four places that the player came to, {order}, by their names or other names. \
The place that you name {end} must be where the player is in the end. Name no place that it did not come to."""
_ORDERED = {
    "forwards": ("in the order in which it came to them", "last"),
    "end first": ("the last one first of all, the others in the order in which it came to them", "first"),
    "backwards": ("from the last one back to the first", "first"),
}
_WITH_NUMBERS = ("instruction",)
_GLUED = re.compile(r"[.:][^\W_]")  # a mark inside a word: an address or a path


class Inputs(TrajectoryInputs):
    """A behaviour, and the style of its description."""

    style: Literal["request", "instruction", "narrative"] = "instruction"
    """The style of the caption."""
    synonyms: bool = False
    """Whether it calls things by other everyday words."""
    order: Literal["forwards", "end first", "backwards"] = "forwards"
    """In which order the caption names things: as they came; the last one first, and the others as they came; or from
    the last one back to the first."""
    directions: bool = False
    """Whether it says where the player turned left or right; actions may then tell ways, such as "drive north"."""


def calls(inputs: Inputs, world: World) -> list[Call]:
    style = STYLES[inputs.style] + SYNONYMS * inputs.synonyms + DIRECTIONS * inputs.directions + ORDERS[inputs.order]
    order, end = _ORDERED[inputs.order]
    told = {"about": about(world), "plan": plan(world, _ADVICE.format(order=order, end=end))}
    turns = _TEMPLATE.turns(**told, style=style, steps=quote(inputs.steps()))
    parameters = Parameters(temperature=0.7, max_tokens=160, stop=STOP)
    return [Call("generate", turns, parameters=parameters, task="caption_trajectory", inputs=inputs.model_dump())]


def parse(reply: Reply, inputs: Inputs, index: int, world: World) -> dict[str, Any]:
    """The last caption line."""
    caption = (after("caption", reply) or "").strip(" \"'")
    wrong = _wrong(caption, inputs, world)
    if wrong:
        raise Malformed(f'expected one line "caption: " and 1 to {MAX_WORDS} words, but {wrong}')
    return {"caption": caption}


def _wrong(caption: str, inputs: Inputs, world: World) -> str:
    """Why a text is not a caption; empty if it is one."""
    words = caption.split()
    if not any(map(str.isalpha, caption)):
        return "there is none"
    if len(words) > MAX_WORDS or len(caption) > MAX_CHARACTERS:
        return "it is longer"
    if not all(c.isalpha() or c in "0123456789 " or c in PUNCTUATION for c in caption) or _GLUED.search(caption):
        return "it holds more than letters, digits and plain punctuation"
    if inputs.style not in _WITH_NUMBERS and any(c in "0123456789" for c in caption):
        return "it holds digits"
    names = (*world.slots.values(), *world.other_names.values())
    told = [*inputs.steps(), *(text for words in names for text in words), "I"]
    known = {word.strip(PUNCTUATION) for text in told for word in text.split()}
    for before, word in pairwise(words):
        name = word.strip(PUNCTUATION)
        begins = before.rstrip("\"')").endswith((".", "!", "?", ":"))
        if name[:1].isupper() and not begins and name.split("'")[0] not in known:
            return "it holds a name that the data does not hold"
    return ""
