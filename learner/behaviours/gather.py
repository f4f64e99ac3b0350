"""Merge archives into one store: every behaviour is replayed in full, once, and near-duplicates form one group.

    archives ──> weights ──rollout──> the same actions? ──> EpisodeStore: observation, action of every step
                                                       └──> Behaviours: group, descriptor, start, ...

Behaviours with identical actions from the same start are kept once. Copies of a behaviour from nearby starts (`copies`)
are separate behaviours with their own ends, in the group of the original: they teach a model what to do when the start
differs slightly from the map's.

The limit is the simulation, 7,000 behaviours per second; then the disk. Positions of all behaviours are in memory, 3 kB
each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from envs import navigation
from envs.api import Episodes
from envs.api import Field as Column
from envs.config import Part
from learner.behaviours.table import Behaviours
from learner.behaviours.twins import groups
from learner.files import Attempt
from learner.store.archive import Archive, ArchiveError
from learner.store.episodes import EpisodeWriter, Layout, Steps

OBSERVATION = "observation"
LAYOUT = Layout({OBSERVATION: Column("vector", (5,))}, (), (2,))
BLOCK = 1024
STILL = 0.05
"""World units per step below which a robot counts as stuck."""
ARCHIVE, COPY = 2**40, 2**36
"""Steps of an id: its archive's place, and which copy it is. Archives hold fewer than 2^36 behaviours."""


class GatherConfig(Part):
    """Merging archives into one store."""

    archives: list[str] = Field(default=[])
    """Further archives, or folders of search stages: paths."""
    take: Literal["novel", "elites"] = "novel"
    """What to take from search stages: novelty archives, or grids of the best (`method.search.cells`)."""
    twin: float = Field(default=5.5, ge=0)
    """Behaviours whose positions differ by at most this, as a mean over steps, are one group; world units."""
    still: float = Field(default=1.0, ge=0, le=1)
    """Maximum share of steps in which a robot is stuck, mostly at a wall; behaviours above it are left out."""
    copies: int = Field(default=0, ge=0, le=15)
    """How often each behaviour is played again from a nearby start."""
    distance: float = Field(default=15.0, ge=0)
    """How far from the map's start nearby starts may be along each axis, world units."""
    degrees: float = Field(default=15.0, ge=0)
    """How much nearby starts may be turned."""


def nearby(
    house: navigation.Map, ids: NDArray[np.int64], seed: int, distance: float, degrees: float
) -> NDArray[np.float32]:
    """For each number [N], a free start near the map's own: [N, 3], a function of seed and number alone."""
    starts = np.empty((len(ids), 3), np.float32)
    reach = np.array([distance, distance, np.radians(degrees)])
    for row, number in enumerate(ids.tolist()):
        drawn = house.start + np.random.default_rng([seed, number]).uniform(-1, 1, (64, 3)) * reach
        allowed = np.flatnonzero(navigation.free(house, drawn))
        starts[row] = drawn[allowed[0]] if len(allowed) else house.start
    return starts


def still(pose: NDArray[np.float32]) -> NDArray[np.float64]:
    """Share of the steps in which robots [N, T, 3] are stuck, even if they turn: [N]."""
    moved = np.linalg.norm(np.diff(pose[..., :2], axis=1), axis=-1)
    share: NDArray[np.float64] = (moved < STILL).mean(1)
    return share


def gather(
    archives: Sequence[Archive],
    house: navigation.Map,
    length: int,
    config: GatherConfig,
    seed: int,
    folder: Path,
    about: dict[str, Any],
    look: Callable[[int], None] = lambda done: None,
    attempt: Attempt | None = None,
) -> Behaviours:
    """Write the store of all behaviours into `folder`, and return its table, which is also saved there.

    look: called with the number of behaviours played so far.
    attempt: the attempt that writes it.

    Raises:
        ArchiveError: an archive's actions differ from what its policies do in this house.
    """
    writer = EpisodeWriter(folder, LAYOUT, about, attempt)
    seen: set[bytes] = set()
    rows: list[dict[str, NDArray[Any]]] = []
    places: list[NDArray[np.float32]] = []
    played = 0
    for number, archive in enumerate(archives):
        for begin in range(0, len(archive), BLOCK):
            index = np.arange(begin, min(begin + BLOCK, len(archive)))
            payload = archive.rows(index, ["weights", "action", "effort"])
            own = archive.ids[index]
            for copy in range(config.copies + 1):
                ids = number * ARCHIVE + copy * COPY + own
                start = np.tile(np.array(house.start, np.float32), (len(ids), 1))
                if copy:
                    start = nearby(house, ids, seed, config.distance, config.degrees)
                found = navigation.rollout(house, start, payload["weights"], length)
                tenths = np.rint(found["action"] * navigation.TENTHS).astype(np.int8)
                if not copy and not np.array_equal(tenths, payload["action"]):
                    raise ArchiveError(
                        f"{archive.folder} is of another house or simulator: its policies do not do what it says "
                        "they did; search anew, or choose the map it was made with"
                    )
                new = still(found["pose"]) <= config.still
                for i in np.flatnonzero(new):
                    what = start[i].tobytes() + tenths[i].tobytes()
                    new[i] = what not in seen
                    seen.add(what)
                _write(writer, f"{number:02d}-{begin:09d}-{copy:02d}", ids[new], found, new, number)
                places.append(found["pose"][new, :, :2])
                rows.append(
                    {
                        "id": ids[new],
                        "name": number * ARCHIVE + own[new],
                        "archive": np.full(new.sum(), number, np.int32),
                        "descriptor": found["pose"][new, -1, :2],
                        "start": start[new],
                        "effort": np.square(found["action"][new]).mean((1, 2), dtype=np.float32),
                        "weights": payload["weights"][new],
                    }
                )
                played += len(ids)
                look(played)
    if not rows:
        raise ArchiveError("there is nothing to gather: the archives are empty, so search longer or lower thresholds")
    columns = {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
    group = groups(np.concatenate(places), columns.pop("name"), config.twin)
    table = Behaviours(group=group, **columns)
    table.save(folder, attempt)
    return table


def _write(
    writer: EpisodeWriter,
    name: str,
    ids: NDArray[np.int64],
    found: dict[str, NDArray[np.float32]],
    rows: NDArray[np.bool_],
    kind: int,
) -> None:
    count, length = len(ids), found["action"].shape[1]
    episodes = Episodes(
        env=np.zeros(count, np.int32),
        episode=np.zeros(count, np.int64),
        seed=ids,
        length=np.full(count, length, np.int32),
        total=np.zeros(count, np.float32),
        success=np.zeros(count, np.bool_),
        kind=np.full(count, kind, np.int16),
        away=np.zeros(count, np.int32),
        counts=np.zeros((count, 0), np.int32),
    )
    steps = Steps(
        {OBSERVATION: found["obs"][rows].reshape(-1, 5)},
        found["action"][rows].reshape(-1, 2),
        np.zeros(count * length, np.float32),
    )
    writer.write(name, episodes, steps, {})
