"""The mission grammar: text <-> structure, and the same mission in French.

mission := group | group ", then " group | group " after you " group
group   := action | action " and " action
action  := "go to " thing | "pick up " thing | "open " thing | "put " thing " next to " thing
thing   := ("the" | "a") [colour] noun [place]
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Literal

from envs.babyai.grammar import FRENCH_COLOUR, FRENCH_NOUN, Language, words_of
from envs.babyai.symbols import COLOURS

NOUNS = ("box", "ball", "key", "door", "object")
PLACES = {
    "in front of you": "devant toi",
    "behind you": "derrière toi",
    "on your left": "à ta gauche",
    "on your right": "à ta droite",
}
VERBS = ("go to", "pick up", "open", "put")

_INFINITIVE = {"go to": "aller", "pick up": "attraper", "open": "ouvrir", "put": "poser"}
_PERFECT = {"go to": "être allé", "pick up": "avoir attrapé", "open": "avoir ouvert", "put": "avoir posé"}

_THING = rf"(the|a) (?:({'|'.join(COLOURS)}) )?({'|'.join(NOUNS)})(?: ({'|'.join(PLACES)}))?"
_ACTION = re.compile(rf"(?:(go to|pick up|open) {_THING}|put {_THING} next to {_THING})")


@dataclass(frozen=True)
class Thing:
    """What an action is about: "the red ball on your left"."""

    noun: str
    colour: str | None = None
    place: str | None = None
    unique: bool = True  # "the", else "a"

    def english(self) -> str:
        parts = ["the" if self.unique else "a", self.colour, self.noun, self.place]
        return " ".join(part for part in parts if part)

    def french(self, preposition: Literal["", "à", "de"] = "") -> str:
        """With its article, which joins with `preposition`: "à la balle", "d'un objet", "de l'objet"."""
        feminine = self.noun != "object"
        colour = f" {FRENCH_COLOUR[self.colour][feminine]}" if self.colour else ""
        place = f" {PLACES[self.place]}" if self.place else ""
        noun = FRENCH_NOUN.get(self.noun, "objet")
        if self.unique:
            named = f"la {noun}" if feminine else f"l'{noun}"
        else:
            named = f"une {noun}" if feminine else f"un {noun}"
        if preposition == "de" and not self.unique:
            return f"d'{named}{colour}{place}"
        return f"{preposition} {named}{colour}{place}".lstrip()


@dataclass(frozen=True)
class Action:
    """One verb of `VERBS` and its things: two for "put", else one."""

    verb: str
    things: tuple[Thing, ...]

    def english(self) -> str:
        return f"{self.verb} {' next to '.join(thing.english() for thing in self.things)}"

    def french(self, done: bool = False) -> str:
        """In the infinitive, or after "après" in the perfect infinitive."""
        verb = (_PERFECT if done else _INFINITIVE)[self.verb]
        first = self.things[0].french("à" if self.verb == "go to" else "")
        if self.verb == "put":
            return f"{verb} {first} à côté {self.things[1].french('de')}"
        return f"{verb} {first}"


@dataclass(frozen=True)
class Mission:
    """One group of actions, or two of which the order is told by `link`.

    link: "" for one group; "then": `first`, then `second`; "after": `first` after `second`.
    """

    first: tuple[Action, ...]
    link: Literal["", "then", "after"] = ""
    second: tuple[Action, ...] = ()

    @property
    def actions(self) -> tuple[Action, ...]:
        return self.first + self.second

    def things(self) -> list[Thing]:
        """Everything the mission names, in the order of the text."""
        return [thing for action in self.actions for thing in action.things]

    def english(self) -> str:
        first, second = (" and ".join(a.english() for a in group) for group in (self.first, self.second))
        return first + {"": "", "then": ", then ", "after": " after you "}[self.link] + second

    def french(self) -> str:
        first = " et ".join(action.french() for action in self.first)
        second = " et ".join(action.french(done=self.link == "after") for action in self.second)
        return first + {"": "", "then": ", puis ", "after": " après "}[self.link] + second


def parse(text: str) -> Mission:
    """Text of a mission -> its structure. `parse(text).english() == text`.

    Raises:
        ValueError: the text is not a BabyAI mission.
    """
    link: Literal["", "then", "after"]
    if ", then " in text:
        link, (head, tail) = "then", text.split(", then ", 1)
    elif " after you " in text:
        link, (head, tail) = "after", text.split(" after you ", 1)
    else:
        return Mission(_group(text, text))
    return Mission(_group(head, text), link, _group(tail, text))


@cache
def translate(mission: str) -> str:
    """The mission in French: "go to the red ball" -> "aller à la balle rouge".

    Raises:
        ValueError: the text is not a BabyAI mission.
    """
    return parse(mission).french()


def _group(part: str, whole: str) -> tuple[Action, ...]:
    actions = tuple(_action(clause, whole) for clause in part.split(" and "))
    if len(actions) > 2:
        raise ValueError(f"not a BabyAI mission: {whole!r} (at most two actions are joined by 'and')")
    return actions


def _action(clause: str, whole: str) -> Action:
    match = _ACTION.fullmatch(clause)
    if match is None:
        raise ValueError(f"not a BabyAI mission: {whole!r} (cannot read {clause!r})")
    groups = match.groups()
    things: tuple[Thing, ...]
    if groups[0]:
        verb, things = groups[0], (_thing(groups[1:5]),)
    else:
        verb, things = "put", (_thing(groups[5:9]), _thing(groups[9:13]))
    if (verb == "open") != (things[0].noun == "door") and verb != "go to":
        raise ValueError(f"not a BabyAI mission: {whole!r} (doors are opened, other things are picked up and put)")
    return Action(verb, things)


def _thing(groups: tuple[str | None, ...]) -> Thing:
    article, colour, noun, place = groups
    assert noun is not None
    return Thing(noun, colour, place, article == "the")


@cache
def mission_words(language: Language) -> frozenset[str]:
    """Every word that a mission in `language` may hold."""
    found: set[str] = set()
    for noun, colour, place, unique, verb in product(NOUNS, COLOURS, PLACES, (True, False), VERBS):
        thing = Thing(noun, colour, place, unique)
        action = (Action(verb, (thing, thing) if verb == "put" else (thing,)),) * 2
        for mission in (Mission(action, "then", action), Mission(action, "after", action)):
            found.update(words_of(mission.english() if language == "en" else mission.french()))
    return frozenset(found)
