"""Types of callers' inputs: short texts on one line each, so that equal questions have equal keys.

Texts come from environments, players and other models: they are data, whatever they say. Their number and length are
bounded here; `llm_service.tasks._template.quote` keeps them inside the data of a prompt.
"""

from __future__ import annotations

import unicodedata
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from llm_service.config import Part

MAX_CHARACTERS = 24_000  # characters of all inputs of one question, as JSON
MAX_WORDS = 12  # words of a phrase


def tidy(text: str) -> str:
    """One line of visible characters: control, invisible and unpaired ones removed, blanks collapsed, NFC."""
    if not text.isprintable():
        text = "".join(c if c.isprintable() else " " if c.isspace() else "" for c in text)
    return " ".join(unicodedata.normalize("NFC", text).split())


def is_phrase(text: str) -> bool:
    """A name of a goal or criterion: up to 12 words of letters, digits and - ' , with at least one letter."""
    known = all(c.isalpha() or c in "0123456789 -'," for c in text)
    return known and any(map(str.isalpha, text)) and len(text.split()) <= MAX_WORDS and len(text) <= 120


def _said(text: str) -> str:
    if not text:
        raise ValueError("is empty")
    return text


def _phrase(text: str) -> str:
    if not is_phrase(text):
        raise ValueError(f"is not a phrase: at most {MAX_WORDS} words of letters, digits and - ' ,")
    return text


Text = Annotated[str, Field(max_length=300), AfterValidator(tidy)]
Said = Annotated[Text, AfterValidator(_said)]
"""A text that must not be empty."""
Phrase = Annotated[Text, AfterValidator(_phrase)]
Texts = Annotated[list[Text], Field(max_length=64), AfterValidator(lambda texts: [text for text in texts if text])]
"""Texts whose order matters; empty ones are left out."""
Bag = Annotated[Texts, AfterValidator(lambda texts: sorted(set(texts)))]
"""Texts whose order does not matter: sorted, each once."""


class TaskInputs(Part):
    """Base of every task's inputs."""

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if len(self.model_dump_json()) > MAX_CHARACTERS:
            raise ValueError(f"the texts are longer than {MAX_CHARACTERS} characters together")
        return self


class TrajectoryInputs(TaskInputs):
    """Observations and actions, step by step."""

    observations: list[Texts] = Field(min_length=1, max_length=64)
    """Sentences of each observation, in order of time."""
    actions: Texts
    """The action taken at each observation; one for each, or none for the last."""

    @model_validator(mode="after")
    def _aligned(self) -> Self:
        if len(self.observations) - len(self.actions) not in (0, 1):
            raise ValueError(f"{len(self.observations)} observations do not go with {len(self.actions)} actions")
        return self

    def steps(self) -> list[str]:
        """The trajectory as lines of text."""
        result = []
        for i, seen in enumerate(self.observations):
            result.append(f"step {i + 1}: {'; '.join(seen) or 'nothing seen'}")
            result += [f"action: {action}" for action in self.actions[i : i + 1]]
        return result
