"""Settings of asking a language model about a world, once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Self

from pydantic import Field, model_validator

from envs.api import Field as Observed
from envs.config import Part

TASK = "mission"
"""The field that tells the task, which nobody is told here."""

Asked = Literal["preferences", "goals", "programs"]


class LabelConfig(Part):
    """What is asked about episodes that were lived, and of how much of them."""

    asks: list[Asked] = Field(default=["preferences", "programs", "goals"], min_length=1)
    """What is asked for: which of two segments is better, goals for situations, programs that judge segments."""
    segments: int = Field(default=2000, ge=2)
    """Segments that are drawn from the episodes, each content once; fewer where there are not so many."""
    window: int = Field(default=5, ge=2, le=16)
    """K: observations of a segment, the last one included; as `method.shaping.window` of whoever learns from it."""
    captions: list[str] = Field(default=[])
    """Text fields of an observation that the language model is told; empty: all but `mission`, the task."""
    pairs: int = Field(default=3000, ge=1)
    """Pairs of segments that are compared; each is asked in both orders."""
    goals: int = Field(default=300, ge=1)
    """Situations for which goals are asked."""
    candidates: int = Field(default=4, ge=1)
    """Programs that are written side by side and do not know of each other."""
    rounds: int = Field(default=5, ge=1)
    """How often each is written: anew first, then again with what the last one said of some segments."""
    shows: str = ""
    """The field of whole numbers that programs are shown; empty: the first grid, else the first there is."""

    @model_validator(mode="after")
    def _chosen_by_preferences(self) -> Self:
        if "programs" in self.asks and "preferences" not in self.asks:
            raise ValueError("programs are chosen by preferences: add preferences to method.label.asks")
        return self


def told_fields(fields: Mapping[str, Observed], wanted: Sequence[str], whose: str) -> list[str]:
    """Names of the text fields that a language model is told.

    Args:
        fields: all that an observation holds.
        wanted: names; empty: all but the task.
        whose: the world, or the store of episodes.

    Raises:
        ValueError: it has none of them.
    """
    texts = [name for name, field in fields.items() if field.kind == "text" and name != TASK]
    if not texts:
        raise ValueError(
            f"{whose} holds no texts to tell a language model: record episodes with env.captions=true (BabyAI) or "
            "env.observe=[symbols,around] (Crafter)"
        )
    if missing := [name for name in wanted if name not in texts]:
        raise ValueError(f"method.label.captions: {whose} has no text field {missing[0]}: there is {', '.join(texts)}")
    return list(wanted) or texts
