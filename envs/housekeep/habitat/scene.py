"""What a house in habitat-sim consists of: paths and places for `child`, and names for our arrays.

    episode ──────────────┬──> names, objects, where each lies, the start ──> a row of Houses
    metadata_assembled ───┴──> files, positions, rotations ─────────────────> the scene that a child loads

All is looked for before any process is started.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from envs.housekeep.people.episodes import FARTHEST, Episode
from envs.native.housekeep.layout import OBJECTS, PIECES, Houses, houses

METADATA = "metadata_assembled.yaml"
DOORS = "metadata_v2_readjusted_with_outer_doors_v2.yaml"
"""Where doors stand, if the file is there."""
_NUMBERS = {"position": 3, "rotation": 4}


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """The published metadata hold tuples, which are lists to us, and nothing else that plain YAML has not."""


_Loader.add_constructor("tag:yaml.org,2002:python/tuple", yaml.SafeLoader.construct_yaml_seq)


def row(episode: Episode, count: int) -> Houses:
    """One house with the names of an episode, and no plan: only what a player sees can be drawn of it.

    Args:
        count: how many of the objects are there, from the first on.

    Raises:
        ValueError: it has more pieces or objects than our pictures can tell apart.
    """
    pieces = len(episode.pieces)
    if pieces > PIECES or count > OBJECTS:
        raise ValueError(
            f"env.episode has {pieces} pieces of furniture and {count} objects: {PIECES} and {OBJECTS} are the most, "
            "as a picture has a byte for each pixel"
        )
    made = houses(1)
    made.pieces[0], made.objects[0] = pieces, count
    made.name[0, 1 : pieces + 1] = episode.pieces
    made.object[0, :count] = episode.objects[:count]
    made.lies[0, :count] = episode.start[:count] + 1
    return made


def scene(data: Path, episode: Episode, count: int, size: int, rgb: bool) -> dict[str, Any]:
    """What `child.House` is told.

    Args:
        data: the folder `data` of Housekeep.
        count: how many of the objects are there, from the first on.
        size: pixels of a side of the pictures.
        rgb: whether they are wanted in colour.

    Raises:
        ValueError: one sentence with the path: a file is missing, or has not what the episode needs.
    """
    igibson = data / "scene_datasets" / "igibson"
    assets = igibson / "assets" / episode.scene
    placed = _placed(_there(data, assets / METADATA))
    if (doors := assets / DOORS).is_file():
        placed |= {name: entry for name, entry in _placed(doors).items() if "door" in name}
    pieces = []
    for key in episode.keys:
        name = key.partition("-")[2]
        if name not in placed:
            raise ValueError(f"{assets / METADATA} has no {name}, which env.episode needs: it is of another version")
        stem = name.removesuffix(".urdf")
        file = igibson / "assets_assemble" / episode.scene / stem / f"{stem}.object_config.json"
        pieces.append({"file": str(_there(data, file)), **placed[name]})
    objects = _objects(data, episode, count)
    return {
        "stage": str(_there(data, igibson / "scenes" / f"{episode.scene}.glb")),
        "physics": str(data / "default.physics_config.json"),
        "size": size,
        "pictures": ["ids", "rgb"] if rgb else ["ids"],
        "start": {"position": list(episode.position), "rotation": list(episode.rotation)},
        "pieces": pieces,
        "objects": objects,
    }


def _objects(data: Path, episode: Episode, count: int) -> list[dict[str, Any]]:
    columns = {"file": "objs_files", "position": "objs_pos", "rotation": "objs_rot"}
    for name in columns.values():
        if not isinstance(column := episode.raw.get(name), list) or len(column) != len(episode.objects):
            raise ValueError(f"env.episode is none of the published form: {name} is no list of its objects")
    objects = []
    for k in range(count):
        file, position, rotation = (episode.raw[name][k] for name in columns.values())
        parts = PurePosixPath(file).parts if isinstance(file, str) else ()
        if parts[:1] != ("data",) or ".." in parts:
            raise ValueError(f"env.episode is none of the published form: {file!r} is no file of the folder data")
        place = _place({"pos": position, "rot": rotation}, f"object {k} of env.episode")
        lies = int(episode.start[k]) + 1
        objects.append({"file": str(_there(data, data.joinpath(*parts[1:]))), **place, "lies": lies})
    return objects


def _placed(path: Path) -> dict[str, dict[str, list[float]]]:
    """Position and rotation of each piece that a file of metadata lists."""
    try:
        tree = _Loader(path.read_text("utf-8")).get_single_data()
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as reason:
        raise ValueError(f"cannot read {path}: {' '.join(str(reason).split())}") from None
    entries = tree.get("urdfs") if isinstance(tree, dict) else None
    if not isinstance(entries, dict):
        raise ValueError(f"{path} has no urdfs: it is none of Housekeep's metadata")
    return {str(name): _place(entry, f"{name} of {path}") for name, entry in entries.items()}


def _place(entry: Any, what: str) -> dict[str, list[float]]:
    found = {}
    for name, count in _NUMBERS.items():
        values: Any = entry.get(name[:3]) if isinstance(entry, dict) else None
        numbers = isinstance(values, list) and len(values) == count
        if not numbers or not all(type(value) in (int, float) and abs(value) < FARTHEST for value in values):
            raise ValueError(f"the {name} of {what} is not {count} numbers")
        found[name] = [float(value) for value in values]
    return found


def _there(data: Path, path: Path) -> Path:
    if not path.is_file():
        raise ValueError(
            f"env.data={data} lacks {path.relative_to(data)}: name the folder data of Housekeep, with the scenes and "
            "objects that its page tells how to get"
        )
    return path
