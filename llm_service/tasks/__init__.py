"""Tasks: a prompt, a parser and a validator over the three verbs. One module each, found by name.

A task module publishes

    Inputs                        a pydantic model of a caller's inputs; sizes are bounded, texts are untrusted
    VERSION                       of the prompt; a change needs a new version, which is part of the key
    calls(inputs, world)          -> list[Call], usually one; two where order matters
    parse(reply, inputs, index, world)   -> the JSON value of call `index`; raises `Malformed` with what was expected
    combine(values, inputs)       -> the answer's JSON value, from the values of all calls

`parse` is total: for any reply, it returns a value of the grammar or raises `Malformed`, in linear time. An answer can
name only what the inputs or the environment's vocabulary name: never a path, an address, a class or a setting.
`world` is the environment's description (`llm_service.world.World`).
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from llm_service.errors import UsageError
from llm_service.records import canonical


def names() -> list[str]:
    """Names of all task modules, sorted."""
    return sorted(found.name for found in pkgutil.iter_modules(__path__) if not found.name.startswith("_"))


@functools.cache
def task(name: str) -> Any:
    """The module of a task. Raises UsageError if there is none."""
    if name not in names():
        raise UsageError(f"unknown task {name!r}: there are {', '.join(names())}")
    return importlib.import_module(f"llm_service.tasks.{name}")


def contents(name: str, items: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Inputs of a task as the canonical JSON that requests carry.

    Raises:
        UsageError: an item is not a valid input of the task.
    """
    module = task(name)
    result = []
    for i, item in enumerate(items):
        try:
            result.append(canonical(module.Inputs(**item).model_dump()))
        except ValidationError as error:
            wrong = error.errors(include_url=False)
            first = next((e for e in wrong if e["type"] == "extra_forbidden"), wrong[0])  # usually a typing error
            where = ".".join(map(str, first["loc"]))
            if first["type"] == "extra_forbidden":
                known = ", ".join(module.Inputs.model_fields)
                raise UsageError(f"task {name}, item {i}: it has no input {where!r}, only {known}") from None
            raise UsageError(f"task {name}, item {i}: {where}: {first['msg'].lower()}") from None
    return tuple(result)
