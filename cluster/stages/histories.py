"""The engine of a histories stage: rows of shards that any idle actor can play, with one learner per task of a row.

    tasks ──> rows of 16 ──> shares, one an actor ──> stages/<stage>/episodes/00002-00001-a0001.arrow, ...
                                                 └──> results.json: how returns rose over the histories

A history is a chain, so one actor plays a share from its first episode to its last, and reports its progress about once
a second. A share that was lost with its actor, or with the controller, is played again from its first episode, which
gives the same result; complete rows are not.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from actors.histories import NUMBERS, Historian, HistorianSetup, HistoryShare, rows_of
from cluster.config import limits
from cluster.config.tree import Config
from cluster.roles.drawing import Role, Topology
from cluster.runs.stage import Outcome, StageEngine
from cluster.stages._shared.shares import play
from envs import registry
from learner.histories import TASKS, HistoriesConfig, kept_fields, learner, training_tasks
from learner.store.episodes import EPISODES, EpisodeStore, EpisodeWriter, Layout, StoreError, digest, forget_unfinished

PARTS = 10
"""Number of parts of a history, for a summary of its rise; shorter histories have one episode per part."""


class Engine(StageEngine):
    """Records the learning histories of tasks."""

    def run(self) -> Outcome | None:
        """Play what is missing.

        Raises:
            StoreError: the store is of other histories.
            Superseded: a newer attempt has begun.
        """
        config, store, attempt = self.config, self.place / EPISODES, self.folder.attempt
        settings, spec = config.method.part(HistoriesConfig), config.spec
        tasks = training_tasks(spec)
        self.place.mkdir(parents=True, exist_ok=True)
        EpisodeWriter(store, Layout.of(spec, kept_fields(spec)), about(config), attempt, pieces=True)
        there, shares = forget_unfinished(store, attempt), shares_of(settings, tasks, config.actors.n)
        waiting = [left for share in shares if (left := _less(share, there, tasks, settings.episodes))]
        setup = HistorianSetup(
            config.env.id, config.env.options, settings, config.seed, tasks, store, about(config), attempt
        )
        much = {share: len(share.rows) for share in waiting}
        if not play(self, setup, Historian, much, settings.episodes):
            return None
        forget_unfinished(store, attempt)
        found = results(store, tasks, settings.episodes)
        self.folder.write_json(self.place / "results.json", {"env": config.env.id, "learner": settings.learner} | found)
        counts = {name: found[name] for name in ("tasks", "episodes", "steps")}
        return Outcome(counts, inputs={"episodes": digest(store)}, lines=(line(self.stage.name, found),))

    @classmethod
    def roles(cls, config: Config) -> Topology:
        settings = config.method.part(HistoriesConfig)
        does = f"{settings.episodes:,} episodes of each task, {settings.together} tasks side by side"
        return Topology((Role("actor", config.actors.n, 1, does),), (("actor", "store", "learning histories"),))

    @classmethod
    def memory(cls, config: Config) -> int:
        """Memory of the actors: envs, tables, and a block of episodes with at least one step each. `actors.histories`
        gives the maximum."""
        settings, spec = config.method.part(HistoriesConfig), registry.spec(config.env.id, **config.env.options)
        table = learner(settings.learner).memory(settings, spec)
        block = min(NUMBERS, settings.episodes) * (limits.SHARE + limits.observed(config)[1])
        tasks = min(config.actors.n * settings.together, training_tasks(spec))  # tasks that are played at once
        return config.actors.n * limits.process(config) + tasks * (limits.ENV + table + block)


def about(config: Config) -> dict[str, Any]:
    """A store's metadata: the environment, the learner, and their configuration."""
    settings = config.method.part(HistoriesConfig)
    of = config.model_dump(include={"env", "seed"}) | {"histories": settings.counted()}
    digested = hashlib.sha256(json.dumps(of, sort_keys=True).encode()).hexdigest()
    return {"env": config.env.id, "learner": settings.learner, "seed": config.seed, "config_sha256": digested}


def shares_of(settings: HistoriesConfig, tasks: int, actors: int) -> list[HistoryShare]:
    """All rows of shards, in shares of about equal size that an actor can play at once."""
    rows = rows_of(tasks)
    count = min(rows, actors * -(-rows // (actors * max(1, settings.together // TASKS))))
    return [HistoryShare(tuple(part.tolist())) for part in np.array_split(np.arange(rows), count)]


def results(store: Path, tasks: int, episodes: int) -> dict[str, Any]:
    """Counts of a complete store, for `told`.

    Raises:
        StoreError: not all of it is there, and whole.
    """
    kept = EpisodeStore(store)
    if len(kept) != tasks * episodes:
        raise StoreError(
            f"{store} holds {len(kept):,} whole episodes, not {tasks * episodes:,}: remove it, and resume the run"
        )
    return told(kept)


def told(kept: EpisodeStore) -> dict[str, Any]:
    """Counts, and the mean return over all tasks in each part of the histories, first to last."""
    (begins,) = np.diff(kept.task, prepend=-1).nonzero()
    histories = np.split(kept.total.astype(np.float64), begins[1:])
    parts = zip(*(np.array_split(of, min(PARTS, *map(len, histories))) for of in histories), strict=True)
    return {
        "tasks": len(histories),
        "episodes": len(kept),
        "steps": kept.steps,
        "return": [float(np.concatenate(part).mean()) for part in parts],
        "first": float(np.mean([of[0] for of in histories])),
        "last": float(np.mean([of[-1] for of in histories])),
    }


def line(name: str, found: dict[str, Any]) -> str:
    """What a finished stage prints."""
    rise = f"return {found['return'][0]:.2f} in the first part of a history, {found['return'][-1]:.2f} in the last"
    return f"{name}: {found['tasks']} tasks, {found['episodes']:,} episodes, {found['steps']:,} steps; {rise}"


def _less(share: HistoryShare, there: dict[str, dict[str, Any]], tasks: int, episodes: int) -> HistoryShare | None:
    """The rest of a share: rows with a missing episode. None if nothing is missing."""
    of = {row: [name for name in there if int(name.partition("-")[0]) == row] for row in share.rows}
    full = {row: episodes * min(TASKS, tasks - TASKS * row) for row in share.rows}
    rows = tuple(row for row, names in of.items() if sum(there[name]["episodes"] for name in names) < full[row])
    return HistoryShare(rows, frozenset(name for row in rows for name in of[row])) if rows else None
