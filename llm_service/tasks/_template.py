"""Prompts: a file of two turns with $names, filled once.

    === system ===        constant for a world: role, world, reply form, examples; servers cache it as a prefix
    === user ===          the question and, at the end, its data

Data is quoted line by line: a text is one line, and every line of data begins with "| ", so no text can end the data.
The brackets from which chat formats build their control tokens become round ones.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from llm_service.records import Call, Turn, digest
from llm_service.tasks._inputs import tidy
from llm_service.world import World

FOLDER = Path(__file__).parent / "prompts"
STOP = ("[data]",)
"""Stop texts: a model that does not stop would write the next question itself."""

PLAN = ("[plan]", "[end of plan]")
"""Lines around the plan of a world in the first turn."""
_PLANNED = re.compile(r"\n\[plan\]\n.*?\n\[end of plan\]", re.DOTALL)
_ROUND = str.maketrans("<>[]{}`", "()()()'")


def quote(texts: Iterable[str]) -> str:
    """Untrusted texts as lines of data."""
    return "\n".join(f"| {tidy(text).translate(_ROUND)}" for text in texts) or "| (nothing)"


def only(values: Sequence[Any], inputs: Any) -> Any:
    """`combine` for a task with one call: the call's value."""
    return values[0]


def about(world: World) -> str:
    """The part of a prompt about the environment."""
    told = [world.about.strip() or "Nothing more is known of this world."]
    if world.actions:
        told.append(f"Actions: {', '.join(world.actions)}.")
    return "\n".join(told)


def plan(world: World, advice: str) -> str:
    """The part of a prompt about where everything is, and how a task uses it; "" for a world without a plan."""
    return "\n".join(["", PLAN[0], *world.plan, advice, PLAN[1]]) if world.plan else ""


def without_plan(call: Call) -> Call:
    """The question as it would be if its prompt did not show the world's plan."""
    (role, text), *others = call.turns or (("", ""),)
    if role != "system" or PLAN[0] not in text:
        return call
    return replace(call, turns=((role, _PLANNED.sub("", text)), *others))


class Template:
    """One prompt: the text, or the file `prompts/NAME.txt`; NAME ends in its version, such as `yes_no.v1`."""

    def __init__(self, name: str, text: str = "") -> None:
        text = text or (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
        self.version = f"{name}-{digest(text)[:12]}"
        system, user = text.removeprefix("=== system ===\n").split("\n=== user ===\n")
        self._turns = (("system", string.Template(system.strip())), ("user", string.Template(user.strip())))

    def turns(self, **values: str) -> tuple[Turn, ...]:
        """The conversation; values are not substituted again."""
        return tuple((role, template.substitute(values)) for role, template in self._turns)
