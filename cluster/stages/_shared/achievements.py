"""What episodes are counted by beside their return: success rates of achievements, and the score made of them.

    Episodes.counts ──> Achieved: in how many episodes each came about ──> rates ──> one score

This is how Crafter's board ranks agents; every environment that names `EnvSpec.counts` is reported alike.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cluster.metrics.statistics import wilson
from envs.api import EnvSpec, Episodes


def score(rates: ArrayLike) -> float:
    """Crafter's score of success rates [K] in [0, 1]: their geometric mean in percent, in [0, 100].

    exp(mean of ln(1 + rate in percent)) - 1, equation 1 of Hafner 2021, arXiv 2109.06780: a rare achievement that
    becomes less rare counts more than a common one that becomes more common.
    """
    return float(np.expm1(np.log1p(100 * np.asarray(rates, np.float64)).mean()))


@dataclass
class Achieved:
    """In how many episodes each of K achievements came about; K is 0 in an environment that counts nothing."""

    episodes: int = 0
    unlocked: list[int] = field(default_factory=list)  # [K]

    @classmethod
    def of(cls, episodes: Episodes) -> Achieved:
        """The achievements of some finished episodes."""
        found = cls()
        found.add(episodes)
        return found

    def add(self, episodes: Episodes) -> None:
        """Add finished episodes."""
        if len(episodes):
            new = (episodes.counts > 0).sum(0)
            self.episodes += len(episodes)
            self.unlocked = (new + self.unlocked if self.unlocked else new).tolist()

    def row(self, spec: EnvSpec) -> dict[str, float]:
        """`crafter/score` and each `crafter/<achievement>`, a share of episodes, after the environment's family; empty
        without episodes, or without counts."""
        if not self.unlocked:
            return {}
        family, rates = spec.id.partition("/")[0], [n / self.episodes for n in self.unlocked]
        named = dict(zip(spec.counts, rates, strict=True))
        return {f"{family}/score": score(rates)} | {f"{family}/{name}": rate for name, rate in named.items()}

    def table(self, spec: EnvSpec) -> dict[str, Any]:
        """The score, and each achievement's success rate with its 95 % Wilson interval, for a results file; empty as
        `row` is."""
        if not self.unlocked:
            return {}
        rates: dict[str, Any] = {}
        for name, n in zip(spec.counts, self.unlocked, strict=True):
            low, high = wilson(n, self.episodes)
            rates[name] = {"n": self.episodes, "rate": n / self.episodes, "low": low, "high": high}
        return {"achievements": {"score": score([n / self.episodes for n in self.unlocked]), "rates": rates}}
