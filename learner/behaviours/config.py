"""Settings of the stages between an archive and its transformer, one section per stage."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from envs.config import Part


class DescribeConfig(Part):
    """Asking a language model to describe behaviours."""

    texts: int = Field(default=1, ge=1, le=16)
    """Number of descriptions of each behaviour."""
    request: float = Field(default=0.8, ge=0, le=1)
    """Share of requests among them."""
    narrative: float = Field(default=0.1, ge=0, le=1)
    """Share of narratives among them; the rest are instructions."""
    synonyms: float = Field(default=0.0, ge=0, le=1)
    """Share of descriptions in which things have other everyday names, such as couch: the map's `synonyms`."""
    end_first: float = Field(default=0.0, ge=0, le=1)
    """Share of descriptions that name the final place first, and then the way there."""
    backwards: float = Field(default=0.0, ge=0, le=1)
    """Share of descriptions that name places from the last one back to the first."""
    directions: float = Field(default=0.0, ge=0, le=1)
    """Share of descriptions that also say where the robot turned left or right."""
    coordinates: bool = False
    """Whether texts end in the place where their behaviour ended, `[x=312, y=87]` in world units, as published ones
    may. The target then stands in the text, so the arm `no_target` is told of it."""
    batch: int = Field(default=256, ge=1)
    """Descriptions asked for at once."""

    @model_validator(mode="after")
    def _shares(self) -> Self:
        for one, other in (("request", "narrative"), ("end_first", "backwards")):
            if getattr(self, one) + getattr(self, other) > 1 + 1e-9:
                raise ValueError(f"method.describe.{one} and method.describe.{other} are shares: at most 1 together")
        return self


class SplitConfig(Part):
    """The trials, and the split into training, validation and what they ask for."""

    how: int = Field(default=128, ge=0)
    """Number of pairs of behaviours with the same end and different routes, at most: only the text tells which."""
    plain: int = Field(default=64, ge=0)
    """Number of further behaviours whose own text and end are the instruction."""
    near: float = Field(default=30.0, gt=0)
    """Maximum distance between the ends of a pair, world units."""
    margin: float = Field(default=15.0, ge=0)
    """Nothing is learned from behaviours that drive as near to a tested one, as a mean over steps, world units."""
    validation: float = Field(default=0.1, ge=0, lt=1)
    """Share of the other groups for validation while fitting."""
    distance: float = Field(default=15.0, ge=0)
    """How far from the map's start `nearby` trials may start along each axis, world units."""
    degrees: float = Field(default=15.0, ge=0)
    """Maximum turn of these starts, degrees."""


class DriveConfig(Part):
    """Demonstrations by a driver that follows behaviours' routes (`actors/behaviours/driver.py`)."""

    times: int = Field(default=0, ge=0, le=64)
    """How often each behaviour with a true text is followed; 0: small policies demonstrate themselves, as published."""
    practice: int = Field(default=0, ge=0, le=64)
    """How often each of them is then asked of the transformer of the run that `from` names. It drives, the driver says
    what it would do instead, and the transformer is fitted further (DAgger, Ross et al. 2011)."""
    astray: float = Field(default=40.0, gt=0)
    """Distance from the route at which practice ends, world units: a driver that is lost is no teacher."""
    noise: float = Field(default=0.15, ge=0)
    """Standard deviation of the noise in a wheel's speed that a driver must correct, world units a step; what is
    learned is the driver's wish without it (DART, Laskey et al. 2017)."""
    lasting: float = Field(default=0.7, ge=0, lt=1)
    """Share of the noise of one action that is still there in the next."""
    arrive: float = Field(default=30.0, gt=0)
    """Episodes that end farther from their route's end are left out, world units."""
    distance: float = Field(default=15.0, ge=0)
    """How far from the map's start these episodes may start along each axis, world units."""
    degrees: float = Field(default=15.0, ge=0)
    """And how far turned."""

    @property
    def drives(self) -> bool:
        """Whether there is a driver."""
        return self.times + self.practice > 0


class TokenizerConfig(Part):
    """The vocabulary of descriptions."""

    size: int = Field(default=5000, ge=64)
    """Maximum number of words; all others are one token."""
    least: int = Field(default=3, ge=1)
    """How often a word must occur in the training texts."""
    longest: int = Field(default=226, ge=3)
    """Maximum tokens of a text, including the two around it; longer texts are an error."""


class DeployConfig(Part):
    """Acting on trials."""

    samples: int = Field(default=5, ge=1)
    """Episodes of each trial; the first counts as the single one, the best of all is reported in addition."""
    strategy: Literal["sample", "argmax", "nucleus"] = "sample"
    """How an action's clusters are sampled."""
    temperature: float = Field(default=1.0, gt=0)
    """Divides the logits."""
    mass: float = Field(default=0.95, gt=0, le=1)
    """`nucleus`: probability mass to sample from."""
    guidance: float = Field(default=1.0, ge=0)
    """How much texts count: above 1, actions that fit an empty text as well become less likely (classifier-free
    guidance, Ho and Salimans 2022). Other values than 1 need `method.sequence.hush`, and twice the time."""
    memory_gb: float = Field(default=1.0, gt=0)
    """Memory limit for keys and values of episodes that are played together."""


class JudgeConfig(Part):
    """Ratings by a language model."""

    trials: int = Field(default=200, ge=1)
    """Number of rated trials."""
    votes: int = Field(default=1, ge=1, le=16)
    """Ratings per trial, which are averaged."""
    rubric: list[str] = Field(default=["places visited", "order", "final place"])
    """Criteria of the ratings."""
    questions: list[str] = Field(
        default=[
            "Which objects and tiles does the request name, and in which order shall they be visited?",
            "Which objects and tiles did the robot visit, in the order of its way?",
            "At which place shall the robot be in the end?",
            "At which place was it in the end, and is it the right one?",
            "If not, how far is it from there, as a share of the width of the house?",
            "Which of the named objects and colours did it visit, and which did it miss?",
            "Which others did it visit that the request does not name, and does that matter?",
            "How would you weigh what was missed, what came in another order, and the distance in the end?",
        ],
        max_length=12,
    )
    """What the judge answers in words before it rates, so that its points follow from facts."""
