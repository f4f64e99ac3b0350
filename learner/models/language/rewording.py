"""Other words for the same things: those that the published tests use, and others that training may vary with.

    "go to the red ball" ──> words, whole ones only ──> "go to the vermilion table"
    "turn left"          ──> the action's name      ──> "rotate left"

Carta et al. 2023 (arXiv 2302.02662), section 5.3, ask how far a policy goes in words that it was not trained in: other
nouns, other adjectives, invented words, another heading over the goal, other names of the actions, French. All of that
is `REWORDINGS`. `TRAINING` is what prompts may be varied with before: it has no word of a test, and no French.

Sentences stay as they are but for their words: "a azure ball" is no worse than the captions' own "a open door".
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from envs.text import text_hash


@dataclass(frozen=True)
class Rewording:
    """Other words and names; what is not in it stays as it is.

    words: word or phrase of a mission or observation -> another; the longest phrase that fits is taken.
    actions: name of an action -> another.
    goal: heading of the goal by the prompt's language, where it is another.
    """

    words: Mapping[str, str] = field(default_factory=dict)
    actions: Mapping[str, str] = field(default_factory=dict)
    goal: Mapping[str, str] = field(default_factory=dict)

    def text(self, text: str) -> str:
        """A mission or observation in other words. "ouverte" stays where "verte" is replaced."""
        return self._pattern.sub(lambda found: self.words[found[0]], text) if self.words else text

    def action(self, name: str) -> str:
        """Another name of an action."""
        return self.actions.get(name, name)

    def changes(self, words: Sequence[str], actions: Sequence[str]) -> bool:
        """Whether it makes a difference where these words are said and these are the names of the actions."""
        said = {word for phrase in self.words for word in phrase.split()}
        return bool(self.goal or said & set(words) or set(self.actions) & set(actions))

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        longest_first = sorted(self.words, key=len, reverse=True)
        return re.compile(rf"\b(?:{'|'.join(map(re.escape, longest_first))})\b")


ACTIONS = ("turn left", "turn right", "go forward", "pick up", "drop", "toggle")
"""What the tables below have other names for."""


def _actions(*names: str) -> dict[str, str]:
    return dict(zip(ACTIONS, names, strict=True))


# In English, then in French, where colours have a feminine too.
_NOUNS = {"key": "chair", "ball": "table", "box": "car", "clef": "chaise", "balle": "table", "boîte": "voiture"}
_COLOURS = {
    **{"red": "vermilion", "green": "jade", "blue": "cyan", "purple": "violet", "yellow": "golden", "grey": "silver"},
    **{"rouge": "vermilion", "vert": "jade", "verte": "jade", "bleu": "cyan", "bleue": "cyan"},
    **{"violet": "mauve", "violette": "mauve", "jaune": "dorée", "gris": "argent", "grise": "argent"},
}
_INVENTED_NOUNS = {"key": "dax", "ball": "xolo", "box": "afze", "clef": "dax", "balle": "xolo", "boîte": "afze"}
_INVENTED_COLOURS = {
    **{"red": "faze", "green": "jatu", "blue": "croh", "purple": "vurst", "yellow": "gakul", "grey": "sil"},
    **{"rouge": "faze", "vert": "jatu", "verte": "jatu", "bleu": "croh", "bleue": "croh"},
    **{"violet": "vurst", "violette": "vurst", "jaune": "gakul", "gris": "sil", "grise": "sil"},
}

REWORDINGS: dict[str, Rewording] = {
    "none": Rewording(),
    "nouns": Rewording(words=_NOUNS),
    "colours": Rewording(words=_COLOURS),
    "invented_nouns": Rewording(words=_INVENTED_NOUNS),
    "invented_colours": Rewording(words=_INVENTED_COLOURS),
    "invented": Rewording(words=_INVENTED_NOUNS | _INVENTED_COLOURS),
    "wish": Rewording(goal={"en": "I would like the agent to:", "fr": "Je veux que l'agent fasse:"}),
    "duty": Rewording(goal={"en": "You have to:", "fr": "Tu dois faire:"}),
    "rotate": Rewording(
        actions=_actions("rotate left", "rotate right", "move ahead", "take", "release", "switch"),
    ),
    "shift": Rewording(
        actions=_actions("shift left", "shift right", "go ahead", "take", "release", "turn"),
    ),
    "french_actions": Rewording(
        actions=_actions("tourner à gauche", "tourner à droite", "aller tout droit", "attraper", "lâcher", "basculer"),
    ),
}
"""The published tests by name. Words change in English and in French; French worlds (`env.language=fr`) have French
names of actions already, and no published others.

nouns, colours             existing words of the same kind: chair, table, car; vermilion, jade, ...
invented_nouns, ..._colours, invented   words that do not exist: dax, xolo, ...; faze, jatu, ...; both
wish, duty                 another heading over the goal
rotate, shift              other names of the six actions
french_actions             their French names, in an English world
"""


def rewording(name: str) -> Rewording:
    """The published test of this name.

    Raises:
        ValueError: there is none; one sentence.
    """
    if name in REWORDINGS:
        return REWORDINGS[name]
    near = difflib.get_close_matches(name, REWORDINGS, 1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(REWORDINGS)}"
    raise ValueError(f"policy.prompt.reword={name} is not known: {hint}")


# ---- for training: none of the words above, but for those that a plain name has too ----------------------------------

_OTHER_ACTIONS = {
    "turn left": ("spin left", "pivot left", "swing left", "face left", "look left"),
    "turn right": ("spin right", "pivot right", "swing right", "face right", "look right"),
    "go forward": ("step forward", "walk forward", "advance", "walk on", "march"),
    "pick up": ("grab", "lift", "collect", "get", "seize"),
    "drop": ("put down", "let go", "lay down", "leave", "discard"),
    "toggle": ("use", "operate", "flip", "activate", "press"),
}
_OTHER_WORDS = {
    "key": ("latchkey", "passkey", "opener", "pin"),
    "ball": ("sphere", "globe", "orb", "marble"),
    "box": ("crate", "chest", "carton", "case"),
    "door": ("gate", "hatch", "portal", "entrance"),
    "red": ("crimson", "scarlet", "ruby", "pink"),
    "green": ("emerald", "lime", "olive", "mint"),
    "blue": ("azure", "navy", "cobalt", "sapphire"),
    "purple": ("magenta", "plum", "lilac", "indigo"),
    "yellow": ("amber", "lemon", "mustard", "honey"),
    "grey": ("ashen", "slate", "charcoal", "leaden"),
}
_GERMAN = Rewording(
    words={
        **{"key": "Schlüssel", "ball": "Kugel", "box": "Kiste", "door": "Tür", "wall": "Wand"},
        **{"red": "rot", "green": "grün", "blue": "blau", "purple": "lila", "yellow": "gelb", "grey": "grau"},
    },
    actions=_actions("links drehen", "rechts drehen", "voran", "nimm", "ablegen", "schalte"),
)


def _mixture(number: int) -> Rewording:
    """One synonym of each word and action, which follows from the number alone. Left and right are turned alike."""

    def other(word: str, names: Sequence[str]) -> str:
        return names[text_hash(f"{number} {word.removesuffix('left').removesuffix('right')}") % len(names)]

    return Rewording(
        {word: other(word, names) for word, names in _OTHER_WORDS.items()},
        {name: other(name, names) for name, names in _OTHER_ACTIONS.items()},
    )


TRAINING = tuple(_GERMAN if number % 4 == 3 else _mixture(number) for number in range(32))
"""What prompts may be varied with: mixtures of English synonyms, in each of which a word or action has one other name;
and in one of four German names, of a language that no test is in."""
