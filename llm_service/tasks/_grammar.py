"""Reading any reply in linear time, and only into words that are known beforehand."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from llm_service.patterns import Pattern
from llm_service.records import Reply
from llm_service.tasks._inputs import tidy
from llm_service.world import World

MAX_REPLY = 65_536  # characters of a reply that are read; the rest is ignored
MAX_LINE = 1_000  # characters of a line that are read (normalising long runs of accents is not linear)

PUNCTUATION = ".,;:!?'\"()-"
_MARKUP = " .,;:!?*_`\"'#~"
_ARTICLES = ("the", "a", "an")


def lines(reply: Reply) -> Iterator[str]:
    """The reply's cleaned lines, without empty ones, fences and rules."""
    for line in reply.text[:MAX_REPLY].splitlines():
        tidied = tidy(line[:MAX_LINE])
        if tidied.strip("`~-=*_ ") and not tidied.startswith("```"):
            yield tidied


def after(label: str, reply: Reply) -> str | None:
    """The rest of the last line that begins with `label:`, in any case and markup; None: there is no such line."""
    found = None
    for line in lines(reply):
        head, colon, tail = line.partition(":")
        if colon and head.strip(_MARKUP + ">-").lower() == label:
            found = tail.strip("*_`~ ")
    return found


def fold(text: str) -> str:
    """The text in lower case, without surrounding markup."""
    return tidy(text).strip(_MARKUP).lower()


def bare(text: str) -> str:
    """`fold` without articles."""
    return _without_articles(fold(text))


def _without_articles(text: str) -> str:
    return " ".join(word for word in text.split() if word.lower() not in _ARTICLES)


def plain(text: str) -> str:
    """Free text reduced to words and punctuation, without paths, addresses or markup."""
    kept = "".join(c if c.isalpha() or c in "0123456789" or c in PUNCTUATION else " " for c in tidy(text))
    for mark in ".:":
        kept = kept.replace(mark, f"{mark} ")  # no host names, no drives
    return re.sub(r" ([.,;:!?])", r"\1", " ".join(kept.split()))


class Goals:
    """An environment's goals as a grammar: patterns with slots, filled with the slots' words.

    Raises:
        UsageError: a pattern names a slot that has no words.
    """

    def __init__(self, patterns: Iterable[str], slots: Iterable[tuple[str, Sequence[str]]]) -> None:
        words = dict(slots)
        self._forms = [(Pattern(_without_articles(text), words), Pattern(text, words)) for text in patterns]

    def match(self, text: str) -> str | None:
        """The goal that a line names, in the environment's words; case, markup and articles do not matter."""
        wanted = bare(text)
        for form, pattern in self._forms:
            binding = form.whole(wanted)
            if binding is not None:
                return pattern.fill(binding)
        return None


_goals = lru_cache(maxsize=16)(Goals)


def goals_of(world: World) -> Goals | None:
    """The environment's goal grammar; None if it publishes no goals.

    Raises:
        UsageError: a pattern names a slot that has no words.
    """
    slots = tuple((name, tuple(words)) for name, words in world.slots.items())
    return _goals(tuple(goal.goal for goal in world.goals), slots) if world.goals else None
