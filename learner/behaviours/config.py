"""Settings of the stages between an archive and its transformer, one part a stage."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from envs.config import Part


class DescribeConfig(Part):
    """Asking a language model to describe behaviours."""

    texts: int = Field(default=1, ge=1, le=16)
    """Descriptions of each behaviour."""
    request: float = Field(default=0.8, ge=0, le=1)
    """Share of them that are requests."""
    narrative: float = Field(default=0.1, ge=0, le=1)
    """Share of them that are narratives; the rest are instructions."""
    batch: int = Field(default=256, ge=1)
    """Descriptions asked for at once."""

    @model_validator(mode="after")
    def _shares(self) -> Self:
        if self.request + self.narrative > 1 + 1e-9:
            raise ValueError("method.describe.request and method.describe.narrative are shares: at most 1 together")
        return self


class SplitConfig(Part):
    """What is learned from, looked at, and asked for in the end."""

    validation: float = Field(default=0.1, ge=0, lt=1)
    """Share of groups that are looked at while fitting."""
    test: float = Field(default=0.1, ge=0, lt=1)
    """Share of groups that are held out for trials."""
    plain: int = Field(default=128, ge=1)
    """Held-out behaviours that are asked for by their own text and end."""
    how: int = Field(default=64, ge=0)
    """Pairs of held-out behaviours with one end and two ways."""
    near: float = Field(default=60.0, gt=0)
    """Ends of a pair lie within this distance, world units."""
    distance: float = Field(default=15.0, ge=0)
    """How far from the map's start trials `nearby` may begin along each axis, world units."""
    degrees: float = Field(default=15.0, ge=0)
    """How much they may be turned."""


class TokenizerConfig(Part):
    """The vocabulary of descriptions."""

    size: int = Field(default=5000, ge=64)
    """The most words; all others are one token."""
    least: int = Field(default=3, ge=1)
    """How often a word must occur in what is learned from."""
    longest: int = Field(default=226, ge=3)
    """Tokens of a text, the two around it among them; longer ones are an error."""


class DeployConfig(Part):
    """Acting on trials."""

    samples: int = Field(default=5, ge=1)
    """Episodes of each trial; the first counts as single, the best of all is told beside it."""
    strategy: Literal["sample", "argmax", "nucleus"] = "sample"
    """How an action's clusters are chosen."""
    temperature: float = Field(default=1.0, gt=0)
    """Divides the logits."""
    mass: float = Field(default=0.95, gt=0, le=1)
    """Of `nucleus`: probability that is sampled from."""
    memory_gb: float = Field(default=1.0, gt=0)
    """What keys and values of episodes that are played together may take."""


class JudgeConfig(Part):
    """What a language model thinks of it."""

    trials: int = Field(default=200, ge=1)
    """How many are judged."""
    votes: int = Field(default=1, ge=1, le=16)
    """Opinions of each, which are averaged."""
    rubric: list[str] = Field(default=["places visited", "order", "final place"])
    """Criteria."""
