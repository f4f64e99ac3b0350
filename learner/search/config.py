"""Settings of novelty search."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from envs.config import Part
from learner.search.elites import MOST


class SearchConfig(Part):
    """Novelty search. The actors are the evaluators: `actors.n`."""

    generations: int = Field(default=1000, ge=1)
    """Number of generations after the first population."""
    population: int = Field(default=50, ge=1)
    """Number of policies that survive a generation."""
    offspring: int = Field(default=50, ge=1)
    """Number of new policies per generation."""
    ahead: int = Field(default=1, ge=1)
    """Generations in progress at once: 1 is synchronous; more keep many evaluators busy with small generations."""
    neighbours: int = Field(default=15, ge=2)
    """Number of nearest behaviours for novelty, including the behaviour itself."""
    members: int = Field(default=6, ge=0)
    """Candidates for the archive in each generation."""
    thresholds: list[float] = Field(default=[0.5], min_length=1)
    """Novelty, in world units, above which a candidate is kept; each threshold has its own search and archive."""
    eta: float = Field(default=5.0, ge=0)
    """Index of polynomial mutation: larger means smaller steps."""
    low: float = -1.0
    """Smallest weight."""
    high: float = 1.0
    """Largest weight."""
    probability: float = Field(default=0.1, ge=0, le=1)
    """Share of weights that a mutation moves."""
    cells: int = Field(default=0, ge=0, le=1000)
    """Cells along each side of the grid of the best, for where a behaviour ends; 0: no grid."""
    halfway: int = Field(default=1, ge=1, le=100)
    """The same for its position halfway; 1 keeps one route to each end, more keep several."""
    parents: Literal["population", "grid"] = "population"
    """Parents of offspring."""

    @model_validator(mode="after")
    def _grid(self) -> SearchConfig:
        total = (self.cells * self.halfway) ** 2
        if total > MOST:
            raise ValueError(
                f"method.search.cells={self.cells} and halfway={self.halfway} make {total:,} cells: at most {MOST:,}"
            )
        if self.parents == "grid" and not self.cells:
            raise ValueError("method.search.parents=grid needs a grid: set method.search.cells")
        return self
