"""How near a goal is, as a small program that reads symbolic observations.

The program is text, checked against a closed grammar (`llm_service.sandbox.grammar`) and never run here.

`observation` in the program is a view, such as a list of columns of cells of numbers; with `history` above 1 it is the
list of the last `history` views, oldest first.

Value: {"code": the program in normal form, "hash": its content hash}
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from llm_service.errors import Malformed
from llm_service.records import Call, Parameters, Reply, digest
from llm_service.sandbox.grammar import MAX_CHARACTERS, CodeRefused, normalise
from llm_service.tasks._grammar import MAX_REPLY
from llm_service.tasks._inputs import Said, TaskInputs, Texts
from llm_service.tasks._template import Template, about, only, quote
from llm_service.world import World

_TEMPLATE = Template("write_potential.v1")
VERSION = _TEMPLATE.version
combine = only

_FENCES = ("```python", "```py", "```python3", "```")
_FORM = "expected exactly one fenced python block with one function potential(observation)"


class Inputs(TaskInputs):
    """A goal to measure."""

    goal: Said
    """What is to be reached."""
    events: Texts = Field(default=[])
    """Captions of what leads there, in order of time."""
    history: int = Field(default=1, ge=1, le=16)
    """How many views the program is given."""


def calls(inputs: Inputs, world: World) -> list[Call]:
    """One question."""
    symbols = [
        f"  {channel}: {', '.join(f'{number} {name}' for name, number in sorted(names.items(), key=lambda n: n[1]))}"
        for channel, names in world.symbols.items()
    ]
    turns = _TEMPLATE.turns(
        about=about(world),
        symbols="\n".join(symbols) or "  (the numbers have no names)",
        channels=", ".join(world.symbols) or "numbers",
        views="one view" if inputs.history == 1 else f"the list of the last {inputs.history} views, oldest first",
        goal=quote([inputs.goal]),
        events=quote(inputs.events),
    )
    parameters = Parameters(temperature=0.5, max_tokens=1200)
    return [Call("generate", turns, parameters=parameters, task="write_potential", inputs=inputs.model_dump())]


def parse(reply: Reply, inputs: Inputs, index: int, world: World) -> dict[str, Any]:
    """The program of the only fenced block."""
    text = reply.text[:MAX_REPLY].split("\n")
    fences = [i for i, line in enumerate(text) if line.lstrip().startswith("```")]
    if len(fences) != 2 or text[fences[0]].strip().lower() not in _FENCES or text[fences[1]].strip() != "```":
        raise Malformed(f"{_FORM}, opened by ```python and closed by ``` on lines of their own")
    try:
        code = normalise("\n".join(text[fences[0] + 1 : fences[1]]))
    except CodeRefused as refused:
        raise Malformed(f"{_FORM} of at most {MAX_CHARACTERS} characters, but {refused}") from None
    return {"code": code, "hash": digest(code)}
