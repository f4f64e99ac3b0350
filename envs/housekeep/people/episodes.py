"""Published episodes, read from their file: where objects lie at first, and where they would be right.

    <Scene>_int.json.gz ──> Episode: names of pieces and objects, start and end ──> `labels` gives `end` again
                                                             numbering ──> which of them has number N

Only what rules and labels need is kept; positions and packers are in `raw`. Objects and pieces are named as in `names`.
"""

from __future__ import annotations

import gzip
import json
import random
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from envs.housekeep.names import NAMES, OBJECTS
from envs.housekeep.people.preferences import Preferences

SEED = 100
"""Of the order in which the published code plays the episodes of a file, whatever the seed of a run."""
MOST_BYTES = 256 << 20
"""Of a file when it is unpacked; a published one of 400 episodes has 11 MB."""
FARTHEST = 1e6
"""Metres from the origin: a number beyond it, or none at all, is no place in a house."""

_PIECE = re.compile(r"(None|[a-z_]+?)(?:_\d+)?-([a-z_]+?)_\d+_\d+\.urdf")
_SEQUENCES = ("start_matrix", "end_matrix", "objs_keys", "objs_cats", "recs_keys", "start_position", "start_rotation")
_KEYS = ("episode_id", "scene_id", *_SEQUENCES, "misplaced_count", "objects_count")


@dataclass(frozen=True, eq=False)
class Episode:
    """One episode of R pieces of furniture and O objects, of which the first `misplaced` start at a wrong place.

    Attributes:
        number: its `episode_id`, which may leave gaps.
        scene: "Ihlen_0_int".
        pieces: int16 [R], numbers in `NAMES`.
        keys: names of the pieces in the file, no two alike: "kitchen_0-bottom_cabinet_40_0.urdf".
        objects: int16 [O], numbers in `OBJECTS`, no two alike.
        start: int64 [O], on which piece each object lies.
        end: bool [R, O], where each would be right.
        misplaced: how many objects start wrong.
        position: x, y, z in metres, where the agent starts; y is up.
        rotation: quaternion x, y, z, w of the agent.
        raw: the episode as it is in the file.
    """

    number: int
    scene: str
    pieces: NDArray[np.int16]
    keys: tuple[str, ...]
    objects: NDArray[np.int16]
    start: NDArray[np.int64]
    end: NDArray[np.bool_]
    misplaced: int
    position: tuple[float, ...]
    rotation: tuple[float, ...]
    raw: Mapping[str, Any]

    def labels(self, preferences: Preferences) -> NDArray[np.bool_]:
        """bool [R, O]: `end` by the rule, if `preferences` are those that the episode was made of."""
        return preferences.suits(self.pieces)[self.objects][:, self.pieces].T


def numbering(count: int) -> tuple[int, ...]:
    """Index in a file of `count` episodes of the one that published commands call 0, 1, 2, ..."""
    order = list(range(count))
    random.Random(SEED).shuffle(order)
    return tuple(order)


def chosen(where: str, order: Literal["published", "file"]) -> Episode:
    """The episode that "PATH:NUMBER" names.

    Args:
        order: what NUMBER counts: `published`, as `numbering` says; `file`, as they stand in it.

    Raises:
        ValueError: one sentence: it names none, or the file cannot be read.
    """
    path, _, number = where.rpartition(":")
    if not path or not number.isdecimal():
        raise ValueError(f"env.episode is PATH:NUMBER, a file of episodes and which of them: got {where!r}")
    try:
        changed = Path(path).stat().st_mtime_ns
    except OSError as reason:
        raise ValueError(f"cannot read the episodes of {path}: {reason}") from None
    return _chosen(path, int(number), order, changed)


@lru_cache(maxsize=16)
def _chosen(path: str, number: int, order: Literal["published", "file"], changed: int) -> Episode:
    """Read once, as long as the file is not changed: what describes a world asks for it again and again."""
    found = read(path)
    if number >= len(found):
        raise ValueError(f"env.episode={path}:{number}: the file has the episodes 0 to {len(found) - 1}")
    return found[numbering(len(found))[number] if order == "published" else number]


def read(path: str | Path) -> tuple[Episode, ...]:
    """All episodes of a file, in its order.

    Raises:
        ValueError: one sentence with the path: the file cannot be read, or which episode of it is senseless and why.
    """
    try:
        with gzip.open(path) as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise ValueError(f"it unpacks to more than {MOST_BYTES >> 20} MiB")
        tree = json.loads(content)
    except (OSError, EOFError, ValueError, zlib.error, RecursionError) as reason:
        raise ValueError(f"cannot read the episodes of {path}: {reason}") from None
    entries = tree.get("episodes") if isinstance(tree, dict) else None
    if not isinstance(entries, list) or not entries:
        raise ValueError(f"{path} has no list of episodes: name a published <Scene>_int.json.gz")
    found = []
    for index, entry in enumerate(entries):
        try:
            found.append(_episode(entry))
        except ValueError as reason:
            raise ValueError(f"episode {index} of {path} is none of the published form: {reason}") from None
    return tuple(found)


def _episode(entry: Any) -> Episode:
    if not isinstance(entry, dict):
        raise ValueError("it is no object of JSON")
    if missing := [key for key in _KEYS if key not in entry]:
        raise ValueError(f"it lacks {', '.join(missing)}")
    for key in _SEQUENCES:
        if not isinstance(entry[key], list):
            raise ValueError(f"{key} is no list")
    keys, categories = _strings(entry, "recs_keys"), _strings(entry, "objs_cats")
    objects = np.array([_object(name) for name in categories], np.int16)
    pieces = np.array([_piece(key) for key in keys], np.int16)
    shape = (len(pieces), len(objects))
    start, end = (_ones(entry, key, shape) for key in ("start_matrix", "end_matrix"))
    misplaced = entry["misplaced_count"]
    if len(set(keys)) < len(keys) or len(set(categories)) < len(categories):
        raise ValueError("two of its pieces or objects have one name")
    if len(_strings(entry, "objs_keys")) != len(objects) or entry["objects_count"] != len(objects):
        raise ValueError(f"objs_keys, objects_count and objs_cats differ about its {len(objects)} objects")
    if (start.sum(0) != 1).any():
        raise ValueError("an object does not lie on exactly one piece in start_matrix")
    wrong: NDArray[np.bool_] = np.logical_not((start & end).any(0))
    if isinstance(misplaced, bool) or misplaced != wrong.sum() or not wrong[: int(wrong.sum())].all():
        raise ValueError(
            f"misplaced_count is {misplaced!r}, but the objects that start wrong are {np.flatnonzero(wrong).tolist()}"
        )
    if not isinstance(entry["episode_id"], int) or not isinstance(entry["scene_id"], str):
        raise ValueError("episode_id is no whole number or scene_id no text")
    scene = entry["scene_id"].rsplit("/", 1)[-1].removesuffix(".glb")
    position, rotation = _numbers(entry, "start_position", 3), _numbers(entry, "start_rotation", 4)
    return Episode(
        entry["episode_id"],
        scene,
        pieces,
        keys,
        objects,
        start.argmax(0),
        end,
        int(misplaced),
        position,
        rotation,
        entry,
    )


def _object(name: str) -> int:
    known = _OBJECT.get(name.replace("_", " "))
    if known is None:
        raise ValueError(f"nobody knows the object {name!r}")
    return known


def _piece(key: str) -> int:
    """Number in `NAMES` of "kitchen_0-bottom_cabinet_40_0.urdf"; a piece without a room begins "None-"."""
    parts = _PIECE.fullmatch(key)
    name = "" if parts is None else f"{'' if parts[1] == 'None' else parts[1]} {parts[2]}".replace("_", " ").strip()
    if name not in _NUMBER:
        raise ValueError(f"{key!r} names no known piece in a room")
    return _NUMBER[name]


def _ones(entry: dict[str, Any], key: str, shape: tuple[int, int]) -> NDArray[np.bool_]:
    """bool [R, O] of a matrix of zeros and ones."""
    rows = entry[key]
    if len(rows) != shape[0] or not all(isinstance(row, list) and len(row) == shape[1] for row in rows):
        raise ValueError(f"{key} is not {shape[0]} rows, a piece each, of {shape[1]} objects")
    if not all(type(value) in (int, float) and value in (0, 1) for row in rows for value in row):
        raise ValueError(f"{key} has values other than 0 and 1")
    return np.array(rows, np.float64).reshape(shape).astype(np.bool_)


def _strings(entry: dict[str, Any], key: str) -> tuple[str, ...]:
    if not entry[key] or not all(isinstance(value, str) for value in entry[key]):
        raise ValueError(f"{key} is no list of names")
    return tuple(entry[key])


def _numbers(entry: dict[str, Any], key: str, count: int) -> tuple[float, ...]:
    values = entry[key]
    fits = len(values) == count and all(type(value) in (int, float) and abs(value) < FARTHEST for value in values)
    if not fits:
        raise ValueError(f"{key} is not {count} numbers")
    return tuple(float(value) for value in values)


_OBJECT = {name: i for i, name in enumerate(OBJECTS)}
_NUMBER = {name: i for i, name in enumerate(NAMES)}
