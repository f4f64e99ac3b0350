"""How sensible recent behaviour is, whatever the task: a small program that reads the last observations and actions.

The program is text, checked against a closed grammar (`llm_service.sandbox.grammar`) and never run here. The model is
asked in rounds: each prompt shows the last program and its values for some behaviours.

    def potential(observations, actions): ...    the last K observations, the present one last; K - 1 actions between

Value: {"code": the program in normal form, "hash": its content hash}
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from llm_service.config import Part
from llm_service.errors import Malformed
from llm_service.records import Call, Parameters, Reply, canonical, digest
from llm_service.sandbox import grammar
from llm_service.tasks._grammar import MAX_REPLY
from llm_service.tasks._inputs import Said, TaskInputs, Text, Texts
from llm_service.tasks._template import Template, about, only, quote
from llm_service.world import World

_NAME = "write_potential.v2"
_TEMPLATE = Template(_NAME)
_ALLOWED = {
    "functions": ", ".join(sorted(grammar.FUNCTIONS)),
    "exponents": ", ".join(map(str, grammar.EXPONENTS)),
    "loops": str(grammar.MAX_LOOPS),
    "range": str(grammar.MAX_RANGE),
    "characters": str(grammar.MAX_CHARACTERS),
    "nodes": str(grammar.MAX_NODES),
}
VERSION = f"{_NAME}-{digest(_TEMPLATE.version, canonical(_ALLOWED))[:12]}"
combine = only

MAX_ACTIONS = 256
_FENCES = ("```python", "```py", "```python3", "```")
_FORM = "expected exactly one fenced python block with one function potential(observations, actions)"


def _program(code: str) -> str:
    return grammar.normalise(code) if code else ""


Program = Annotated[str, Field(max_length=grammar.MAX_CHARACTERS), AfterValidator(_program)]
"""A program of the grammar in normal form, which is safe to show unquoted; or nothing."""
Number = Annotated[float, Field(allow_inf_nan=False), AfterValidator(lambda value: round(value, 4) + 0.0)]


class Evidence(Part):
    """A behaviour, and the last program's value for it."""

    caption: Texts
    """Observations and actions in words, in order of time."""
    value: Number | Said
    """The program's value, to four decimals; or its fault, such as "division"."""


class Inputs(TaskInputs):
    """A round of writing."""

    window: int = Field(default=5, ge=2, le=64)
    """Number of observations that the program gets."""
    shape: Text = Field(default="")
    """Description of one observation: its layout, and where the player is."""
    actions: Annotated[list[Text], Field(max_length=MAX_ACTIONS)] = Field(default=[])
    """Names of the actions in the order of their numbers; empty: the environment's, if it lists them in that order."""
    previous: Program = Field(default="")
    """The last program; empty in the first round."""
    evidence: list[Evidence] = Field(default=[], max_length=8)
    """The last program's values."""
    variant: int = Field(default=0, ge=0, le=1_000_000)
    """Equal questions share an answer; different numbers make different questions, and so several candidates."""


def calls(inputs: Inputs, world: World) -> list[Call]:
    """One question."""
    symbols = [
        f"  {channel}: {', '.join(f'{number} {name}' for name, number in sorted(names.items(), key=lambda n: n[1]))}"
        for channel, names in world.symbols.items()
    ]
    cells = f"a list of columns, a column a list of cells, and a cell a list of numbers: {', '.join(world.symbols)}."
    turns = _TEMPLATE.turns(
        about=about(world),
        view=f"An observation is {cells if world.symbols else 'a number, or a list of numbers or of such lists.'}",
        symbols="\n".join(symbols) or "  (the numbers have no names)",
        **_ALLOWED,
        window=str(inputs.window),
        steps=str(inputs.window - 1),
        shape=quote([inputs.shape or "(as said above)"]),
        actions=quote(
            [", ".join(f"{i} {name}" for i, name in enumerate(inputs.actions or world.actions)) or "(no names)"]
        ),
        previous="\n".join(f"| {line}" for line in inputs.previous.splitlines()) or quote([]),
        evidence=quote(line for i, piece in enumerate(inputs.evidence, 1) for line in _told(i, piece)),
        variant=str(inputs.variant),
    )
    parameters = Parameters(temperature=0.5, max_tokens=1600)
    return [Call("generate", turns, parameters=parameters, task="write_potential", inputs=inputs.model_dump())]


def _told(i: int, piece: Evidence) -> list[str]:
    said = f"no value, by the fault {piece.value}" if isinstance(piece.value, str) else f"the value {piece.value}"
    return [f"piece {i} got {said}:", *piece.caption]


def parse(reply: Reply, inputs: Inputs, index: int, world: World) -> dict[str, Any]:
    """The program of the only fenced block."""
    text = reply.text[:MAX_REPLY].split("\n")
    fences = [i for i, line in enumerate(text) if line.lstrip().startswith("```")]
    if len(fences) != 2 or text[fences[0]].strip().lower() not in _FENCES or text[fences[1]].strip() != "```":
        raise Malformed(f"{_FORM}, opened by ```python and closed by ``` on lines of their own")
    try:
        code = grammar.normalise("\n".join(text[fences[0] + 1 : fences[1]]))
    except grammar.CodeRefused as refused:
        raise Malformed(f"{_FORM} of at most {grammar.MAX_CHARACTERS} characters, but {refused}") from None
    return {"code": code, "hash": digest(code)}
