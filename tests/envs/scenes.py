"""Scenes and episodes made up in the published format, for tests that import them."""

import gzip
import json
from typing import NamedTuple

import numpy as np


class Piece(NamedTuple):
    """Of furniture: "kitchen_0", or "None"; its class; lowest x and z, how far it reaches; the height of its middle."""

    room: str
    kind: str
    x: float
    z: float
    dx: float
    dz: float
    y: float = 0.4

    def key(self, number):
        return f"{self.room}-{self.kind}_{number}_0.urdf"


FLAT = (
    Piece("kitchen_0", "bottom_cabinet", 0, 0, 1, 0.5, 0.45),
    Piece("kitchen_0", "fridge", 3.2, 0.1, 0.8, 0.75, 0.85),
    Piece("kitchen_0", "bottom_cabinet_no_top", 0, 2.6, 0.5, 0.8, 0.45),
    Piece("kitchen_0", "counter", 0, 0, 1, 0.5, 0.93),
    Piece("kitchen_0", "chair", 2.4, 2.8, 0.4, 0.4, 0.5),
    Piece("bedroom_0", "bed", 6, 0, 1.8, 2.1, 0.7),
    Piece("bedroom_0", "shelf", 5.5, 3.5, 0.8, 0.3, 1.0),
    Piece("bedroom_0", "carpet", 8, 2, 1.5, 1.5, 0.01),
    Piece("bedroom_0", "top_cabinet", 9.2, 0, 0.3, 0.9, 1.9),
    Piece("None", "window", 0, 3.9, 1.2, 0.1, 1.7),
    Piece("None", "window", 8, 3.9, 1.2, 0.1, 1.7),
)
"""Two rooms side by side, the wall between them at x = 5."""


def episode(
    pieces=FLAT,
    objects=(("pan", 5, (0, 2)), ("herring_fillets", 1, (1,))),
    position=(2.0, 0.15, 1.5),
    turned=0.0,
    **changed,
):
    """An entry of a file.

    Args:
        pieces: of furniture.
        objects: name, the piece it lies on at first, and those where it is right.
        position: of the player.
        turned: by which angle it is turned to the left from looking along -z.
    """
    keys = [piece.key(n) for n, piece in enumerate(pieces)]
    start, end = np.zeros((2, len(pieces), len(objects)))
    for k, (_, lies, right) in enumerate(objects):
        start[lies, k] = 1
        end[list(right), k] = 1
    return {
        "episode_id": 7,
        "scene_id": "data/scene_datasets/igibson/scenes/Rs_int.glb",
        "start_position": list(position),
        "start_rotation": [0.0, float(np.sin(turned / 2)), 0.0, float(np.cos(turned / 2))],
        "default_matrix_shape": [len(pieces), 0],
        "start_matrix": start.tolist(),
        "end_matrix": end.tolist(),
        "objs_keys": [f"{name}_1" for name, _, _ in objects],
        "objs_cats": [name for name, _, _ in objects],
        "recs_keys": keys,
        "recs_cats": [piece.kind for piece in pieces],
        "recs_pos": [[piece.x + piece.dx / 2, piece.y, piece.z + piece.dz / 2] for piece in pieces],
        "recs_rot": [[0.0, 0.0, 0.0, 1.0]] * len(pieces),
        "recs_packers": {
            key: {"shelves": [], "bottom_left": [piece.x, piece.z], "size": [piece.dx, piece.dz], "matches": []}
            for key, piece in zip(keys, pieces, strict=True)
        },
        "misplaced_count": float(sum(lies not in right for _, lies, right in objects)),
        "objects_count": len(objects),
        **changed,
    }


def written(path, *entries):
    """The file of these episodes."""
    with gzip.open(path, "wt") as file:
        json.dump({"episodes": list(entries)}, file)
    return path
