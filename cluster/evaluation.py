"""An evaluation as a queue of seed batches that any idle actor may take; a lost batch goes back to the queue."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from actors import Played
from actors.evaluate import Recording
from cluster.goal_table import Counts, add, shares, table
from cluster.statistics import bootstrap_mean, wilson
from cluster.supervisor import Crew
from envs.api import Episodes

BATCH = 64  # episodes that one actor plays together


@dataclass
class Batch:
    """Seeds for one actor."""

    evaluation: Evaluation
    order: int
    seeds: NDArray[np.int64]
    record: int


@dataclass
class Evaluation:
    """One evaluation under way.

    weights: a ticket part or a value, handed to the actors as it is.
    """

    weights: Any
    version: int
    env_steps: int
    seeds: NDArray[np.int64]
    greedy: bool
    player: str = "policy"
    record: int = 0
    waiting: list[Batch] = field(default_factory=list)
    played: dict[int, Played] = field(default_factory=dict)

    def __post_init__(self) -> None:
        batches = np.array_split(self.seeds, max(1, -(-len(self.seeds) // BATCH)))
        left = self.record
        for order, seeds in enumerate(batches):
            self.waiting.append(Batch(self, order, seeds, min(left, len(seeds))))
            left -= self.waiting[-1].record
        self.batches = len(batches)

    def give(self, crew: Crew, actor: int) -> bool:
        """Let an idle actor play the next batch; False if none waits."""
        if not self.waiting:
            return False
        batch = self.waiting.pop(0)
        crew.give(
            actor, batch, "evaluate", self.weights, self.version, batch.seeds, self.player, self.greedy, batch.record
        )
        return True

    def take(self, batch: Batch, played: Played | None) -> None:
        """Keep what was played, or queue the batch again if its actor died."""
        if played is None:
            self.waiting.insert(0, batch)
        else:
            self.played[batch.order] = played

    @property
    def done(self) -> bool:
        return len(self.played) == self.batches

    @property
    def episodes(self) -> Episodes:
        return Episodes.concatenate([self.played[i].episodes for i in sorted(self.played)])

    @property
    def goals(self) -> Counts:
        """What became of the goals; empty without any."""
        total: Counts = {}
        for played in self.played.values():
            add(total, played.goals)
        return total

    @property
    def reached(self) -> NDArray[np.float32]:
        """Reward for goals, [episodes]; 0 without any."""
        return np.concatenate([self.played[i].reached for i in sorted(self.played)])

    @property
    def recordings(self) -> list[Recording]:
        return [r for i in sorted(self.played) for r in self.played[i].recordings]


def success(episodes: Episodes) -> dict[str, Any]:
    """Success rate with its 95 % Wilson interval."""
    n, solved = len(episodes), int(episodes.success.sum())
    low, high = wilson(solved, n)
    return {"n": n, "rate": solved / max(n, 1), "low": low, "high": high}


def goal_results(evaluation: Evaluation) -> dict[str, Any]:
    """What became of the goals in an evaluation: reward for them, shares, and a row each."""
    low, high = bootstrap_mean(evaluation.reached)
    paid = {"mean": float(evaluation.reached.mean()), "low": low, "high": high}
    return {"reward": paid, "shares": shares(evaluation.goals), "table": table(evaluation.goals)}


def results(episodes: Episodes, kinds: tuple[str, ...]) -> dict[str, Any]:
    """The table of an evaluation: success, return and length, and success by task kind."""
    rows = {kind: _of_kind(episodes, i) for i, kind in enumerate(kinds)}
    low, high = bootstrap_mean(episodes.total)
    return {
        "episodes": len(episodes),
        "seeds": [int(episodes.seed.min()), int(episodes.seed.max())],
        "success": success(episodes),
        "return": {"mean": float(episodes.total.mean()), "low": low, "high": high},
        "length": {"mean": float(episodes.length.mean())},
        "by_kind": {kind: success(part) for kind, part in rows.items() if len(part)},
    }


def _of_kind(episodes: Episodes, kind: int) -> Episodes:
    rows = episodes.kind == kind
    return Episodes(**{name: getattr(episodes, name)[rows] for name in Episodes.__annotations__})
