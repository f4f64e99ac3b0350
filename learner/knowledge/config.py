"""Settings for asking a language model about an environment, once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Self

from pydantic import Field, model_validator

from envs.api import Field as Observed
from envs.config import Part

TASK = "mission"
"""The field with the task, which is not used here."""

Asked = Literal["preferences", "goals", "programs"]


class LabelConfig(Part):
    """Questions about recorded episodes, and their numbers."""

    asks: list[Asked] = Field(default=["preferences", "programs", "goals"], min_length=1)
    """Kinds of questions: which of two segments is better, goals for situations, programs that rate segments."""
    segments: int = Field(default=2000, ge=2)
    """Number of segments sampled from the episodes, without duplicates; fewer if there are not enough."""
    window: int = Field(default=5, ge=2, le=16)
    """K: observations of a segment, including the last one; equal to `method.shaping.window` of runs that use it."""
    captions: list[str] = Field(default=[])
    """Text fields of an observation in questions; empty: all except `mission`, the task."""
    pairs: int = Field(default=3000, ge=1)
    """Number of pairs of segments to compare; each is asked in both orders."""
    goals: int = Field(default=300, ge=1)
    """Number of situations for which goals are asked."""
    candidates: int = Field(default=4, ge=1)
    """Number of programs that are written independently."""
    rounds: int = Field(default=5, ge=1)
    """How often each is written: first from scratch, then again with the last one's values for some segments."""
    shows: str = ""
    """The integer field that programs read; empty: the first grid, otherwise the first such field."""

    @model_validator(mode="after")
    def _chosen_by_preferences(self) -> Self:
        if "programs" in self.asks and "preferences" not in self.asks:
            raise ValueError("programs are chosen by preferences: add preferences to method.label.asks")
        return self


def told_fields(fields: Mapping[str, Observed], wanted: Sequence[str], whose: str) -> list[str]:
    """Names of the text fields in a language model's questions.

    Args:
        fields: all fields of an observation.
        wanted: names; empty: all except the task.
        whose: the environment, or the store of episodes.

    Raises:
        ValueError: it has none of them.
    """
    texts = [name for name, field in fields.items() if field.kind == "text" and name != TASK]
    if not texts:
        raise ValueError(
            f"{whose} holds no texts for a language model: record episodes with env.captions=true (BabyAI) or "
            "env.observe=[symbols,around] (Crafter)"
        )
    if missing := [name for name in wanted if name not in texts]:
        raise ValueError(f"method.label.captions: {whose} has no text field {missing[0]}: there is {', '.join(texts)}")
    return list(wanted) or texts
