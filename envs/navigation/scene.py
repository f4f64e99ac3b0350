"""What a trajectory passes, in symbols: where in the house, which furniture is near, which tiles.

    pose [N, T, 3] ──> symbols: small integers at 11 moments ──> annotation: a plain dict of one trajectory
                  └──> visits: when robots came to what     ──> route: names in order

Symbols first: they are made for any number of trajectories at once and compared as numbers; names and sentences are
made of them when somebody reads. For readers the picture has y up, as maps have: (0, 0) is the bottom left corner, and
north is up. All lengths here are pixels of the map, which are 3 world units wide in the default house.

After Salehi and Doncieux (2023, arXiv 2308.13278), section on annotation.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from envs.navigation.house import Map

NEAR = 30.0  # pixels: nearer objects are told
DEAD = 6.0  # pixels: a difference along one axis that counts as none
MOMENTS = 10  # a trajectory is told at these many equal intervals, and at its last step

SIDES = ("on", "north", "north east", "east", "south east", "south", "south west", "west", "north west")
"""Where a robot is, seen from an object."""
WAYS = ("north", "east", "south", "west")
WALL = "black"
NOWHERE = "You are in the house"

_SIDE = np.array([[8, 1, 2], [7, 0, 3], [6, 5, 4]])  # [sign of y (down) + 1, sign of x + 1] -> SIDES
_STEP = ((0, -1), (1, 0), (0, 1), (-1, 0))  # (dx, dy) of WAYS
_TOUCH = ("You touch a wall on your left", "You touch a wall on your right")


class Symbols(NamedTuple):
    """N trajectories at S moments; O objects."""

    step: NDArray[np.int32]  # [S] index into the poses
    position: NDArray[np.int16]  # [N, S, 2] x and y, y up, rounded
    side: NDArray[np.int8]  # [N, S, O] index into SIDES, -1: not near
    distance: NDArray[np.int16]  # [N, S, O] to each object, rounded
    tile: NDArray[np.int8]  # [N, S] index into `Scene.colours`
    next_tile: NDArray[np.int8]  # [N, S, 4] the next colour that is another, by WAYS
    next_distance: NDArray[np.int16]  # [N, S, 4] how far that is


class Visits(NamedTuple):
    """E visits, ordered by trajectory, then step; of those in one step tiles come first."""

    trajectory: NDArray[np.int64]  # [E]
    step: NDArray[np.int64]  # [E]
    place: NDArray[np.int64]  # [E] index into `Scene.places`


class Scene:
    """The tables of a map's scene.

    Attributes:
        colours: names of tile colours, WALL first, then in the map's order.
        objects: names of objects, in the map's order.
        places: what can be visited: the colours but WALL, said as "red tile", then the objects.
        other_names: synonyms of objects and colours, by name: {"sofa": ["couch"], "gray": ["grey"]}.
        names: the place that a word of a text stands for, in lower case: objects, colours and their synonyms.
    """

    def __init__(self, house: Map) -> None:
        self.house = house
        self.objects = tuple(thing.name.replace("_", " ") for thing in house.objects)
        self.colours = (WALL, *dict.fromkeys(colour for row in house.tiles for colour in row if colour != WALL))
        self.places = (*(f"{colour} tile" for colour in self.colours[1:]), *self.objects)
        known = (*self.objects, *self.colours[1:])
        others = {name.replace("_", " "): words for name, words in house.synonyms.items()}
        self.other_names = {name: [word.replace("_", " ") for word in others[name]] for name in known if name in others}
        self.names: dict[str, str] = {}
        for name, place in zip(known, (*self.objects, *self.places[: len(self.colours) - 1]), strict=True):
            self.names |= {word.lower(): place for word in (name, *self.other_names.get(name, ()))}
        self._places = np.array([thing[1:] for thing in house.objects], np.float64).reshape(-1, 2)
        self.tiles = self._tiles()  # int8 [H, W], index into colours; the whole floor is 1 if there are no tiles
        self._next = [_next(self.tiles, way) for way in range(len(WAYS))]

    def _tiles(self) -> NDArray[np.int8]:
        walls = self.house.walls
        tiles = np.ones(walls.shape, np.int8)
        if self.house.tiles:
            left, top, right, bottom = self.house.interior
            table = np.array([[self.colours.index(colour) for colour in row] for row in self.house.tiles], np.int8)
            rows = (np.arange(walls.shape[0]) - top) * table.shape[0] // (bottom - top)
            columns = (np.arange(walls.shape[1]) - left) * table.shape[1] // (right - left)
            tiles = table[np.ix_(rows.clip(0, table.shape[0] - 1), columns.clip(0, table.shape[1] - 1))]
        tiles[walls] = 0
        return tiles

    def pixels(self, pose: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Places in pixels, [..., 2], y down: as they are, and the pixel that each is in."""
        places = pose[..., :2].astype(np.float64) * self.house.scale
        pixels = np.floor(places + 0.5).astype(np.int64)
        return places, pixels.clip(0, np.array(self.tiles.shape[::-1]) - 1)

    def sides(self, places: NDArray[np.float64]) -> tuple[NDArray[np.int8], NDArray[np.float64]]:
        """[..., 2] -> the side and the distance of every object, [..., O]."""
        apart = places[..., None, :] - self._places
        sign = np.sign(apart).astype(np.int64) * (np.abs(apart) > DEAD) + 1
        distance = np.hypot(apart[..., 0], apart[..., 1])
        side = np.where(distance < NEAR, _SIDE[sign[..., 1], sign[..., 0]], -1)
        return side.astype(np.int8), distance

    def symbols(self, pose: NDArray[np.float32]) -> Symbols:
        """What N trajectories [N, T, 3] pass, at their MOMENTS and in the end.

        Raises:
            ValueError: the poses have another shape, or T is 0.
        """
        _check(pose)
        length = pose.shape[1]
        step = np.append(np.arange(MOMENTS) * length // MOMENTS, length - 1).astype(np.int32)
        places, pixels = self.pixels(pose[:, step])
        side, distance = self.sides(places)
        up = np.array([0, self.tiles.shape[0]]) + places * (1, -1)
        x, y = pixels[..., 0], pixels[..., 1]
        ahead = [(colour[y, x], far[y, x]) for colour, far in self._next]
        return Symbols(
            step=step,
            position=np.rint(up).astype(np.int16),
            side=side,
            distance=np.rint(distance).astype(np.int16),
            tile=self.tiles[y, x],
            next_tile=np.stack([colour for colour, _ in ahead], -1),
            next_distance=np.stack([far for _, far in ahead], -1),
        )

    def annotation(self, symbols: Symbols, trajectory: int) -> list[dict[str, Any]]:
        """One trajectory for people and language models: a plain dict a moment.

        `near` says where the robot is as seen from each object, nearest first; `ahead` the next colour each way, and
        how far that is. Maps without tiles have neither `tile` nor `ahead`.
        """
        told = []
        for s, step in enumerate(symbols.step.tolist()):
            here = trajectory, s
            near = [int(o) for o in np.argsort(symbols.distance[here], kind="stable") if symbols.side[here][o] >= 0]
            x, y = symbols.position[here].tolist()
            moment: dict[str, Any] = {
                "step": step,
                "position": [x, y],
                "near": [
                    {
                        "object": self.objects[o],
                        "robot is": said(SIDES[symbols.side[here][o]]),
                        "distance": int(symbols.distance[here][o]),
                    }
                    for o in near
                ],
            }
            if self.house.tiles:
                ahead = zip(WAYS, symbols.next_tile[here], symbols.next_distance[here].tolist(), strict=True)
                moment["tile"] = self.colours[symbols.tile[here]]
                moment["ahead"] = {way: [self.colours[colour], far] for way, colour, far in ahead}
            told.append(moment)
        return told

    def visits(self, pose: NDArray[np.float32], *, near: float = NEAR, again: bool = True) -> Visits:
        """When each of N trajectories [N, T, 3] came to a tile, or within `near` pixels of an object.

        Where it starts counts as visited. A place counts once more when the robot has left it in between, unless not
        `again`.

        Raises:
            ValueError: as `symbols`.
        """
        _check(pose)
        parts = [self._visits(pose[n : n + _BLOCK], near) for n in range(0, len(pose), _BLOCK)]
        columns = [np.concatenate([part[k] for part in parts]) if parts else np.zeros(0, np.int64) for k in range(3)]
        columns[0] += np.repeat(np.arange(len(parts)) * _BLOCK, [len(part[0]) for part in parts])
        if not again:
            _, first = np.unique(columns[0] * (len(self.places) + 1) + columns[2], return_index=True)
            columns = [column[np.sort(first)] for column in columns]
        return Visits(*columns)

    def _visits(self, pose: NDArray[np.float32], near: float) -> tuple[NDArray[np.int64], ...]:
        places, pixels = self.pixels(pose)
        tile = self.tiles[pixels[..., 1], pixels[..., 0]]
        within = [tile == colour for colour in range(1, len(self.colours))]
        for x, y in self._places:
            within.append((places[..., 0] - x) ** 2 + (places[..., 1] - y) ** 2 < near * near)
        there = np.stack(within, -1) if within else np.zeros((*tile.shape, 0), np.bool_)
        there[:, 1:] &= ~there[:, :-1]
        return np.nonzero(there)

    def route(self, pose: NDArray[np.float32], *, near: float = NEAR, again: bool = False) -> list[list[str]]:
        """For each of N trajectories [N, T, 3] the tiles and objects that it visited, in order, each named once, or
        at every visit if `again`: ["pink tile", "stove", "gray tile"].

        Raises:
            ValueError: as `symbols`.
        """
        found = self.visits(pose, near=near, again=again)
        routes: list[list[str]] = [[] for _ in range(len(pose))]
        for trajectory, place in zip(found.trajectory.tolist(), found.place.tolist(), strict=True):
            routes[trajectory].append(self.places[place])
        return routes

    def sentences(self, situation: list[int]) -> list[str]:
        """What is told of (tile, side of every object, left bumper, right bumper); at least one sentence."""
        tile, *sides, left, right = situation
        told = [f"You are on the {self.colours[tile]} tile"] if self.house.tiles else []
        told += [_near(self.objects[o], side) for o, side in enumerate(sides) if side >= 0]
        told += [sentence for sentence, touched in zip(_TOUCH, (left, right), strict=True) if touched]
        return told or [NOWHERE]

    def words(self) -> tuple[str, ...]:
        """Every word that `sentences` may hold, sorted, in lower case."""
        tiles = [f"You are on the {colour} tile" for colour in self.colours]
        near = [_near(name, side) for name in self.objects for side in range(len(SIDES))]
        return tuple(sorted({word for said in (*tiles, *near, *_TOUCH, NOWHERE) for word in said.lower().split()}))


_BLOCK = 256  # trajectories whose every step is looked at at once


def said(side: str) -> str:
    """ "on it", "north east of it"."""
    return "on it" if side == "on" else f"{side} of it"


def _near(name: str, side: int) -> str:
    return f"You are at the {name}" if SIDES[side] == "on" else f"You are {SIDES[side]} of the {name}"


def _next(tiles: NDArray[np.int8], way: int) -> tuple[NDArray[np.int8], NDArray[np.int16]]:
    """For every pixel the next other colour that way, and its distance, [H, W] both; beyond the map is wall."""
    dx, dy = _STEP[way]
    height, width = tiles.shape
    colour, far = np.zeros_like(tiles), np.ones(tiles.shape, np.int16)
    for k in range(1, height if dy else width):  # the line before is done
        line = k if dx + dy < 0 else (height if dy else width) - 1 - k
        at = (line, slice(None)) if dy else (slice(None), line)
        before = (line + dy, slice(None)) if dy else (slice(None), line + dx)
        same = tiles[at] == tiles[before]
        colour[at] = np.where(same, colour[before], tiles[before])
        far[at] = np.where(same, far[before] + 1, 1)
    return colour, far


def _check(pose: NDArray[np.float32]) -> None:
    if pose.ndim != 3 or pose.shape[1] < 1 or pose.shape[2] < 2:
        raise ValueError(f"poses are [N, T, 3] with at least one step: got {list(pose.shape)}")
