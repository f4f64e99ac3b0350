"""How the scripted model words what was reached: orders of naming things, styles, other names, turns.

goals in the order of time ──turns──> "turn left and ..." ──in_other_words──> ──in_order──> ──caption──> a text
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from llm_service.backends.scripted.chance import Chance

_THEN = (", then ", ", and then ", ", after that ")
_END_FIRST = (
    "{last}, but first {to}{before}",
    "{last} last of all, but earlier {to}{before}",
    "{last} after you {before}",
    "before you {last}, {before}",
    "{last} when you are done with this: {before}",
)
_BACKWARDS = (", but first {to}", ", but earlier {to}", " after you ", ", and just before ")
_REQUESTS = (
    "Please ....",
    "Could you ...?",
    "I would like somebody to ....",
    "I need you to ....",
    "I want a player that can ....",
)
WAYS = ("north", "north east", "east", "south east", "south", "south west", "west", "north west")
"""Ways that an action may end in, clockwise."""


def caption(goals: Sequence[str], order: str, style: str, chance: Chance) -> str:
    """A text that tells of goals, in an order and a style of `caption_trajectory`."""
    told = in_order(goals, order, "to " if style == "narrative" else "", chance)
    if style == "narrative":
        return f"The player set out to {told}, and did."
    if style == "request":
        before, after = chance.pick(_REQUESTS).split("...")
        return f"{before}{told}{after}"
    return f"{told[0].upper()}{told[1:]}."


def in_order(goals: Sequence[str], order: str, to: str, chance: Chance) -> str:
    """Goals in a sentence, in an order of `caption_trajectory`. `to`: what each begins with but the first; a text with
    it does not speak to anybody."""
    then = chance.pick(_THEN) + to
    if order == "forwards" or len(goals) == 1:
        return then.join(goals)
    forms = [form for form in (_END_FIRST if order == "end first" else _BACKWARDS) if not to or "{to}" in form]
    form = chance.pick(forms)
    if order == "backwards":
        return form.format(to=to).join(goals[::-1])
    return form.format(to=to, last=goals[-1], before=then.join(goals[:-1]))


def in_other_words(goal: str, names: Mapping[str, Sequence[str]], chance: Chance) -> str:
    """A goal whose things have their everyday names, one of `names`."""
    longest = sorted(names, key=len, reverse=True)  # a file cabinet is not a cabinet
    if not longest:
        return goal
    either = rf"\b({'|'.join(map(re.escape, longest))})\b"
    return re.sub(either, lambda found: chance.pick(names[found[0]]), goal)


def turns(reached_at: Sequence[int], actions: Sequence[str]) -> list[str]:
    """How the player turned where it reached the goal before each: "turn left", "turn right", or "" if it is not
    known or it did neither.

    Args:
        reached_at: number of the observation at which each goal was reached, in the order of time; 0 if not known.
        actions: between observations; they tell ways, such as "drive north east".
    """
    longest = sorted(WAYS, key=len, reverse=True)  # north east is not east
    ways = [next((way for way in longest if action.endswith(f" {way}")), "") for action in actions]
    found = [""]
    for at, then in pairwise(reached_at):
        before, after = (ways[at - 1], ways[at]) if 0 < at < then else ("", "")
        angle = (WAYS.index(after) - WAYS.index(before)) % len(WAYS) if before and after else 0  # clockwise
        half = len(WAYS) // 2
        found.append("" if angle in (0, half) else "turn right" if angle < half else "turn left")
    return found
