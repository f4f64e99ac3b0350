"""A house of our own in the form of the published files, and a Python that has the stand-in for habitat-sim."""

import gzip
import json
import sys
from pathlib import Path

import numpy as np

from envs.housekeep.names import NAMES, OBJECTS
from envs.housekeep.people import table

STUB = Path(__file__).parent / "habitat_stub"
SCENE = "Own_int"
PIECES = {  # key in the episode: middle, size. The player starts at the origin and looks along -z, eyes at 1.5 m
    "bedroom_0-bed_1_0.urdf": ((0, 0.6, -2), (1, 1.2, 1)),
    "kitchen_0-bottom_cabinet_2_0.urdf": ((1.97, 0.8, -0.347), (0.8, 1.6, 0.8)),  # 80 degrees to the right
    "kitchen_0-sink_3_0.urdf": ((-1.97, 0.8, -0.347), (0.3, 1.6, 0.3)),  # 80 degrees to the left
    "living_room_0-shelf_5_0.urdf": ((0, 0.8, 3.5), (10, 1.6, 2)),  # behind, its corners far away
    "corridor_0-table_6_0.urdf": ((-1.286, 0.8, -1.532), (0.4, 1.6, 0.4)),  # 40 degrees to the left, behind a wall
    "None-window_7_0.urdf": ((0, 2.2, -4), (1, 1, 0.1)),
}
BED, CABINET, SINK, SHELF, TABLE, WINDOW = range(1, 7)
THINGS = {  # name: middle, size, on which piece
    "pan": ((0, 1.45, -2), (0.3, 0.5, 0.3), BED),
    "lamp": ((-1.97, 1.75, -0.347), (0.2, 0.3, 0.2), SINK),
    "spoon": ((2.2, 1.65, -0.347), (0.1, 0.1, 0.1), CABINET),  # it lies right
}
WALL = [-1.2, 0, -1.1, -0.65, 3, -0.9]
LEVEL = [0.0, 0.0, 0.0, 1.0]
METADATA = """\
default_mapping:
- !!python/tuple [cup_9_0.urdf, sink_3_0.urdf]
urdfs:
"""


def suits():
    """bool [objects, pieces] by our own table."""
    numbers = [NAMES.index(name_of(key)) for key in PIECES]
    rows = [OBJECTS.index(name) for name in THINGS]
    return table().suits(numbers)[rows][:, numbers]


def name_of(key):
    room, _, file = key.partition("-")
    kind = " ".join(file.split("_")[:-2])
    return kind if room == "None" else f"{' '.join(room.split('_')[:-1])} {kind}"


def entry(index):
    """An episode; those of a file differ in where the player starts."""
    right = suits()
    start = np.zeros((len(PIECES), len(THINGS)))
    for k, (_, _, piece) in enumerate(THINGS.values()):
        start[piece - 1, k] = 1
    wrong = [k for k in range(len(THINGS)) if not (start[:, k].astype(bool) & right[k]).any()]
    assert wrong == [0, 1]
    return {
        "episode_id": index,
        "scene_id": f"data/scene_datasets/igibson/scenes/{SCENE}.glb",
        "start_position": [index / 64, 0.0, 0.0],
        "start_rotation": LEVEL,
        "start_matrix": start.tolist(),
        "end_matrix": right.T.astype(float).tolist(),
        "objs_keys": [f"{name}_1" for name in THINGS],
        "objs_cats": list(THINGS),
        "objs_files": [f"data/objects/{name}.object_config.json" for name in THINGS],
        "objs_pos": [list(middle) for middle, _, _ in THINGS.values()],
        "objs_rot": [LEVEL for _ in THINGS],
        "recs_keys": list(PIECES),
        "misplaced_count": 2.0,
        "objects_count": len(THINGS),
    }


def write(folder, changes=None):
    """The folder data and the file of episodes, in `folder`; `changes` of the episodes' entries."""
    igibson = folder / "data" / "scene_datasets" / "igibson"
    text = METADATA
    for key, (middle, size) in PIECES.items():
        stem = key.partition("-")[2].removesuffix(".urdf")
        written(igibson / "assets_assemble" / SCENE / stem / f"{stem}.object_config.json", {"box": size})
        text += f"  {stem}.urdf: {{category: x, room: null, pos: {list(middle)}, rot: {LEVEL}, type: receptacle}}\n"
    (igibson / "assets" / SCENE).mkdir(parents=True)
    (igibson / "assets" / SCENE / "metadata_assembled.yaml").write_text(text)
    written(igibson / "scenes" / f"{SCENE}.glb", {"walls": [WALL]})
    for name, (_, size, _) in THINGS.items():
        written(folder / "data" / "objects" / f"{name}.object_config.json", {"box": size})
    with gzip.open(folder / f"{SCENE}.json.gz", "wt") as file:
        json.dump({"episodes": [entry(index) | (changes or {}) for index in range(5)]}, file)


def written(path, tree):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(tree))


def python(folder, wrong="", before="", stub=True, last="exec"):
    """A script that runs this Python with the stand-in; `before` are lines of the shell that come first."""
    path = folder / f"python-{len(list(folder.glob('python-*')))}"
    lines = [before, f"export HABITAT_STUB='{wrong}' HABITAT_STUB_RECORD='{folder / 'record'}'"]
    lines += [f"export PYTHONPATH='{STUB}'"] if stub else []
    path.write_text("\n".join(["#!/bin/sh", *lines, f"{last} '{sys.executable}' \"$@\"\n"]))
    path.chmod(0o755)
    return path


def recorded(folder):
    """What was called, each with its arguments."""
    return [json.loads(line) for line in (folder / "record").read_text().splitlines()]


def options(folder, number=0, **more):
    """Of `envs.make`."""
    named = {"engine": "habitat", "data": str(folder / "data"), "episode": f"{folder / SCENE}.json.gz:{number}"}
    return named | {"numbering": "file", "size": 32, "observe": ["view", "seen", "held"]} | more
