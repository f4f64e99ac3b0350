"""The probability of yes, from the model's own log-probabilities of two words.

Two calls: the question, and the same prompt with "N/A" in place of question and context. The answer to the latter is
the model's bias for one of the words, and is subtracted (contextual calibration: Zhao et al., Calibrate Before Use,
2021). That second call is the same for all questions about an environment, so it is paid for once.

    p = sigmoid((log-odds(question) - log-odds(N/A)) / temperature)

Value: {"probability": p in [0, 1]}
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pydantic import Field

from llm_service.errors import Malformed
from llm_service.records import Call, Reply
from llm_service.tasks._inputs import Said, TaskInputs, Texts
from llm_service.tasks._template import Template, about, quote
from llm_service.world import World

_TEMPLATE = Template("yes_no.v1")
VERSION = _TEMPLATE.version

CANDIDATES = ("yes", "no")
LEAST = -100.0  # log-probability of a word that the model never gives
NEUTRAL = "N/A"


class Inputs(TaskInputs):
    """A question about a situation."""

    question: Said
    """A question to be answered with yes or no."""
    context: Texts = Field(default=[])
    """Sentences on which the answer may be based."""
    calibrate: bool = True
    """Subtract the model's bias for one of the two words."""
    temperature: float = Field(default=1.0, ge=0.05, le=20.0)
    """Divides the log-odds: above 1 makes a model less confident. Fit it on questions with known answers."""


def calls(inputs: Inputs, world: World) -> list[Call]:
    """The question, then the prompt without content."""
    asked = [inputs]
    if inputs.calibrate:
        asked.append(Inputs(question=NEUTRAL, context=[NEUTRAL]))
    return [
        Call(
            "score",
            _TEMPLATE.turns(about=about(world), context=quote(each.context), question=quote([each.question])),
            candidates=CANDIDATES,
            task="yes_no",
            inputs=each.model_dump(),
        )
        for each in asked
    ]


def parse(reply: Reply, inputs: Inputs, index: int, world: World) -> float:
    """Log-odds of yes."""
    if len(reply.scores) != len(CANDIDATES) or not all(
        score < math.inf for score in reply.scores
    ):  # NaN is not smaller
        raise Malformed("expected two log-probabilities, of yes and of no")
    yes, no = (max(float(score), LEAST) for score in reply.scores)
    return yes - no


def combine(values: Sequence[float], inputs: Inputs) -> dict[str, Any]:
    """Calibrated probability of yes."""
    odds = (values[0] - sum(values[1:])) / inputs.temperature
    return {"probability": 1 / (1 + math.exp(-max(-500.0, min(500.0, odds))))}
