"""From questions to calls: keys, inputs and calls of an `Ask`'s items, and payloads of replies."""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from pydantic import ValidationError

from llm_service import tasks
from llm_service.backends import Backend
from llm_service.errors import UsageError
from llm_service.records import Ask, Call, Parameters, Reply, canonical
from llm_service.world import World


class Questions:
    """Turns the items of an `Ask` into calls of a backend, in an environment.

    Args:
        backend: answers `generate` and `score`; its model is part of every key.
        embedder: answers `embed`.
        world: the environment's description, for prompts; part of every task's key.
    """

    def __init__(self, backend: Backend, embedder: Backend, world: World) -> None:
        self._backend, self._embedder, self.world = backend, embedder, world
        self._world = world.digest

    def keys(self, ask: Ask) -> list[bytes]:
        """[16 bytes] content hash of each item, including everything that may change its answer.

        Raises:
            UsageError: unknown task, or candidates that do not fit the items.
        """
        check(ask)
        keys = []
        for head, content in zip(self._heads(ask), ask.contents, strict=True):
            hasher = head.copy()
            hasher.update(content.encode("utf-8", "surrogatepass"))
            keys.append(hasher.digest())
        return keys

    def _heads(self, ask: Ask) -> list[Any]:
        """For each item a hasher of everything except its content."""
        model = self._embedder.model if ask.verb == "embed" else self._backend.model
        about = f"{ask.task}/{tasks.task(ask.task).VERSION}/{self._world}" if ask.task else ""
        if len(ask.candidates) > 1:
            return [_head(about, model, ask.verb, c, ask.parameters, ask.sample) for c in ask.candidates]
        shared = ask.candidates[0] if ask.candidates else ()
        return [_head(about, model, ask.verb, shared, ask.parameters, ask.sample)] * len(ask.contents)

    def calls(self, ask: Ask, i: int) -> tuple[list[Call], Any]:
        """The calls of item i, and the task's inputs; a raw prompt is one call without inputs.

        Raises:
            UsageError: the content is not a valid input of the task.
        """
        if not ask.task:
            candidates = ask.candidates[i if len(ask.candidates) > 1 else 0] if ask.candidates else ()
            turns = (("user", ask.contents[i]),)
            return [Call(ask.verb, turns, candidates, ask.parameters or Parameters(), ask.sample)], None
        module = tasks.task(ask.task)
        inputs = read(module, ask.contents[i])
        calls = module.calls(inputs, self.world)
        return [replace(c, parameters=ask.parameters or c.parameters, sample=ask.sample) for c in calls], inputs


@functools.lru_cache(maxsize=4096)
def _head(
    about: str, model: str, verb: str, candidates: tuple[str, ...], parameters: Parameters | None, sample: int
) -> Any:
    hasher = hashlib.blake2b(digest_size=16)
    asked = [about, model, verb, candidates, asdict(parameters) if parameters else None, sample]
    hasher.update(canonical(asked).encode("utf-8", "surrogatepass") + b"\0")
    return hasher


def read(module: Any, content: str) -> Any:
    """A task's inputs from their JSON. Raises UsageError if they are invalid."""
    try:
        return module.Inputs(**json.loads(content))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise UsageError(f"not a valid input of this task: {where}: {first['msg'].lower()}") from None
    except (ValueError, TypeError, RecursionError):
        raise UsageError("not a valid input of this task: its inputs must be a JSON object") from None


def check(ask: Ask) -> None:
    """Check that the request can be answered at all. Raises UsageError if not."""
    if ask.task:
        tasks.task(ask.task)
        if ask.verb != "generate":
            raise UsageError(f"task {ask.task} needs the verb generate, not {ask.verb}")
    if ask.verb == "score":
        if len(ask.candidates) not in (1, len(ask.contents)) or not all(ask.candidates):
            raise UsageError(f"score needs one set of candidates, or one per prompt, for {len(ask.contents)} prompts")
    elif ask.candidates:
        raise UsageError(f"{ask.verb} takes no candidates")


def payload(reply: Reply, call: Call) -> bytes:
    """A raw reply's payload, see `Answer`."""
    if call.verb == "score":
        return np.asarray(reply.scores, "<f8").tobytes()
    if call.verb == "embed":
        assert reply.vector is not None, "what embeds returns a vector"
        return reply.vector.astype("<f4").tobytes()
    return canonical(reply.text).encode("utf-8", "surrogatepass")
