"""What a language model must know of a world: plain data that the world publishes and the service is handed at start.

    {"name": "babyai", "about": "...", "actions": [...], "slots": {...}, "goals": [...], ...}      JSON, read by `load`

Patterns are texts with slots, such as "go to the {colour} {thing}": each slot stands for one of its words.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from llm_service.config import Part
from llm_service.errors import UsageError
from llm_service.records import digest


class Goal(Part):
    """Something that a player could set out to do."""

    goal: str
    """Pattern: what it is called, such as "pick up the {colour} {thing}"."""
    seen: list[str] = Field(default=[])
    """Patterns that must all stand in the observation, with the same words in the slots, for the goal to make sense."""
    needs: list[str] = Field(default=[])
    """Patterns that must all stand in the observation or inventory: prerequisites. Unmet: right goal, wrong time."""
    unless: list[str] = Field(default=[])
    """Patterns of which none may stand there: the goal is reached already, or impossible now."""
    premise: str = ""
    """Pattern of a question that no situation changes, for whoever asks if it is a goal; prompts do not show it."""
    wanted: bool = True
    """The answer to it that makes it a goal."""
    worth: float = 1.0
    """How good a goal it is, beside others; in (0, 1]."""


class Progress(Part):
    """An event that makes a piece of behaviour better or worse."""

    seen: str
    """Pattern in a caption or event."""
    worth: float
    """How much better; negative: worse."""


class World(Part):
    """A world as a language model may know it."""

    name: str
    """Its family, such as babyai."""
    about: str
    """A few sentences for a prompt: what it is, what can be done."""
    actions: list[str]
    """Names of the actions."""
    slots: dict[str, list[str]] = Field(default={})
    """Words that a slot of a pattern may hold, by slot."""
    goals: list[Goal] = Field(default=[])
    """What a player could set out to do."""
    endings: list[dict[str, Any]] = Field(default=[])
    """Which goals end others, for whoever pays them: prompts do not show it."""
    synonyms: list[list[str]] = Field(default=[])
    """Names of one deed each, for whoever compares goals with deeds: prompts do not show them."""
    progress: list[Progress] = Field(default=[])
    """What makes behaviour better or worse."""
    facts: dict[str, bool] = Field(default={})
    """Yes/no questions with their answers, as patterns."""
    dissent: dict[str, float] = Field(default={})
    """Of such questions, in full, the share of people who say otherwise, in (0, 0.5]."""
    symbols: dict[str, dict[str, int]] = Field(default={})
    """Names of the numbers in its symbolic observations, by channel, for written code."""
    views: dict[str, str] = Field(default={})
    """What a symbolic observation is, in words, by the name of its field: for callers, whose questions tell it."""
    corpus: list[str] = Field(default=[])
    """Sample sentences of its captions and missions, in a fixed order."""

    @property
    def digest(self) -> str:
        """Content hash: prompts show the world, so it is part of every task's key."""
        return digest(
            self.model_dump_json(exclude={"corpus": True, "synonyms": True, "views": True, "dissent": True} | CALLERS)
        )

    def rules(self) -> str:
        """All that answers by rules may rest on, as JSON."""
        unknown = {} if self.dissent else {"dissent": True}  # worlds without any keep the names of their models
        return self.model_dump_json(exclude=CALLERS | unknown)


CALLERS: dict[str, Any] = {"endings": True, "goals": {"__all__": {"premise", "wanted"}}}
"""What callers alone read, and no prompt or rule."""
NOWHERE = World(name="", about="", actions=[])
"""For a service that was told of no world."""


def load(path: str | Path) -> World:
    """Read the JSON that a world published. Raises UsageError if it is not there, or is not such a file."""
    try:
        return World(**json.loads(Path(path).read_text(encoding="utf-8")))
    except OSError as error:
        raise UsageError(f"llm.world: cannot read {path}: {error.strerror}") from None
    except (ValueError, ValidationError) as error:
        raise UsageError(f"llm.world: {path} is not a world's description: {str(error).splitlines()[0]}") from None
