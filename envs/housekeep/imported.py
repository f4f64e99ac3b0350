"""A published episode as a house of our own: its furniture, what lies on it, and where the player begins.

    Episode ──> boxes on a plan of cells, heights ──> hulls: rooms, walls, doors ──> one row of `Houses`

From the file are names, rooms and footprints of the pieces, which of them each object lies on, and the start. Not in
it, and so guessed: walls and doors; how high pieces are, which are as high as others of their kind; and where on its
piece an object lies. See docs/housekeep.md.

Plans are seen from above: x is along columns, and z, which habitat-sim has for depth, is against rows, so that left
stays left.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from envs.housekeep import hulls
from envs.housekeep.names import KINDS, NAMES
from envs.housekeep.people.episodes import FARTHEST, Episode
from envs.housekeep.stacks import stacked

if TYPE_CHECKING:
    from envs.native.housekeep.layout import Houses

Spawn = Literal["misplaced", "all"]
RIM = 5
"""Cells around all furniture: one of margin, two to dig a way through, two of wall."""
_OVER_FLOOR = 0.15  # metres, of the ground that habitat-sim's players walk on, and so of the start
_NEAR = 11  # cells around a piece from where it may be gripped
_TRIES = 24  # of these, the ones that need the least digging


def contents(episode: Episode, spawn: Spawn) -> tuple[NDArray[np.int16], NDArray[np.int64]]:
    """Objects of an episode in the order of its file, and on which of its pieces, from 0, each lies.

    Args:
        spawn: `misplaced`: only those that lie wrong by the labels of the file, which come first.
    """
    count = episode.misplaced if spawn == "misplaced" else len(episode.objects)
    return episode.objects[:count], episode.start[:count]


def places(episode: Episode) -> list[str]:
    """Names of its pieces, each once, in alphabetical order."""
    return sorted({NAMES[name] for name in episode.pieces.tolist()})


def check(episode: Episode, spawn: Spawn, suits: NDArray[np.bool_]) -> None:
    """Something is to be done there.

    Args:
        suits: bool [objects, names], which object is right on a piece of which name.

    Raises:
        ValueError: one sentence: all objects lie right from the start.
    """
    objects, lies = contents(episode, spawn)
    if suits[objects, episode.pieces[lies]].all():
        raise ValueError(
            f"all objects of episode {episode.number} of {episode.scene} lie right from the start by these "
            "env.preferences: choose another env.episode, or the published preferences, env.preferences=PATH/data.npy"
        )


def build(houses: Houses, p: int, episode: Episode, spawn: Spawn) -> None:
    """Write the house of an episode into row p of `houses`.

    Raises:
        ValueError: one sentence: it does not fit, or the file does not say where its pieces are.
    """
    from envs.native.housekeep.access import obstruct  # here, because it brings the compiler along
    from envs.native.housekeep.houses import lay
    from envs.native.housekeep.layout import CELL, EDGE, HEADINGS, OBJECTS, PIECES

    where = f"episode {episode.number} of {episode.scene}"
    objects, lies = contents(episode, spawn)
    if len(episode.pieces) > PIECES or len(objects) > OBJECTS:
        raise ValueError(
            f"{where} has {len(episode.pieces)} pieces and {len(objects)} objects: {PIECES} and {OBJECTS} are the most"
        )
    metres, middle = _footprints(episode, where)
    boxes, size, corner = _on_plan(metres, np.bincount(lies, minlength=len(metres)))
    if max(size) > EDGE:
        across = max(np.ptp(metres[:, [0, 2]]), np.ptp(metres[:, [1, 3]]))
        raise ValueError(f"{where} is {across:.0f} m across: {(EDGE - 2 * RIM) * CELL:.0f} m are the most")
    kinds = episode.pieces % len(KINDS)
    boxes, bottom, top = stacked(boxes, kinds, middle, episode.keys, where)
    count = len(boxes)
    houses.size[p], houses.pieces[p] = size, count
    houses.name[p, 1 : count + 1], houses.box[p, 1 : count + 1] = episode.pieces, boxes
    houses.bottom[p, 1 : count + 1], houses.top[p, 1 : count + 1] = bottom, top
    houses.object[p], houses.lies[p], houses.objects[p] = 0, 0, len(objects)
    houses.object[p, : len(objects)], houses.lies[p, : len(objects)] = objects, lies + 1
    x, _, z = episode.position
    begins = (corner[1] - z) / CELL, (x - corner[0]) / CELL
    r, c = _walls(houses, p, episode, begins, where)
    lay(houses, p)
    solid = np.empty((EDGE, EDGE), np.uint8)
    obstruct(houses, p, solid)
    for n, key in enumerate(episode.keys, 1):
        _settle(houses, p, n, solid)
        if (there := int((lies + 1 == n).sum())) > houses.capacity[p, n]:
            raise ValueError(f"{where} has {there} objects on {key}, on which {houses.capacity[p, n]} fit")
    houses.start[p] = c * CELL, r * CELL
    houses.heading[p] = round((_turned(episode.rotation) + math.pi / 2) / math.tau * HEADINGS) % HEADINGS


def _footprints(episode: Episode, where: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Of each piece lowest x and z, highest x and z, [R, 4], and the height of its middle, [R]; metres."""
    packers, places = episode.raw.get("recs_packers"), episode.raw.get("recs_pos")
    if not isinstance(packers, dict) or not isinstance(places, list) or len(places) != len(episode.keys):
        raise ValueError(f"{where} has no recs_packers and recs_pos, which say where its pieces are")
    found = []
    for key, place in zip(episode.keys, places, strict=True):
        packer = packers.get(key)
        packer = packer if isinstance(packer, dict) else {}
        low, size = _numbers(packer.get("bottom_left"), 2), _numbers(packer.get("size"), 2)
        middle = _numbers(place, 3)
        if low is None or size is None or middle is None or min(size) < 0:
            raise ValueError(f"{where} does not say in metres where {key} is and how large")
        found.append((*low, low[0] + size[0], low[1] + size[1], middle[1]))
    rows = np.array(found)
    return rows[:, :4], rows[:, 4] - (episode.position[1] - _OVER_FLOOR)


def _numbers(values: Any, count: int) -> list[float] | None:
    if not isinstance(values, list) or len(values) != count:
        return None
    fit = all(type(value) in (int, float) and abs(value) < FARTHEST for value in values)
    return [float(value) for value in values] if fit else None


def _on_plan(
    metres: NDArray[np.float64], wanted: NDArray[np.int64]
) -> tuple[NDArray[np.int64], tuple[int, int], tuple[float, float]]:
    """Boxes [R, 4] in cells, rows and columns of the plan, and x and z at its first corner.

    Args:
        metres: [R, 4], as `_footprints` gives them.
        wanted: [R], how many cells a piece has at least: one that has fewer grows where rounding cut off most.
    """
    from envs.native.housekeep.layout import CELL

    left, back = float(metres[:, 0].min()) - RIM * CELL, float(metres[:, 3].max()) + RIM * CELL
    edges = np.column_stack([back - metres[:, 3], metres[:, 0] - left, back - metres[:, 1], metres[:, 2] - left]) / CELL
    low, high = np.rint(edges[:, :2]), np.rint(edges[:, 2:])
    thin = high <= low
    low = np.where(thin, np.floor((edges[:, :2] + edges[:, 2:]) / 2 - 1e-9), low)
    boxes = np.column_stack([low, np.where(thin, low + 1, high)]).astype(np.int64)
    while len(small := np.flatnonzero((boxes[:, 2:] - boxes[:, :2]).prod(1) < wanted)):
        cut = np.column_stack([boxes[small, :2] - edges[small, :2], edges[small, 2:] - boxes[small, 2:]])
        side = cut.argmax(1)
        boxes[small, side] += np.where(side < 2, -1, 1)
    rows, columns = (boxes[:, 2:].max(0) + RIM).tolist()
    return boxes, (rows, columns), (left, back)


def _turned(rotation: tuple[float, ...]) -> float:
    """By which angle a player is turned to the left, who looks along -z by a rotation of none."""
    return 2 * math.atan2(rotation[1], rotation[3])


def _rooms(keys: tuple[str, ...]) -> NDArray[np.int64]:
    """[R], from 1: the rooms of the pieces, in the order in which they are named; 0 for none."""
    names = [key.split("-")[0] for key in keys]
    numbers = {name: n for n, name in enumerate(dict.fromkeys(name for name in names if name != "None"), 1)}
    return np.array([numbers.get(name, 0) for name in names])


def _walls(houses: Houses, p: int, episode: Episode, begins: tuple[float, float], where: str) -> hulls.Corner:
    """Write the rooms of house p, in which each piece can be gripped as far as others let it; where a player begins."""
    from envs.native.housekeep.access import is_solid

    count = len(episode.keys)
    boxes, size = houses.box[p, 1 : count + 1], (int(houses.size[p, 0]), int(houses.size[p, 1]))
    stops = [bool(is_solid(houses.bottom[p, n], houses.top[p, n])) for n in range(1, count + 1)]
    solid, covered = hulls.over(boxes[stops], size), hulls.over(boxes, size)
    start = hulls.nearest(hulls.passable(solid), *begins)
    if start is None:
        raise ValueError(f"{where} is so full that nobody can stand there")
    r, c = start
    plan = hulls.enclose(
        np.vstack([boxes, [(r - 1, c - 1, r + 1, c + 1)]]).astype(np.int64), np.append(_rooms(episode.keys), 0), size
    )
    plan = hulls.connect(plan, solid, covered, start)
    houses.room[p] = 0
    houses.room[p, : size[0], : size[1]] = plan
    _dig(houses, p, solid, covered, start)
    return start


def _dig(houses: Houses, p: int, solid: hulls.Cells, covered: hulls.Cells, start: hulls.Corner) -> None:
    """Ways to pieces that cannot be gripped from anywhere, and to objects on them; a piece may have none."""
    rows, columns = solid.shape
    for n in range(1, int(houses.pieces[p]) + 1):
        plan = houses.room[p, :rows, :columns].copy()
        if _is_at_hand(houses, p, n):
            continue
        ways = hulls.Ways(plan, solid, hulls.reached(hulls.free(plan, solid), start))
        r0, c0, r1, c1 = houses.box[p, n].tolist()
        near = hulls.over([(max(r0 - _NEAR, 0), max(c0 - _NEAR, 0), r1 + _NEAR, c1 + _NEAR)], (rows, columns))
        costs = np.where(near & (ways.cost > 0), ways.cost, np.inf)
        for place in np.argsort(costs, axis=None)[:_TRIES].tolist():
            corner = divmod(place, columns)
            if not np.isfinite(costs[corner]):
                continue
            houses.room[p, :rows, :columns] = hulls.fill(ways.dig(plan, corner), solid, covered, start)
            if _is_at_hand(houses, p, n):
                break
        else:
            houses.room[p, :rows, :columns] = plan


def _is_at_hand(houses: Houses, p: int, n: int) -> bool:
    """Can piece n be gripped, and what lies on it at first?"""
    from envs.native.housekeep.access import can_grip, obstruct
    from envs.native.housekeep.houses import lay
    from envs.native.housekeep.layout import EDGE

    lay(houses, p)
    solid = np.empty((EDGE, EDGE), np.uint8)
    obstruct(houses, p, solid)
    return _settle(houses, p, n, solid) and bool(can_grip(houses, p, solid, n))


def _settle(houses: Houses, p: int, n: int, solid: NDArray[np.uint8]) -> bool:
    """Choose the slots of piece n; returns whether all that lies there at first can be lifted.

    Each cell that nothing covers is a slot, up to `SLOTS`, first those from which something can be lifted: footprints
    are of whole cells, and published pieces often are narrower than would hold by area what belongs there.

    Args:
        solid: as `obstruct` writes it.
    """
    from envs.native.housekeep.access import can_lift
    from envs.native.housekeep.layout import EDGE, NOWHERE, SLOTS

    wanted = int((houses.lies[p, : houses.objects[p]] == n).sum())
    laid = houses.slots[p, n, : houses.capacity[p, n]].tolist()
    r0, c0, r1, c1 = houses.box[p, n].tolist()
    others = [r * EDGE + c for r in range(r0, r1) for c in range(c0, c1) if r * EDGE + c not in laid]
    cells = laid + [cell for cell in others if _is_open(houses, p, n, divmod(cell, EDGE))]
    cells += [cell for cell in others if cell not in cells][: max(wanted - len(cells), 0)]
    good: list[int] = []
    for cell in cells:
        houses.slots[p, n, 0] = cell
        if len(good) < SLOTS and can_lift(houses, p, solid, n, 0):
            good.append(cell)
    chosen = [*good, *(cell for cell in cells if cell not in good)][:SLOTS]
    houses.capacity[p, n] = len(chosen)
    houses.slots[p, n, : len(chosen)] = chosen
    mine = houses.stacked[p] == n
    houses.slot[p][mine] = NOWHERE
    for slot, cell in enumerate(chosen):
        houses.slot[p][divmod(cell, EDGE)][mine[divmod(cell, EDGE)]] = slot
    return len(good) >= wanted


def _is_open(houses: Houses, p: int, n: int, cell: hulls.Corner) -> bool:
    """Is there room for an object on piece n in a cell, below what is over it?"""
    from envs.native.housekeep.layout import OBJECT_HEIGHT

    top, others = houses.top[p, n], houses.stacked[p][cell]
    over = others[(others > 0) & (houses.top[p, others] > top)]
    return bool((houses.bottom[p, over] >= top + OBJECT_HEIGHT).all())
