"""Houses as data: walls, start, goal, objects and coloured tiles, from JSON or from a picture.

    house.json ──┐
    plan.pbm ────┼──> Map ──> tables of the simulator (envs.native.navigation.floor)
    plan.png ────┘        └─> scene: what stands where, as symbols

A map is a grid of pixels over a square of `world_size` units; (0, 0) is its top left corner, y grows downwards. Walls,
objects and tiles are given in pixels; start and goal, as everything of the robot, in world units.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

HOUSE = Path(__file__).with_name("house.json")
"""The house of Salehi and Doncieux (2023)."""

LARGEST = 2048  # pixels of a side
COARSEST, FINEST = 14.0, 0.2  # world units a pixel: of the first the robot's search for walls still holds its centre
WALLS = "walls_px_inclusive_x0_y0_x1_y1"
_KEYS, _MORE = ("world_size", "grid_size", WALLS, "start_pose_deg", "goal"), ("objects", "tiles", "synonyms")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_' -]*")


class Thing(NamedTuple):
    """A piece of furniture. It is no obstacle."""

    name: str
    x: float  # pixels
    y: float


@dataclass(frozen=True, eq=False)
class Map:
    """A house.

    Attributes:
        world_size: width in world units.
        walls: bool [H, W].
        start: x, y in world units, heading in radians: 0 is east, positive is clockwise as one sees it.
        goal: x, y in world units.
        objects: what stands there.
        tiles: rows of colour names that divide the interior, which is the smallest rectangle that holds all free
            pixels; () for a plain floor.
        synonyms: other names of objects and colours, by name: {"sofa": ("couch", "settee")}. Each stands for one
            thing; those of things that the map lacks are ignored.

    Raises:
        ValueError: one sentence: the border is open, a size, place or name is senseless, a synonym is ambiguous.
    """

    world_size: float
    walls: NDArray[np.bool_]
    start: tuple[float, float, float]
    goal: tuple[float, float]
    objects: tuple[Thing, ...] = ()
    tiles: tuple[tuple[str, ...], ...] = ()
    synonyms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        height, width = self.walls.shape
        if not (3 <= width <= LARGEST and 3 <= height <= LARGEST):
            raise ValueError(f"a map has 3 to {LARGEST} pixels a side: grid_size is [{width}, {height}]")
        if not FINEST <= self.world_size / width <= COARSEST:
            raise ValueError(
                f"a pixel is {FINEST:g} to {COARSEST:g} world units wide: change world_size ({self.world_size:g}) or "
                f"grid_size ({width} pixels)"
            )
        border = np.ones_like(self.walls)
        border[1:-1, 1:-1] = False
        gaps = np.argwhere(border & ~self.walls)
        if len(gaps):
            raise ValueError(
                f"the border of the map is open at pixel ({gaps[0][1]}, {gaps[0][0]}): walls must close all four sides"
            )
        if self.walls.all():
            raise ValueError("the map is all wall: leave a robot some room")
        for name in (*(thing.name for thing in self.objects), *(colour for row in self.tiles for colour in row)):
            if not _NAME.fullmatch(name):
                raise ValueError(f"names of objects and colours are letters, digits and spaces: got {name!r}")
        for thing in self.objects:
            if not (0 <= thing.x < width and 0 <= thing.y < height):
                raise ValueError(f"the object {thing.name!r} at ({thing.x:g}, {thing.y:g}) is outside the grid")
        if len({len(row) for row in self.tiles}) > 1 or (self.tiles and not self.tiles[0]):
            raise ValueError("tiles are rows of equally many colour names")
        self._check_synonyms()
        self.walls.setflags(write=False)

    def _check_synonyms(self) -> None:
        names = {thing.name for thing in self.objects} | {colour for row in self.tiles for colour in row}
        taken = {_plain(name) for name in names}
        for name, others in self.synonyms.items():
            for other in others if name in names else ():
                if not _NAME.fullmatch(other):
                    raise ValueError(f"synonyms are letters, digits and spaces: got {other!r} for {name!r}")
                if _plain(other) in taken:
                    raise ValueError(f"the synonym {other!r} of {name!r} names something already: leave it out")
                taken.add(_plain(other))

    @property
    def scale(self) -> float:
        """Pixels a world unit."""
        return float(self.walls.shape[1] / self.world_size)

    @property
    def interior(self) -> tuple[int, int, int, int]:
        """Left, top, right, bottom of the smallest rectangle that holds all free pixels; the last two exclusive."""
        rows, columns = np.flatnonzero(~self.walls.all(1)), np.flatnonzero(~self.walls.all(0))
        return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1

    def as_json(self) -> dict[str, Any]:
        """What `load` reads; the walls as few rectangles."""
        height, width = self.walls.shape
        return {
            "world_size": self.world_size,
            "grid_size": [width, height],
            "start_pose_deg": [self.start[0], self.start[1], math.degrees(self.start[2])],
            "goal": list(self.goal),
            WALLS: _rectangles(self.walls),
            "objects": [thing._asdict() for thing in self.objects],
            "tiles": [list(row) for row in self.tiles],
            "synonyms": {name: list(others) for name, others in self.synonyms.items()},
        }


def load(source: Map | dict[str, Any] | str | Path = HOUSE) -> Map:
    """A map from a JSON file, from what such a file holds, or as it is.

    Raises:
        ValueError: one sentence: the file cannot be read, a key is missing, a value is not what it should be.
    """
    if isinstance(source, Map):
        return source
    if not isinstance(source, dict):
        try:
            source = json.loads(Path(source).read_text(encoding="utf-8"))
        except (OSError, TypeError, ValueError) as reason:
            raise ValueError(f"cannot read the map {source}: {reason}") from None
        if not isinstance(source, dict):
            raise ValueError("a map's JSON is an object with the keys of docs/navigation.md")
    missing = [key for key in _KEYS if key not in source]
    if missing:
        raise ValueError(f"the map lacks {', '.join(missing)}")
    for key in source.keys() - {*_KEYS, *_MORE}:
        if near := difflib.get_close_matches(str(key), _MORE, 1):
            raise ValueError(f"the map has a key {key!r}: did you mean {near[0]!r}?")
    (world_size,) = _numbers("world_size", [source["world_size"]], 1)
    width, height = _whole("grid_size", source["grid_size"], 2)
    if not (0 < width <= LARGEST and 0 < height <= LARGEST and world_size > 0):
        raise ValueError(f"world_size and grid_size are positive, a side at most {LARGEST} pixels")
    walls = np.zeros((height, width), np.bool_)
    for i, rectangle in enumerate(_list(WALLS, source[WALLS])):
        x0, y0, x1, y1 = _whole(f"wall {i}", rectangle, 4)
        if not (0 <= x0 <= x1 < width and 0 <= y0 <= y1 < height):
            raise ValueError(
                f"wall {i}, [{x0}, {y0}, {x1}, {y1}], is no rectangle within the grid of {width} x {height} pixels"
            )
        walls[y0 : y1 + 1, x0 : x1 + 1] = True
    x, y, degrees = _numbers("start_pose_deg", source["start_pose_deg"], 3)
    goal = _numbers("goal", source["goal"], 2)
    objects, tiles = [], []
    for entry in _list("objects", source.get("objects", [])):
        if not isinstance(entry, dict) or entry.keys() != {"name", "x", "y"} or not isinstance(entry["name"], str):
            raise ValueError(f"an object of a map has a name, x and y: got {entry!r}")
        objects.append(Thing(entry["name"], *_numbers(f"object {entry['name']}", [entry["x"], entry["y"]], 2)))
    for row in _list("tiles", source.get("tiles", [])):
        if not isinstance(row, list | tuple) or not all(isinstance(colour, str) for colour in row):
            raise ValueError(f"tiles of a map are rows of colour names: got {row!r}")
        tiles.append(tuple(row))
    synonyms = source.get("synonyms", {})
    if not isinstance(synonyms, dict) or not all(
        isinstance(others, list | tuple) and all(isinstance(other, str) for other in others)
        for others in synonyms.values()
    ):
        raise ValueError(f"synonyms of a map are lists of names by name: got {synonyms!r}")
    others = {str(name): tuple(words) for name, words in synonyms.items()}
    start = (x, y, math.radians(degrees))
    return Map(world_size, walls, start, (goal[0], goal[1]), tuple(objects), tuple(tiles), others)


def from_picture(
    path: str | Path,
    world_size: float,
    start_pose_deg: Sequence[float],
    goal: Sequence[float],
    objects: Sequence[Thing] = (),
    tiles: Sequence[Sequence[str]] = (),
) -> Map:
    """A map whose walls are the black pixels of a picture: PBM (P1 or P4), or what Pillow reads, such as PNG.

    Raises:
        ValueError: the picture cannot be read, or as `Map`.
    """
    content = Path(path).read_bytes() if Path(path).is_file() else b""
    walls = _pbm(content, path) if content[:2] in (b"P1", b"P4") else _darkness(path)
    x, y, degrees = _numbers("start_pose_deg", list(start_pose_deg), 3)
    x_goal, y_goal = _numbers("goal", list(goal), 2)
    start = (x, y, math.radians(degrees))
    things = tuple(Thing(*thing) for thing in objects)
    return Map(float(world_size), walls, start, (x_goal, y_goal), things, tuple(tuple(row) for row in tiles))


def _plain(name: str) -> str:
    """How a name is compared with others."""
    return name.replace("_", " ").lower()


def _pbm(content: bytes, path: str | Path) -> NDArray[np.bool_]:
    """bool [H, W] of a portable bitmap; 1 is black."""
    head = re.match(rb"P[14](?:\s|#[^\n]*\n)+(\d+)(?:\s|#[^\n]*\n)+(\d+)\s", content)
    if head is None:
        raise ValueError(f"{path} is no whole PBM: it has no width and height")
    width, height = int(head[1]), int(head[2])
    body = content[head.end() :]
    if content[:2] == b"P1":
        bits = np.frombuffer(re.sub(rb"#[^\n]*|\s", b"", body), np.uint8) - ord("0")
    else:
        bits = np.unpackbits(np.frombuffer(body, np.uint8))
    line = width if content[:2] == b"P1" else (width + 7) // 8 * 8
    if len(bits) < line * height or bits[: line * height].max(initial=0) > 1:
        raise ValueError(f"{path} is no whole PBM: it does not hold {width} x {height} bits")
    walls: NDArray[np.bool_] = bits[: line * height].reshape(height, line)[:, :width] == 1
    return walls


def _darkness(path: str | Path) -> NDArray[np.bool_]:
    """bool [H, W]: which pixels of a picture are nearer to black than to white; transparent ones are white."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as picture:
            pixels = picture.convert("RGBA")
    except (OSError, UnidentifiedImageError) as reason:
        raise ValueError(f"cannot read the picture {path}: {reason}") from None
    paper = Image.new("RGBA", pixels.size, "white")
    return np.asarray(Image.alpha_composite(paper, pixels).convert("L")) < 128


def _rectangles(walls: NDArray[np.bool_]) -> list[list[int]]:
    """Rectangles [x0, y0, x1, y1], inclusive, that make up the walls: runs of a row that reach down while they can."""
    left, found = walls.copy(), []
    for y, x in np.argwhere(walls).tolist():
        if left[y, x]:
            x1 = x + _run(left[y, x:])
            y1 = y + _run(left[y:, x:x1].min(1))
            left[y:y1, x:x1] = False
            found.append([x, y, x1 - 1, y1 - 1])
    return found


def _run(marks: NDArray[np.bool_]) -> int:
    """How many are true from the first on."""
    return len(marks) if marks.all() else int(marks.argmin())


def _list(name: str, value: Any) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{name} of a map is a list: got {value!r}")
    return list(value)


def _numbers(name: str, value: Any, count: int) -> list[float]:
    """`count` finite numbers."""
    fits = isinstance(value, list | tuple) and len(value) == count
    if not fits or any(isinstance(v, bool) or not isinstance(v, Real) or not math.isfinite(v) for v in value):
        raise ValueError(f"{name} of a map is {count} number{'s' * (count > 1)}: got {value!r}")
    return [float(v) for v in value]


def _whole(name: str, value: Any, count: int) -> list[int]:
    """`count` whole numbers."""
    numbers = _numbers(name, value, count)
    if any(v != int(v) for v in numbers):
        raise ValueError(f"{name} of a map is {count} whole numbers: got {value!r}")
    return [int(v) for v in numbers]
