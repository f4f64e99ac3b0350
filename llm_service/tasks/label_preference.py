"""Which of two behaviours is better.

The model is asked twice, with the two in both orders. A model that prefers a position rather than a content contradicts
itself, and its label is a tie marked as inconsistent. Two equal behaviours are a tie without any call.

    verdicts (in the caller's terms)          label
    equal: first, second or tie               that one
    unsure in either                          abstain
    anything else                             tie, inconsistent

Value: {"label": "first" | "second" | "tie" | "abstain",
        "probability": that the first is better: 1.0, 0.0, 0.5 or null,
        "consistent": whether both verdicts say the same}
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from llm_service.errors import Malformed
from llm_service.records import Call, Parameters, Reply
from llm_service.tasks._grammar import after, fold
from llm_service.tasks._inputs import TaskInputs, Texts
from llm_service.tasks._template import STOP, Template, about, quote
from llm_service.world import World

_TEMPLATE = Template("label_preference.v1")
VERSION = _TEMPLATE.version

CHOSEN = "You choose: "
"""Prefix of a line with an action, between the observations before and after it."""
VERDICTS = ("first", "second", "tie", "unsure")
_OTHER = {"first": "second", "second": "first"}
_PROBABILITY = {"first": 1.0, "second": 0.0, "tie": 0.5, "abstain": None}


class Inputs(TaskInputs):
    """Two behaviours, as lines of text in order of time."""

    first: Texts
    """The first behaviour."""
    second: Texts
    """The second behaviour."""
    criteria: Texts = Field(default=[])
    """What makes a behaviour good; empty: what a sensible player would prefer."""


def calls(inputs: Inputs, world: World) -> list[Call]:
    """The pair, then the pair in the other order, as in the prompts; empty if they are equal."""
    if inputs.first == inputs.second:
        return []
    swapped = Inputs(first=inputs.second, second=inputs.first, criteria=inputs.criteria)
    return [
        Call(
            "generate",
            _TEMPLATE.turns(
                about=about(world),
                criteria=quote(shown.criteria or ["what a sensible player would prefer"]),
                first=quote(shown.first),
                second=quote(shown.second),
            ),
            parameters=Parameters(temperature=0.0, max_tokens=256, stop=STOP),
            task="label_preference",
            inputs=shown.model_dump(),
        )
        for shown in (inputs, swapped)
    ]


def parse(reply: Reply, inputs: Inputs, index: int, world: World) -> str:
    """The verdict of the last verdict line, in the caller's terms whatever the order in the prompt."""
    verdict = fold(after("verdict", reply) or "")
    if verdict not in VERDICTS:
        raise Malformed('expected a last line "verdict: WORD" where WORD is exactly one of first, second, tie, unsure')
    return _OTHER.get(verdict, verdict) if index else verdict


def combine(values: Sequence[str], inputs: Inputs) -> dict[str, Any]:
    """The label, by the table above."""
    consistent = len(set(values)) <= 1
    label = values[0] if values and consistent else "tie"
    if "unsure" in values:
        label = "abstain"
    return {"label": label, "probability": _PROBABILITY[label], "consistent": consistent}
