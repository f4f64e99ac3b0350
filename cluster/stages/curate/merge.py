"""One store of all archives: each behaviour once, near-duplicates in groups (`learner/behaviours/gather.py`)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cluster.runs.folder import RunError
from cluster.runs.stage import Outcome
from cluster.stages._shared.lgqd import BehaviourStage
from learner.behaviours.gather import gather
from learner.store.archive import Archive
from learner.store.episodes import forget_unfinished
from learner.store.owned import index_of


def run(work: BehaviourStage) -> Outcome | None:
    """Merge.

    Raises:
        RunError: there is no archive.
    """
    archives, attempt = [Archive.read(place) for place in _places(work)], work.folder.attempt
    settings, seed = work.method.merge, work.config.seed

    def tell(done: int) -> None:
        work.progress.line(f"merge  behaviours {done:,}/{total:,}")

    forget_unfinished(work.place, attempt)
    total = sum(map(len, archives)) * (1 + settings.copies)
    about = {"archives": [archive.digest() for archive in archives], "map": work.config.env.options["map"]}
    table = gather(archives, work.house, work.length, settings, seed, work.place, about, tell, attempt)
    forget_unfinished(work.place, attempt)
    groups = len(np.unique(table.group))
    told = f"merge: {len(table):,} distinct behaviours of {total:,}, in {groups:,} groups"
    return Outcome({"behaviours": len(table), "of": total, "groups": groups}, lines=(told,))


def _places(work: BehaviourStage) -> list[Path]:
    """Folders of the archives: those that are named, and those of this run's search if it has any."""
    given = [Path(name) for name in work.method.merge.archives]
    searched = "search" in (work.config.stages or ["search"])
    places = given if given and not searched else [work.given.artifact("search"), *given]
    kind = "grid-*" if work.method.merge.take == "elites" else "archive-*"
    found = [p for place in places for p in ([place] if index_of(place) else sorted(place.glob(kind)))]
    if not found:
        grid = ", searched with method.search.cells" if kind == "grid-*" else ""
        raise RunError(f"there is no {kind} in {', '.join(map(str, places))}: name folders of search stages{grid}")
    return found
