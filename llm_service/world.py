"""What a language model must know about an environment: plain data that the service gets at its start.

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
    """A goal that a player could pursue."""

    goal: str
    """Pattern of its name, such as "pick up the {colour} {thing}"."""
    seen: list[str] = Field(default=[])
    """Patterns that must all occur in the observation, with the same words in the slots, for the goal to make sense."""
    needs: list[str] = Field(default=[])
    """Prerequisites: patterns that must all occur in the observation or inventory. Unmet: right goal, wrong time."""
    unless: list[str] = Field(default=[])
    """Patterns that must not occur there: the goal is already reached, or impossible now."""
    premise: str = ""
    """Pattern of a question, independent of the situation, whether it is a goal; not shown in prompts."""
    wanted: bool = True
    """The answer to the question that makes it a goal."""
    worth: float = 1.0
    """How good a goal it is compared with others, in (0, 1]."""


class Progress(Part):
    """An event that makes a behaviour better or worse."""

    seen: str
    """Pattern of a caption or event."""
    worth: float
    """How much better; negative: worse."""


class World(Part):
    """An environment's description for a language model."""

    name: str
    """Its family, such as babyai."""
    about: str
    """A few sentences for a prompt: what the environment is, and what can be done."""
    actions: list[str]
    """Names of the actions."""
    slots: dict[str, list[str]] = Field(default={})
    """Words of each slot in patterns."""
    goals: list[Goal] = Field(default=[])
    """Goals that a player could pursue."""
    endings: list[dict[str, Any]] = Field(default=[])
    """Goals that end other goals, for goal rewards; not shown in prompts."""
    synonyms: list[list[str]] = Field(default=[])
    """Names of one event each, for comparing goals with events; not shown in prompts."""
    progress: list[Progress] = Field(default=[])
    """Events that make behaviour better or worse."""
    facts: dict[str, bool] = Field(default={})
    """Yes/no questions with their answers, as patterns."""
    dissent: dict[str, float] = Field(default={})
    """For such questions, in full, the share of people who give the other answer, in (0, 0.5]."""
    symbols: dict[str, dict[str, int]] = Field(default={})
    """Names of the numbers in its symbolic observations, by channel, for written code."""
    views: dict[str, str] = Field(default={})
    """Description of a symbolic observation, by the name of its field: for callers, who include it in questions."""
    plan: list[str] = Field(default=[])
    """Where everything is, line by line; prompts of tasks about whole behaviours show it."""
    other_names: dict[str, list[str]] = Field(default={})
    """Everyday words for its things, by the word in slots, for captions in other words."""
    corpus: list[str] = Field(default=[])
    """Sample sentences from its captions and missions, in a fixed order."""

    @property
    def digest(self) -> str:
        """Content hash: prompts show the environment, so it is part of every task's key."""
        hidden = {"corpus": True, "synonyms": True, "views": True, "dissent": True}
        return digest(self.model_dump_json(exclude=hidden | CALLERS | self._lacking("plan", "other_names")))

    def rules(self) -> str:
        """Everything that rule-based answers may use, as JSON."""
        return self.model_dump_json(exclude={"plan": True} | CALLERS | self._lacking("dissent", "other_names"))

    def _lacking(self, *fields: str) -> dict[str, Any]:
        """Those of some fields that are empty: environments without them keep their keys and their models' names."""
        return {name: True for name in fields if not getattr(self, name)}


CALLERS: dict[str, Any] = {"endings": True, "goals": {"__all__": {"premise", "wanted"}}}
"""Fields that only callers read, not prompts or rules."""
NOWHERE = World(name="", about="", actions=[])
"""For a service without an environment."""


def load(path: str | Path) -> World:
    """Read an environment's description from JSON. Raises UsageError if the file is missing or invalid."""
    try:
        return World(**json.loads(Path(path).read_text(encoding="utf-8")))
    except OSError as error:
        raise UsageError(f"llm.world: cannot read {path}: {error.strerror}") from None
    except (ValueError, ValidationError) as error:
        raise UsageError(
            f"llm.world: {path} is not an environment's description: {str(error).splitlines()[0]}"
        ) from None
