"""Novelty search with an ask-and-tell interface.

    ask()  ──> Batch: weights [n, P] with ids ──> an evaluator ──> Played ──> tell(batch.ticket, played)

                 ahead = 1, synchronous                   ahead > 1, steady state
    generation   one at a time, in as many batches        several in progress; each is sampled from the population
                 as there are evaluators                  at the time when the one `ahead` before it was closed

Generations are sampled and closed in order, whatever the order in which their batches come back, and their random
numbers depend only on (seed, generation, purpose). So a search is the same with one evaluator or sixty-four, and after
a resume. A slow evaluator delays the others only when `ahead` generations wait for it.

Besides the archive of novel behaviours there may be a grid of elites (`elites.py`): for each cell of descriptor and
route, the behaviour of the highest quality.

Limit: a generation of 50 costs 1 ms here, and playing it costs 6 ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learner.checkpoint import Arrays
from learner.search import emitters, qualities
from learner.search.config import SearchConfig
from learner.search.elites import Elites
from learner.search.emitters import EmitterSetup
from learner.search.novelty import Purpose, members, novelty, polynomial_mutation, stream, survivors
from learner.store.archive import Archive, Columns

Layers = Sequence[tuple[int, int]]
"""Inputs and outputs of each layer of a policy; weights come before biases."""


@dataclass(frozen=True)
class Batch:
    """A batch of policies for one evaluator."""

    ticket: tuple[int, int]  # generation, and number within it
    ids: NDArray[np.int64]  # [n]
    weights: NDArray[np.float32]  # [n, P]


@dataclass(frozen=True)
class Played:
    """The results of a batch."""

    descriptor: NDArray[np.float64]  # [n, D] as `learner/search/descriptors` have it
    halfway: NDArray[np.float64]  # [n, 2] the position after half of the steps
    action: NDArray[np.int8]  # [n, T, 2] tenths of world units, as executed
    effort: NDArray[np.float32]  # [n] mean square of a wheel's speed
    quality: NDArray[np.float32]  # [n] as `learner/search/qualities` have it

    @staticmethod
    def joined(parts: list[Played]) -> Played:
        return Played(*(np.concatenate([getattr(part, name) for part in parts]) for name in _PLAYED))

    def split(self, rows: list[int]) -> list[Played]:
        """Pieces of this many rows each, as views."""
        ends = np.cumsum(rows).tolist()
        return [
            Played(*(getattr(self, name)[end - count : end] for name in _PLAYED))
            for count, end in zip(rows, ends, strict=True)
        ]


_PLAYED = ("descriptor", "halfway", "action", "effort", "quality")


def columns(parameters: int, length: int, quality: str = qualities.DEFAULT) -> Columns:
    """Columns of an archive's payload, for policies of `parameters` weights that are played for `length` steps. The
    quality `calm` is minus the effort, so only others have a column."""
    own: Columns = {} if quality == qualities.DEFAULT else {"quality": ("float32", ())}
    return {
        "weights": ("float32", (parameters,)),
        "action": ("int8", (length, 2)),
        "effort": ("float32", ()),
        "novelty": ("float64", ()),
        "generation": ("int32", ()),
        **own,
    }


def first_weights(layers: Layers, count: int, generator: np.random.Generator) -> NDArray[np.float32]:
    """Random weights [count, P], initialised like `torch.nn.Linear`: uniform within 1 / sqrt(inputs)."""
    parts = []
    for inputs, outputs in layers:
        bound = inputs**-0.5
        parts.append(generator.uniform(-bound, bound, (count, (inputs + 1) * outputs)))
    return np.concatenate(parts, 1).astype(np.float32)


@dataclass
class _Generation:
    """A generation in progress."""

    ids: NDArray[np.int64]
    weights: NDArray[np.float32]
    given: int = 0  # batches that were given out
    played: dict[int, Played] = field(default_factory=dict)  # results, by number of the batch


class NoveltySearch:
    """One novelty search and its archive.

    Args:
        config: its settings.
        threshold: novelty above which candidates are kept.
        archive: made with `columns`, for `config.neighbours` neighbours.
        seed: root of its random numbers.
        batch: policies in a batch.
        size: side of the world in world units; only the grid needs it.
        layers: of a policy.
        bounds: of the descriptor, [D, 2], for the grid; None: places in the world.

    Attributes:
        closed: completed generations, including the first population.
        novelty: mean novelty of the population in world units; 0 before the first selection.
    """

    def __init__(
        self,
        config: SearchConfig,
        threshold: float,
        archive: Archive,
        seed: int,
        batch: int,
        size: float,
        layers: Layers,
        bounds: NDArray[np.float64] | None = None,
    ) -> None:
        self.config, self.threshold, self.archive = config, threshold, archive
        self.seed, self.batch, self.layers = seed, batch, layers
        parameters = sum((inputs + 1) * outputs for inputs, outputs in layers)
        bounds = np.array([[0.0, size]] * archive.size) if bounds is None else bounds
        self.grid = Elites(config.cells, config.halfway, bounds, size, parameters) if config.cells else None
        given = {name: getattr(config, name) for name in ("eta", "low", "high", "probability")}
        setup = EmitterSetup(seed, config.offspring, parameters, archive.size, **given)
        self.emitter = emitters.emitter(config.emitter)(setup)
        self.closed = 0
        self.novelty = 0.0
        self.ids = np.zeros(0, np.int64)
        self.weights = np.zeros((0, parameters), np.float32)
        self.played: Played | None = None  # of the population
        self._open: dict[int, _Generation] = {}
        self._drawn = 0

    @property
    def done(self) -> bool:
        """Whether all generations are closed."""
        return self.closed > self.config.generations

    @property
    def evaluations(self) -> int:
        """Number of policies in all closed generations."""
        return self._first_id(self.closed)

    def ask(self) -> Batch | None:
        """The next batch to play; None if results must come in first, or nothing is left."""
        self._draw()
        for number in sorted(self._open):
            generation = self._open[number]
            begin = generation.given * self.batch
            if begin < len(generation.ids):
                generation.given += 1
                rows = slice(begin, begin + self.batch)
                ticket = (number, generation.given - 1)
                return Batch(ticket, generation.ids[rows], generation.weights[rows])
        return None

    def tell(self, ticket: tuple[int, int], played: Played) -> None:
        """Take the results of a batch. Repeated ones, and those of no generation in progress, change nothing."""
        number, part = ticket
        if number not in self._open:
            return
        self._open[number].played.setdefault(part, played)
        while (first := self._open.get(self.closed)) and len(first.played) * self.batch >= len(first.ids):
            self._close(self._open.pop(self.closed))
            self._draw()  # now, because the population changes later

    # ---- generations -----------------------------------------------------------------------------------------------

    def _draw(self) -> None:
        """Begin the generations that are due."""
        ahead = self.config.ahead if self.closed else 1  # there are no parents before the first population is complete
        while self._drawn < min(self.closed + ahead, self.config.generations + 1):
            self._begin(self._drawn)
            self._drawn += 1

    def _begin(self, number: int) -> None:
        config = self.config
        if number == 0:
            generator = stream(self.seed, 0, Purpose.PARENTS)
            start = first_weights(self.layers, config.population, generator).clip(config.low, config.high)
            mutation = stream(self.seed, 0, Purpose.MUTATION)
            weights = polynomial_mutation(start, mutation, config.eta, config.low, config.high, config.probability)
        else:
            weights = self.emitter.ask(number, self._pool)
        self._open[number] = _Generation(self._first_id(number) + np.arange(len(weights)), weights)

    @property
    def _pool(self) -> NDArray[np.float32]:
        """What offspring are made from."""
        from_grid = self.emitter.from_grid or self.config.parents == "grid"
        return self.grid.weights if self.grid is not None and from_grid else self.weights

    def _first_id(self, number: int) -> int:
        return 0 if number == 0 else self.config.population + (number - 1) * self.config.offspring

    def generation_of(self, ids: NDArray[np.int64]) -> NDArray[np.int32]:
        """The generation in which each of these policies was created."""
        later = (ids - self.config.population) // self.config.offspring + 1
        return np.where(ids < self.config.population, 0, later).astype(np.int32)

    def _close(self, generation: _Generation) -> None:
        """Selection, and candidates for the archive."""
        config = self.config
        new = Played.joined([generation.played[part] for part in sorted(generation.played)])
        if self.grid is not None:
            gains = self.grid.gains(new.descriptor, new.halfway, new.quality)
            self.grid.add(generation.ids, generation.weights, new.descriptor, new.halfway, new.quality, new.effort)
            told = (generation.weights, new.descriptor, new.quality, gains)
            self.emitter.tell(self.closed, self._pool, *told)
        if self.played is None:
            self.ids, self.weights, self.played = generation.ids, generation.weights, new
            self.closed += 1
            return
        ids = np.concatenate([self.ids, generation.ids])
        weights = np.concatenate([self.weights, generation.weights])
        all_ = Played.joined([self.played, new])
        value = novelty(self.archive.neighbours, all_.descriptor, config.neighbours)
        kept = survivors(value, config.population)
        self.novelty = float(value[kept].mean())
        pool = np.union1d(kept, np.arange(len(self.ids), len(ids)))
        drawn = members(pool, stream(self.seed, self.closed, Purpose.MEMBERS), config.members)
        drawn = drawn[value[drawn] > self.threshold]
        payload = {
            "weights": weights[drawn],
            "action": all_.action[drawn],
            "effort": all_.effort[drawn],
            "quality": all_.quality[drawn],
            "novelty": value[drawn],
            "generation": np.full(len(drawn), self.closed, np.int32),
        }
        self.archive.append(ids[drawn], all_.descriptor[drawn], {name: payload[name] for name in self.archive.columns})
        self.ids, self.weights = ids[kept], weights[kept]
        self.played = Played(*(getattr(all_, name)[kept] for name in _PLAYED))
        self.closed += 1

    # ---- a search at rest ------------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Arrays], dict[str, Any]]:
        """Groups of arrays and a record, for a checkpoint. The archive is flushed first, so that it agrees with their
        counts."""
        self.archive.flush()
        population: Arrays = {"ids": self.ids, "weights": self.weights}
        if self.played is not None:
            population |= {name: getattr(self.played, name) for name in _PLAYED}
        groups = {"population": population}
        if self.grid is not None:
            groups["grid"] = self.grid.arrays()
        groups["emitter"] = self.emitter.state()
        # Offspring in progress cannot be sampled again, because the population has changed.
        groups["open"] = {
            f"{number}.{name}": getattr(generation, name)
            for number, generation in self._open.items()
            for name in ("ids", "weights")
        }
        return groups, {"closed": self.closed, "drawn": self._drawn, "archived": len(self.archive)}

    def restore(self, groups: dict[str, Arrays], record: dict[str, Any]) -> None:
        """Continue from the result of `state`. Batches in progress are given out again.

        record: may contain the number of the `attempt` that saved it.

        Raises:
            ArchiveError: the archive holds fewer behaviours than it did.
        """
        self.archive.rewind(record["archived"], record.get("attempt"))
        self.closed, self._drawn = record["closed"], record["drawn"]
        population = groups["population"]
        self.ids, self.weights = population["ids"].copy(), population["weights"].copy()
        self.played = Played(*(population[name].copy() for name in _PLAYED)) if "effort" in population else None
        if self.grid is not None:
            self.grid.restore(groups["grid"])
        self.emitter.restore(groups.get("emitter", {}))
        under_way = groups.get("open", {})
        self._open = {
            number: _Generation(under_way[f"{number}.ids"].copy(), under_way[f"{number}.weights"].copy())
            for number in range(self.closed, self._drawn)
        }
