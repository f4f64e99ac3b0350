"""Which goals make sense now: a list of goals in the environment's own words, or a choice among given ones.

Every goal must match the environment's goal grammar. In free form (`free`), and in an environment without goals, any
short plain phrase after a bullet is also a goal, even a senseless one. Closed form (`candidates`): only the candidates.
Goals that are already achieved are left out of the answer.

Two prompts. `listed` describes the environment and lists the forms of its goals. `open` says only the verbs, and what
they are is for the model to know, as Du et al. 2023 ask in Crafter (arXiv 2302.06692, section 3.1).

Value: {"goals": [up to `limit`, each once, in the model's order], "dropped": bullets that named no such goal}
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import islice
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from llm_service.errors import Malformed
from llm_service.records import Call, Parameters, Reply, Turn, digest
from llm_service.tasks._grammar import bare, fold, goals_of, lines
from llm_service.tasks._inputs import Bag, Phrase, TaskInputs, is_phrase
from llm_service.tasks._template import STOP, Template, about, only, quote
from llm_service.world import World

_LISTED, _OPEN = Template("suggest_goals.v1"), Template("suggest_goals_open.v1")
VERSION = f"suggest_goals.v2-{digest(_LISTED.version, _OPEN.version)[:12]}"
combine = only

MAX_LINES = 200  # lines of a reply that are read

_BULLET = re.compile(r"(?:[-*+•–]+|\d{1,3}[.)])\s*")
_NONE = ("nothing", "none")


class Inputs(TaskInputs):
    """A situation in which to choose goals."""

    observation: Bag
    """Sentences about what the player sees."""
    inventory: Bag = Field(default=[])
    """Sentences about, or names of, what the player holds."""
    achieved: Bag = Field(default=[])
    """Goals that are already reached."""
    candidates: Annotated[list[Phrase], Field(max_length=64), AfterValidator(lambda c: sorted(set(c)))] = Field(
        default=[]
    )
    """The only goals to choose from; empty: any goal of the environment."""
    free: bool = False
    """Allow any short plain phrase as a goal; known goals are given in the environment's words."""
    prompt: Literal["listed", "open"] = "listed"
    """`listed`: shows the environment's goals, or the candidates; `open`: only verbs."""
    limit: int = Field(default=5, ge=1, le=20)
    """Maximum number of goals."""

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if self.free and self.candidates:
            raise ValueError("free goals are not chosen from candidates: leave out one of the two")
        if self.prompt == "open" and self.candidates:
            raise ValueError("an open prompt shows no candidates: leave out one of the two")
        return self


def calls(inputs: Inputs, world: World) -> list[Call]:
    """One question. Raises UsageError if a goal of the environment names a slot that has no words."""
    goals_of(world)  # raises here, before anything is paid for
    turns = (_open if inputs.prompt == "open" else _listed)(inputs, world)
    parameters = Parameters(temperature=0.2, max_tokens=24 * inputs.limit, stop=STOP)
    return [Call("generate", turns, parameters=parameters, task="suggest_goals", inputs=inputs.model_dump())]


def _open(inputs: Inputs, world: World) -> tuple[Turn, ...]:
    said = [goal.goal for goal in world.goals] or world.actions
    verbs = sorted({words[0] for text in said if (words := text.split())})
    return _OPEN.turns(
        verbs=", ".join(verbs) or "any",
        observation=quote([*inputs.observation, *inputs.inventory]),
        achieved=quote(inputs.achieved),
        limit=str(inputs.limit),
    )


def _listed(inputs: Inputs, world: World) -> tuple[Turn, ...]:
    forms = list(dict.fromkeys(goal.goal for goal in world.goals))
    slots = {name: words for name, words in world.slots.items() if any(f"{{{name}}}" in form for form in forms)}
    return _LISTED.turns(
        about=about(world),
        forms="\n".join(f"  {form}" for form in forms) or "  a few plain words that begin with a verb",
        slots="\n".join(f"  {{{name}}}: {', '.join(words)}" for name, words in slots.items()) or "  (none)",
        observation=quote(inputs.observation),
        inventory=quote(inputs.inventory),
        achieved=quote(inputs.achieved),
        candidates=quote(inputs.candidates or ["(any)"]),
        limit=str(inputs.limit),
    )


def parse(reply: Reply, inputs: Inputs, index: int, world: World) -> dict[str, Any]:
    """Goals from lines; lines that name no goal are dropped."""
    accept, taken = _acceptor(inputs, world)
    reached = {bare(goal) for goal in inputs.achieved}
    goals: list[str] = []
    dropped, understood = 0, False
    for line in islice(lines(reply), MAX_LINES):
        bullet = _BULLET.match(line)
        text = line[bullet.end() :] if bullet else line
        if fold(text) in _NONE:
            understood = True
            continue
        goal = accept(text, bullet is not None)
        if goal is None:
            dropped += bullet is not None
        elif bare(goal) in reached:
            dropped, understood = dropped + 1, True
        else:
            understood = True
            goals += [goal] if goal not in goals else []
    if not understood:
        raise Malformed(f'expected one line for each goal, "- " and a goal that is {taken}, or the line "- nothing"')
    return {"goals": goals[: inputs.limit], "dropped": dropped}


def _acceptor(inputs: Inputs, world: World) -> tuple[Callable[[str, bool], str | None], str]:
    """A function that turns a line, with or without a bullet, into a goal or None; and the accepted form, in words."""
    if inputs.candidates:
        exact = {fold(goal): goal for goal in inputs.candidates}
        loose = {bare(goal): goal for goal in inputs.candidates}
        return lambda text, bullet: exact.get(fold(text)) or loose.get(bare(text)), "one of the candidates"
    known = goals_of(world)
    free = inputs.free or known is None

    def accept(text: str, bullet: bool) -> str | None:
        goal = known.match(text) if known else None
        if goal is None and free and bullet and is_phrase(phrase := fold(text)):
            return phrase  # without a bullet it may be a remark
        return goal

    return accept, "a few plain words" if free else "of a known form"
