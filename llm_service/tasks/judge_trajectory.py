"""How well a behaviour follows its instruction: points from 0 to 10 per criterion, and overall.

Value: {"scores": {criterion: 0..10}, "overall": 0..10, "reason": plain text of at most 500 characters}
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from llm_service.errors import Malformed
from llm_service.records import Call, Parameters, Reply
from llm_service.tasks._grammar import MAX_REPLY, fold, plain
from llm_service.tasks._inputs import Phrase, Said, TrajectoryInputs
from llm_service.tasks._template import STOP, Template, about, only, plan, quote
from llm_service.world import World

_TEMPLATE = Template("judge_trajectory.v2")
VERSION = _TEMPLATE.version
combine = only

_ADVICE = """\
Take every place, tile and distance from this plan and from the behaviour. Whatever a request calls by another name is \
the thing of that name."""
MOST = 10
MAX_REASON = 500
_TRIES = 32  # opening braces to try, from the last one back: bounds the time
_DECODER = json.JSONDecoder()


def _without_duplicates(names: list[str]) -> list[str]:
    if len({fold(name) for name in names}) < len(names):
        raise ValueError("a criterion is named twice")
    return names


class Inputs(TrajectoryInputs):
    """The instruction, and the behaviour."""

    instruction: Said
    """The instruction."""
    rubric: Annotated[list[Phrase], Field(min_length=1, max_length=12), AfterValidator(_without_duplicates)]
    """Names of the criteria."""
    questions: list[Said] = Field(default=[], max_length=12)
    """What the judge answers in words before it gives points."""


def calls(inputs: Inputs, world: World) -> list[Call]:
    asked = f"\nQuestions:\n{quote(inputs.questions)}" if inputs.questions else ""
    first = "A short line in answer to each question, in their order, and then the " if inputs.questions else ""
    turns = _TEMPLATE.turns(
        about=about(world),
        plan=plan(world, _ADVICE),
        instruction=quote([inputs.instruction]),
        rubric=quote(inputs.rubric),
        questions=asked,
        first=first,
        steps=quote(inputs.steps()),
    )
    parameters = Parameters(temperature=0.0, max_tokens=480 + 60 * len(inputs.questions), stop=STOP)
    return [Call("generate", turns, parameters=parameters, task="judge_trajectory", inputs=inputs.model_dump())]


def parse(reply: Reply, inputs: Inputs, index: int, world: World) -> dict[str, Any]:
    """The last valid JSON object, wherever it is."""
    for found in _objects(reply.text[:MAX_REPLY]):
        if value := _fitting(found, inputs):
            return value
    raise Malformed(
        'expected one JSON object {"scores": {"<criterion>": points, ...}, "overall": points, "reason": "..."} '
        f"with every criterion of the rubric and whole points from 0 to {MOST}"
    )


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """JSON objects in a text, by their opening brace, the last one first."""
    start = len(text)
    for _ in range(_TRIES):
        start = text.rfind("{", 0, start)
        if start < 0:
            return
        try:
            found = _DECODER.raw_decode(text, start)[0]
        except (ValueError, RecursionError):  # not JSON, or a number of thousands of digits, or nested too deeply
            continue
        yield found


def _fitting(found: dict[str, Any], inputs: Inputs) -> dict[str, Any] | None:
    given, reason = found.get("scores"), found.get("reason", "")
    if not isinstance(given, dict) or not isinstance(reason, str):
        return None
    points = {fold(name[:200]): _points(value) for name, value in given.items()}
    scores = {name: points.get(fold(name)) for name in inputs.rubric}
    overall = _points(found.get("overall"))
    if overall is None or None in scores.values():
        return None
    return {"scores": scores, "overall": overall, "reason": plain(reason[: 2 * MAX_REASON])[:MAX_REASON].strip()}


def _points(value: Any) -> int | None:
    """7, 7.0, "7", "7.0" and "7/10" are 7; what is not a whole number from 0 to 10 is None."""
    if isinstance(value, str):
        number, slash, most = (part.strip() for part in value[:20].partition("/"))
        number = number.removesuffix(".0")
        whole = number.isascii() and number.isdigit() and (not slash or most == str(MOST))
        value = int(number) if whole else None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and 0 <= value <= MOST else None
