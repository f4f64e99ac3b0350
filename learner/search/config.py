"""Settings of novelty search."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from envs.config import Part
from learner.search import descriptors, emitters, qualities
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
    descriptor: str = descriptors.DEFAULT
    """What a behaviour is, for novelty and for the grid: a module of `learner/search/descriptors`. `end`: where it
    ends. `halfway`: where it is halfway. `end_halfway`: both."""
    quality: str = qualities.DEFAULT
    """What the grid keeps the best of: a module of `learner/search/qualities`. `calm`: little effort. `straight`: far,
    for the way driven. `stable`: the same end from nearby starts; it takes five times as long."""
    cells: int = Field(default=0, ge=0, le=1000)
    """Cells along each axis of the descriptor in the grid of the best; 0: no grid."""
    halfway: int = Field(default=1, ge=1, le=100)
    """Further cells of the grid, along each side of the house, for the position halfway; 1 keeps one route to each
    descriptor, more keep several."""
    parents: Literal["population", "grid"] = "population"
    """Parents of offspring."""
    emitter: str = emitters.DEFAULT
    """Where offspring come from: a module of `learner/search/emitters`. `mutation`: polynomial mutation of parents.
    `iso_line` and `cma_me`, of pyribs, an extra: noise along the line between two elites of the grid, and CMA-ME."""

    @model_validator(mode="after")
    def _grid(self) -> SearchConfig:
        known = self.descriptor in descriptors.names()  # other names are refused where all names are
        axes = len(descriptors.descriptor(self.descriptor).names) if known else 2
        total = self.cells**axes * self.halfway**2
        if total > MOST:
            raise ValueError(
                f"method.search.cells={self.cells} and halfway={self.halfway} make {total:,} cells, as there are "
                f"{axes} numbers in the descriptor {self.descriptor}: at most {MOST:,}"
            )
        if self.parents == "grid" and not self.cells:
            raise ValueError("method.search.parents=grid needs a grid: set method.search.cells")
        chosen = emitters.emitter(self.emitter) if self.emitter in emitters.names() else emitters.Emitter
        if chosen.from_grid and not self.cells:
            raise ValueError(f"method.search.emitter={self.emitter} needs a grid: set method.search.cells")
        if chosen.in_order and self.ahead > 1:
            raise ValueError(
                f"method.search.emitter={self.emitter} learns from each generation before the next one: set "
                f"method.search.ahead=1, not {self.ahead}"
            )
        return self
