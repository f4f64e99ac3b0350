"""The engine of a search stage: idle evaluators get batches, the search gets their results, archives grow.

    NoveltySearch.ask ──> evaluator (`actors.n`) ──> tell ──> stages/<stage>/archive-0, archive-1, ...
                       grid of the best, in the end ──filed──> stages/<stage>/grid-0, ...
                                                          ├──> checkpoints beside each, rows of metrics (kind `search`)
                              coverage, QD score of each  └──> results.json

There is a search and an archive for each threshold, one after the other; with `method.search.cells` also a grid. If an
evaluator dies, another one plays its batch. A search that is killed continues from its last checkpoint and repeats
what came after it, with the same results.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from actors.behaviours.novelty import EvaluatorSetup, NoveltyEvaluator
from cluster.config import limits
from cluster.config.tree import Config
from cluster.roles.backend import RoleDied, Ticket
from cluster.roles.drawing import Role, Topology
from cluster.roles.supervisor import Crew
from cluster.runs.stage import Outcome, Run, StageEngine
from envs import navigation
from envs.navigation import LAYERS, PARAMETERS, TENTHS
from learner import checkpoint
from learner.methods import Stage
from learner.search import descriptors, qualities
from learner.search.config import SearchConfig
from learner.search.novelty_search import NoveltySearch, Played, columns
from learner.search.quality_diversity import Tally
from learner.store.archive import Archive

WITH_THE_CALL = 100_000
"""Bytes of an argument or a result that Ray sends within a call. A larger one goes through its object store, which
costs some 2 ms of processor time each way, as much as everything else that a batch of 128 costs here."""
MOST_PIECES = 8
NEW = ("descriptor", "quality", "emitter")
"""Settings that archives name only where they are not the defaults: without them, archives are as they always were."""
ROW_S = 2.0  # seconds between two rows of metrics
ELITES = 1024  # how many policies of a grid are played at once to file them


class Engine(StageEngine):
    """One search stage. Rates are counted from the first returned batch, because evaluators compile before it."""

    by_name: ClassVar[bool] = True
    player: type[NoveltyEvaluator] = NoveltyEvaluator
    rate = 0.0  # evaluations a second of the last search

    def __init__(self, run: Run, stage: Stage) -> None:
        super().__init__(run, stage)
        method: Any = self.config.method
        options = self.config.env.options
        self.settings: SearchConfig = method.search
        self.setup = EvaluatorSetup(options["map"], options["length"], self.settings.descriptor, self.settings.quality)
        self.house = navigation.load(options["map"] or navigation.HOUSE)
        self.descriptor = descriptors.descriptor(self.settings.descriptor)
        self.quality = qualities.quality(self.settings.quality)
        self.reachable = self.descriptor.reachable(self.house)

    def run(self) -> Outcome | None:
        crew = self.start_crew(self.setup, self.player, "player")
        counts = {"evaluations": 0, "archived": 0}
        results: dict[str, Any] = {
            "descriptor": self.settings.descriptor,
            "quality": self.settings.quality,
            "cells": self.descriptor.cells,
            "reachable": int(self.reachable.sum()),
        }
        try:
            for number, threshold in enumerate(self.settings.thresholds):
                search = self._search(number, threshold)
                if not self._play(search, self.place / f"checkpoints-{number}", crew):
                    return None
                counts["evaluations"] += search.evaluations
                counts["archived"] += len(search.archive)
                if search.grid is not None:
                    counts["elites"] = counts.get("elites", 0) + self._file_elites(search, number)
                results |= {f"{kind}-{number}": scores for kind, scores in self._scores(search).items()}
                found = results[f"archive-{number}"]
                self.progress.note(
                    f"search {number}: {len(search.archive):,} behaviours of {search.evaluations:,} played, coverage "
                    f"{found['coverage']:.0%}, QD score {found['qd_score']:,.1f}"
                )
        finally:
            crew.kill()
        self.folder.write_json(self.place / "results.json", results)
        return Outcome(counts)

    @classmethod
    def roles(cls, config: Config) -> Topology:
        offspring = config.method.part(SearchConfig).offspring
        does = f"episodes of {config.env.id} with small policies, {offspring} a generation in all"
        return Topology(
            (Role("actor", config.actors.n, 1, does),),
            (
                ("controller", "actor", "weights of policies"),
                ("actor", "controller", "ends and actions"),
                ("controller", "archive", "what is novel"),
            ),
        )

    @classmethod
    def memory(cls, config: Config) -> int:
        return config.actors.n * limits.process(config)

    def _search(self, number: int, threshold: float) -> NoveltySearch:
        """The search from its last checkpoint, or a new one."""
        settings, seed = self.settings, self.config.seed + number
        new = {name for name in NEW if getattr(settings, name) == SearchConfig.model_fields[name].default}
        about = {
            "search": settings.model_dump(exclude={"generations"} | new),  # a longer search begins like a shorter one
            "threshold": threshold,
            "seed": seed,
            "map": self.setup.map,
        }
        archive = self._archive(f"archive-{number}", about)
        batch = -(-settings.offspring // (self.config.actors.n if settings.ahead == 1 else 1))
        size, bounds = self.house.world_size, self.descriptor.bounds(self.house)
        search = NoveltySearch(settings, threshold, archive, seed, batch, size, LAYERS, bounds)
        found = checkpoint.latest(self.place / f"checkpoints-{number}")
        if found is not None:
            search.restore(found.arrays, found.record)
        else:
            archive.rewind(0)  # files of a search that was killed before its first checkpoint
        self.measured, self.tally = 0, self._tally()
        return search

    def _archive(self, name: str, about: dict[str, Any]) -> Archive:
        kept = columns(PARAMETERS, self.setup.length, self.settings.quality)
        size = len(self.descriptor.names)
        return Archive(self.place / name, size, kept, about, self.settings.neighbours, self.folder.attempt)

    def _file_elites(self, search: NoveltySearch, number: int) -> int:
        """Make an archive of the grid next to the novelty archive. Returns its size."""
        grid = search.grid
        assert grid is not None
        archive = self._archive(f"grid-{number}", search.archive.about | {"elites": True})
        archive.rewind(0)  # filed before a kill
        for begin in range(0, len(grid), ELITES):
            rows = slice(begin, begin + ELITES)
            found = navigation.rollout(self.house, None, grid.weights[rows], self.setup.length)
            payload = {
                "weights": grid.weights[rows],
                "action": np.rint(found["action"] * TENTHS).astype(np.int8),
                "effort": grid.effort[rows],
                "quality": grid.quality[rows],
                "novelty": np.full(len(found["action"]), np.nan),  # no batch was given out
                "generation": search.generation_of(grid.id[rows]),
            }
            archive.append(
                grid.id[rows], grid.descriptor[rows], {column: payload[column] for column in archive.columns}
            )
        archive.flush()
        archive.forget_older()
        return len(archive)

    def _play(self, search: NoveltySearch, place: Path, crew: Crew) -> bool:
        self.waiting: list[Any] = []
        shown = time.monotonic()
        saved = shown if search.closed else -math.inf  # the first checkpoint is saved after the first generation
        first, begun = 0, 0.0
        while not search.done and not self.stop.reason:
            self._give(search, crew)
            for _, batch, ticket, head in crew.collect([], timeout=0.5)[0]:
                self._give(search, crew)  # before the search processes results: no evaluator needs to wait for that
                played = self._whole(ticket, head)
                if played is None:
                    self.waiting.append(batch)
                else:
                    search.tell(batch.ticket, played)
            now = time.monotonic()
            if not begun and search.closed:
                first, begun = search.evaluations, now
            self.rate = (search.evaluations - first) / max(now - begun, 1e-9)
            if now - shown > ROW_S or search.done:
                shown = now
                self._show(search, crew)
            if search.closed and now - saved > self.config.run.checkpoint_every_s:
                saved = now
                self._save(search, place)
        self._save(search, place)
        return search.done

    def _give(self, search: NoveltySearch, crew: Crew) -> None:
        """Give every idle evaluator a batch, if one is available."""
        for player in crew.idle():
            batch = self.waiting.pop(0) if self.waiting else search.ask()
            if batch is None:
                return
            pieces = self._pieces(batch.weights)
            crew.give(player, batch, "play_pieces", *pieces, returns=len(pieces))

    def _pieces(self, weights: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        """A batch, cut so that arguments and results fit in the call; in one piece if a few cuts are not enough."""
        row = max(weights[0].nbytes, 2 * self.setup.length + 64)  # bytes of a policy, and of its result
        count = -(-len(weights) * row // WITH_THE_CALL)
        return np.array_split(weights, count) if count <= min(MOST_PIECES, len(weights)) else [weights]

    def _whole(self, ticket: Ticket, first: Played | None) -> Played | None:
        """The results of a batch, from all its pieces; None if it is lost."""
        if first is None or len(ticket.parts) == 1:
            return first
        try:
            rest = [self.backend.result(ticket, part) for part in range(1, len(ticket.parts))]
        except RoleDied:
            return None
        return Played.joined([first, *rest])

    def _save(self, search: NoveltySearch, place: Path) -> None:
        self.folder.assert_newest()
        groups, record = search.state()
        record["attempt"] = self.folder.number
        self.folder.assert_newest()  # attempts are counted per run, so `write` does not see them at `place`
        checkpoint.write(place, search.closed, groups, record, self.config.run.keep_checkpoints)
        search.archive.forget_older()

    def _tally(self) -> Tally:
        return Tally(self.descriptor.cells, self.descriptor.bounds(self.house), self.reachable, self.quality.lowest)

    def _scores(self, search: NoveltySearch) -> dict[str, dict[str, float | None]]:
        """Coverage, QD score and best quality of the archive and, if there is one, of the grid."""
        new = np.arange(self.measured, len(search.archive))
        column = "quality" if "quality" in search.archive.columns else "effort"
        value = search.archive.rows(new, [column])[column]
        self.tally.add(search.archive.descriptors[new], value if column == "quality" else -value)
        self.measured = len(search.archive)
        found = {"archive": self.tally}
        if search.grid is not None:
            found["grid"] = self._tally()
            found["grid"].add(search.grid.descriptor, search.grid.quality)
        return {kind: tally.scores()._asdict() for kind, tally in found.items()}

    def _show(self, search: NoveltySearch, crew: Crew) -> None:
        archived, scores = len(search.archive), self._scores(search)
        row = {
            "kind": "search",
            "version": 0,  # there are no policy versions here
            "search/generation": search.closed - 1,
            "env_steps": search.evaluations * self.setup.length,
            "search/threshold": search.threshold,
            "search/evaluations": search.evaluations,
            "search/archived": archived,
            **{f"search/{name}": value for name, value in scores["archive"].items() if value is not None},
            **{f"search/grid_{name}": value for name, value in scores.get("grid", {}).items() if value is not None},
            "search/rate": self.rate,
            "search/novelty": search.novelty,
            "actors": self.config.actors.n,
            "actors_alive": crew.alive,
            "restarts": crew.restarts,
        }
        self.metrics.write(row)
        self.folder.write_status(
            env_steps=row["env_steps"], actors_alive=crew.alive, actors=self.config.actors.n, last_update=time.time()
        )
        self.progress.line(
            f"search  generations {search.closed - 1:,}/{self.settings.generations:,}  archived {archived:,}  "
            f"coverage {scores['archive']['coverage']:.0%}  QD score {scores['archive']['qd_score']:,.0f}  "
            f"{self.rate:,.0f} evaluations/s  actors {crew.alive}/{self.config.actors.n}"
        )
