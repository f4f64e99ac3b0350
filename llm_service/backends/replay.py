"""Answers from the journal of an earlier run: free, exact and without a model.

A call is found by its question (verb, conversation, candidates, parameters, sample), whatever model answered it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from llm_service.backends import Backend
from llm_service.config import Part
from llm_service.errors import BackendError, NotRecorded, UsageError
from llm_service.pipeline.journal import decode, parse
from llm_service.records import Call, Option, Parameters, Reply, Verb
from llm_service.world import World

SHOWN = 80
"""Characters of a prompt in a message; the only error that shows any, because they are from the user's own file."""


class Config(Part):
    """The recording."""

    replayed: str = ""
    """Path of the journal, such as runs/NAME/llm/journal.jsonl."""


class Replay(Backend):
    """A recording in memory."""

    verbs: frozenset[Verb] = frozenset({"generate", "score", "embed"})
    options: frozenset[Option] = frozenset({"top", "raw", "echo"})
    max_batch = 256
    concurrency = 1

    def __init__(self, path: Path) -> None:
        self._path = path
        self._replies: dict[str, Reply] = {}
        instructions: dict[str, str] = {}  # key of a line -> its instructions
        content = hashlib.blake2b(digest_size=8)
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    break  # cut when its run was killed: nobody saw that answer
                content.update(line)
                record = parse(line, path, number)
                try:
                    self._replies[_question(_call(record, instructions))] = decode(record["reply"])
                except (KeyError, TypeError, ValueError, AttributeError):
                    raise UsageError(f"{path}, line {number} is damaged: remove the line, or the file") from None
        if not self._replies:
            raise UsageError(f"llm.replayed: {path} holds no answers")
        self.model = f"replay-{content.hexdigest()}"

    async def answer(self, calls: Sequence[Call]) -> list[Reply | BackendError]:
        """See `Backend`; `NotRecorded` for a question that was never asked."""
        return [self._replies.get(_question(call)) or self._missing(call) for call in calls]

    def estimate(self, call: Call) -> tuple[int, int]:
        return 0, 0

    def _missing(self, call: Call) -> NotRecorded:
        prompt = call.turns[-1][1][:SHOWN] if call.turns else ""
        asked = f"task {call.task}" if call.task else f"{call.verb} without a task"
        return NotRecorded(f"{self._path} has no answer to {asked}: {prompt!r}; record it with the model that made it")


def make(config: Config, world: World) -> Replay:
    """See `llm_service.backends`. Raises UsageError if there is no such file, it is empty, or a line is damaged."""
    if not config.replayed:
        raise UsageError("llm.replayed is missing: name the journal of the run to replay")
    try:
        return Replay(Path(config.replayed))
    except OSError as error:
        raise UsageError(f"llm.replayed: cannot read {config.replayed}: {error.strerror}") from None


def _question(call: Call) -> str:
    return call.key(model="")


def _call(record: dict[str, Any], instructions: dict[str, str]) -> Call:
    """The call that a line records; reads `instructions` of earlier lines, and adds its own."""
    p = record["parameters"]
    parameters = Parameters(
        float(p["temperature"]), int(p["max_tokens"]), tuple(map(str, p["stop"])), int(p["seed"]), p["normalise"]
    )
    told = [(role, instructions[text["as_in"]] if isinstance(text, dict) else text) for role, text in record["turns"]]
    turns = tuple((str(role), str(text)) for role, text in told)
    if turns and turns[0][0] == "system":
        instructions[record["key"]] = turns[0][1]
    candidates, options = tuple(map(str, record["candidates"])), record.get("options", {})
    return Call(record["verb"], turns, candidates, parameters, int(record["sample"]), **options)
