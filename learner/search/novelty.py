"""Novelty search (Lehman and Stanley 2011), as in Salehi and Doncieux (2023, arXiv 2308.13278): the pure functions.

    population ──parents──> weights ──polynomial_mutation──> offspring, which actors play ──> descriptors
    population and offspring ──novelty──> survivors, the next population
                             └─members──> those new enough are kept in the archive

A generation's random numbers depend only on (seed, generation, purpose). So the search is the same, whichever evaluator
plays the offspring and in whatever order results arrive.

Limit: with 50 offspring of 302 weights a generation costs 0.4 ms here, most of it drawing numbers; playing costs more.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from learner.store.neighbours import Neighbours

Number = TypeVar("Number", np.float32, np.float64)

_STREAM = 0x6E6F76656C  # no other part of a run uses this stream


class Purpose(IntEnum):
    """The purposes of random numbers."""

    PARENTS = 0
    MUTATION = 1
    MEMBERS = 2
    EMITTER = 3
    RESTART = 4


def stream(seed: int, generation: int, purpose: Purpose) -> np.random.Generator:
    """The random numbers of a generation. Both numbers are at least 0."""
    return np.random.default_rng([seed, generation, purpose, _STREAM])


def parents(population: int, count: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """The parents of `count` offspring: int64 [count] below `population`, uniform, with replacement."""
    return generator.integers(0, population, count)


def polynomial_mutation(
    weights: NDArray[Number],
    generator: np.random.Generator,
    eta: float = 5.0,
    low: float = -1.0,
    high: float = 1.0,
    probability: float = 0.1,
) -> NDArray[Number]:
    """Mutated weights [N, P], of the same type: each moves with this probability, within the bounds.

    Deb's bounded polynomial mutation (Deb and Agrawal 1999, "A niched-penalty approach for constraint handling in
    genetic algorithms", as in the NSGA-II of 2002): of a weight x and a uniform u in [0, 1), with the distances to both
    bounds as shares of their range, a = (x - low) / range and b = (high - x) / range,

        u < 1/2:    x + range * ((2u + (1 - 2u) (1 - a)^(eta + 1))^(1 / (eta + 1)) - 1)
        otherwise:  x + range * (1 - (2(1 - u) + (2u - 1) (1 - b)^(eta + 1))^(1 / (eta + 1)))

    A larger eta means smaller steps. u = 0 and u = 1 lead to the bounds, 1/2 to x itself.

    Raises:
        ValueError: a weight is outside the bounds or not a number, or the bounds, eta or probability make no sense.
    """
    if not (low < high and eta >= 0.0 and 0.0 <= probability <= 1.0):
        raise ValueError(
            f"mutation between {low} and {high} with eta {eta} and probability {probability}: low must be below high, "
            "eta not negative and the probability in 0..1"
        )
    if not ((weights >= low) & (weights <= high)).all():
        raise ValueError(f"mutation needs weights between {low} and {high}: clip them, or give wider bounds")
    moved = generator.random(weights.shape) < probability
    u = generator.random(weights.shape)[moved]
    x = weights[moved].astype(np.float64)
    span, power, down = high - low, eta + 1.0, u < 0.5
    inner = 1.0 - np.where(down, x - low, high - x) / span
    share = np.where(down, 2.0 * u, 2.0 * (1.0 - u))
    step = 1.0 - (share + (1.0 - share) * inner**power) ** (1.0 / power)
    children = weights.copy()
    children[moved] = np.clip(np.where(down, x - span * step, x + span * step), low, high)
    return children


def novelty(known: Neighbours, descriptors: NDArray[Any], k: int = 15) -> NDArray[np.float64]:
    """The novelty of each behaviour [N] of a population: its mean distance to its neighbours in archive and population.

    known: the descriptors of the archive; empty in generation 0.
    descriptors: [N, D] of the population. The first of its k nearest is the behaviour itself, which does not count. A
        behaviour that is also in the archive has itself as a neighbour there.
    """
    return known.mean_distance(descriptors, k, others=descriptors, without_self=True)


def survivors(novelty: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """The rows of the `count` most novel of [N], the most novel first; among equals, the first one."""
    return np.argsort(-novelty, kind="stable")[:count].astype(np.int64)


def members(pool: NDArray[np.int64], generator: np.random.Generator, count: int = 6) -> NDArray[np.int64]:
    """`count` different rows out of [M], or all if there are fewer: candidates for the archive.

    Candidates with a novelty above the archive's threshold are kept. Archives with different thresholds may share
    candidates.
    """
    return generator.choice(pool, min(count, len(pool)), replace=False)
