"""Which levels have a compiled generator, and what it is told of them.

    Minigrid's environment ──its class──> recipe: a loop, its family, numbers, lists ──> plan ──loop──> rows

Each file of `levels` writes out the loop that draws, rejects and draws anew: Numba keeps no machine code for a function
that is given another one, and one loop for all would make everybody wait for every level's compilation.

Other levels are drawn by Minigrid itself, see `exact`. Classes are matched exactly: nothing is known of what a subclass
changes.

On one core a level of GoToLocal takes 1.6 us and one of BossLevel 8 us, where Minigrid needs 400 us and 2 ms. Machine
code is made when the first level of a loop is drawn, in a few seconds, once per version of these sources.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from minigrid.envs.babyai import goto, other, pickup, putnext, synth, unlock
from minigrid.envs.babyai import open as opening
from minigrid.envs.babyai.core.levelgen import LevelGen

from envs.babyai import levels
from envs.babyai.symbols import COLOURS
from envs.native.babyai import layout, plan
from envs.native.babyai.levels import doors, keys, mazes, own, rooms, sentences

Fill = Callable[[layout.Rows, layout.Index, plan.Seeds, plan.Plan, plan.State], None]


@dataclass(frozen=True)
class Recipe:
    """What draws a level, and the numbers and lists of its plan. `most`: things of a level, doors not counted."""

    fill: Fill
    family: int
    most: int
    numbers: dict[int, int] = field(default_factory=dict)
    lists: Sequence[Sequence[int]] = ()

    def flat_lists(self) -> list[int]:
        """The lists as a plan holds them."""
        return [number for numbers in self.lists for number in (len(numbers), *numbers)]


class Generator:
    """Draws levels of one kind into rows. `Generator.of` makes it.

    Args:
        recipe: of these levels.
        size, columns, lines: cells along the side of a room; rooms.
        limit: steps of an episode; 0: depends on mission and map.

    Attributes:
        row_size: integers that rows must have at least.
    """

    def __init__(self, recipe: Recipe, size: int, columns: int, lines: int, limit: int) -> None:
        self.row_size = layout.row_size((size - 1) * columns + 1, (size - 1) * lines + 1)
        self._recipe = recipe
        self._plan = np.zeros(plan.plan_size(columns * lines, self.row_size), np.int64)
        head = {
            plan.SIZE: size,
            plan.COLUMNS: columns,
            plan.ROWS: lines,
            plan.FAMILY: recipe.family,
            plan.FIXED_LIMIT: limit,
        }
        for at, number in (head | recipe.numbers).items():
            self._plan[at] = number
        lists = recipe.flat_lists()
        self._plan[plan.LISTS : plan.LISTS + len(lists)] = lists

    @staticmethod
    def of(simulator: Any) -> Generator | None:
        """The generator of a Minigrid environment's levels; None where there is none, or a row too small for them."""
        known = _RECIPES.get(type(simulator))
        if known is None:
            return None
        recipe = known(simulator)
        size, lines, columns = simulator.room_size, simulator.num_rows, simulator.num_cols
        if type(simulator) is levels.Local:  # its own number of columns is that of the last mission
            columns = 2 if "open" in simulator.kinds else 1
        walls = lines * (columns - 1) + columns * (lines - 1)  # each may have a door
        if recipe.most + walls > layout.THINGS or len(recipe.flat_lists()) > plan.ROOMS - plan.LISTS:
            return None
        return Generator(recipe, size, columns, lines, simulator.max_steps if simulator.fixed_max_steps else 0)

    def fill(self, rows: layout.Rows, index: layout.Index, seeds: plan.Seeds) -> None:
        """Make rows[index[j]] the level of seeds[j], which is the same whatever else is drawn.

        Args:
            rows: int16 [N, K], contiguous, K at least `row_size`; longer rows have their level at the map's corner.
            index: int64 [n] of [0, N), contiguous.
            seeds: int64 [n], contiguous.

        Raises:
            ValueError: they are something else.
        """
        if rows.dtype != np.int16 or rows.ndim != 2 or rows.shape[1] < self.row_size or not rows.flags.carray:
            shape = f"[N, {self.row_size} or more]"
            raise ValueError(f"rows must be contiguous int16 {shape}, not {rows.dtype} {rows.shape}")
        for name, given in (("index", index), ("seeds", seeds)):
            if given.dtype != np.int64 or given.shape != index.shape or given.ndim != 1 or not given.flags.carray:
                raise ValueError(f"{name} must be contiguous int64 [n], not {given.dtype} {given.shape}")
        if len(index) and not 0 <= index.min() <= index.max() < len(rows):
            raise ValueError(f"there are {len(rows)} rows, but index goes from {index.min()} to {index.max()}")
        # The plan is a copy, since levels are drawn in it: threads may share a generator.
        self._recipe.fill(rows, index, seeds, self._plan.copy(), np.empty(1, np.uint64))


# ---- recipes --------------------------------------------------------------------------------------------------------

_KINDS = {
    "go to": layout.GO_TO,
    "pick up": layout.PICK_UP,
    "open": layout.OPEN,
    "put next": layout.PUT_NEXT,
    "pick up, go to": own.PICK_UP_GO_TO,
    "pick up, pick up": own.PICK_UP_PICK_UP,
}
_LINKS = {"then": layout.THEN, "after": layout.AFTER}
_VERBS = {"goto": layout.GO_TO, "pickup": layout.PICK_UP, "open": layout.OPEN, "putnext": layout.PUT_NEXT}
_SENTENCES = {"action": sentences.ACTION, "and": sentences.AND, "seq": sentences.SEQUENCE}
_SELECT_BY = {None: (doors.BY_COLOUR, doors.BY_PLACE), "color": (doors.BY_COLOUR,), "loc": (doors.BY_PLACE,)}


def _colour(name: str | None) -> int:
    return layout.ANY_COLOUR if name is None else COLOURS.index(name)


def _pair(pair: tuple[str, str]) -> int:
    colour, noun = pair
    return layout.NOUNS.index(noun) * len(COLOURS) + COLOURS.index(colour)


def _go_to(number: int) -> Recipe:
    return Recipe(rooms.fill_go_to, 0, number, {plan.NUMBER: number})


def _red_ball(s: Any, grey: bool = False) -> Recipe:
    return Recipe(rooms.fill, rooms.RED_BALL, s.num_dists + 1, {plan.NUMBER: s.num_dists, rooms.GREY_OTHERS: int(grey)})


def _seek(verb: int, number: int, all_reachable: bool = True, doors_open: bool = False) -> Recipe:
    options = {mazes.ALL_REACHABLE: int(all_reachable), mazes.DOORS_OPEN: int(doors_open)}
    return Recipe(mazes.fill, mazes.SEEK, number, {plan.NUMBER: number, mazes.ASKED: verb} | options)


def _put_next(s: Any) -> Recipe:
    numbers = {plan.NUMBER: s.objs_per_room, rooms.CARRYING_FIRST: int(s.start_carrying)}
    return Recipe(rooms.fill, rooms.PUT_NEXT_ROOM, 2 * s.objs_per_room, numbers)


def _two_doors(s: Any) -> Recipe:
    colours = {doors.COLOUR_1: _colour(s.first_color), doors.COLOUR_2: _colour(s.second_color)}
    return Recipe(doors.fill, doors.OPEN_TWO_DOORS, 0, {plan.STRICTNESS: 0b001 * s.strict} | colours)


def _open_door(s: Any) -> Recipe:
    return Recipe(doors.fill, doors.OPEN_DOOR, 0, {plan.STRICTNESS: 0b001 * s.debug}, [_SELECT_BY[s.select_by]])


def _doors_order(s: Any) -> Recipe:
    return Recipe(doors.fill, doors.OPEN_DOORS_ORDER, 0, {plan.NUMBER: s.num_doors, plan.STRICTNESS: 0b101 * s.debug})


def _maze_with_key(s: Any, family: int, number: int) -> Recipe:
    return Recipe(keys.fill, family, number * s.num_rows * s.num_cols + 2, {plan.NUMBER: number})


def _local(s: levels.Local) -> Recipe:
    held_out = sum(1 << _pair(pair) for pair in levels.HELD_OUT)
    numbers = {plan.NUMBER: levels.EXTRA_OBJECTS, own.HELD_OUT: int(s.held_out), own.VOCABULARY: held_out}
    colours = [COLOURS.index(colour) for colour in (levels.TEST_DOORS if s.held_out else levels.TRAIN_DOORS)]
    lists = [[_KINDS[kind] for kind in s.kinds], [_LINKS[order] for order in s.orders], colours]
    return Recipe(own.fill, own.LOCAL, levels.EXTRA_OBJECTS + 2, numbers, lists)


def _targets(s: levels.Targets) -> Recipe:
    numbers = {plan.NUMBER: s.num_dists, own.ASKED: _KINDS[s.action]}
    return Recipe(own.fill, own.TARGETS, s.num_dists + 2, numbers, [[_pair(p) for p in choice] for choice in s.targets])


def _sentence(s: LevelGen) -> Recipe:
    numbers = {
        plan.NUMBER: s.num_dists,
        plan.UNBLOCKING: int(s.unblocking),
        sentences.LOCKED_ROOM_PROB: round(s.locked_room_prob * sentences.CERTAIN),
        sentences.LOCATIONS: int(s.locations),
        sentences.IMPLICIT_UNLOCK: int(s.implicit_unlock),
        sentences.COLOUR_NAMED: int(type(s) is levels.PickupLocal),
    }
    lists = [[_SENTENCES[kind] for kind in s.instr_kinds], [_VERBS[kind] for kind in s.action_kinds]]
    return Recipe(sentences.fill, 0, s.num_dists + 1, numbers, lists)


_RECIPES: dict[type, Callable[[Any], Recipe]] = {
    # ---- rooms
    goto.GoToRedBallGrey: lambda s: _red_ball(s, grey=True),
    goto.GoToRedBall: _red_ball,
    goto.GoToRedBallNoDists: _red_ball,
    goto.GoToObj: lambda s: _go_to(1),
    goto.GoToLocal: lambda s: _go_to(s.num_dists),
    goto.GoToRedBlueBall: lambda s: Recipe(
        rooms.fill, rooms.RED_BLUE_BALL, s.num_dists + 1, {plan.NUMBER: s.num_dists}
    ),
    pickup.PickupDist: lambda s: Recipe(
        rooms.fill, rooms.PICKUP_DIST, 5, {plan.NUMBER: 5, plan.STRICTNESS: 0b001 * s.debug}
    ),
    putnext.PutNextLocal: lambda s: Recipe(rooms.fill, rooms.PUT_NEXT_LOCAL, s.num_objs, {plan.NUMBER: s.num_objs}),
    putnext.PutNext: _put_next,
    other.OneRoomS8: lambda s: Recipe(rooms.fill, rooms.ONE_ROOM, 1),
    other.MoveTwoAcross: lambda s: Recipe(
        rooms.fill, rooms.MOVE_TWO_ACROSS, 2 * s.objs_per_room, {plan.NUMBER: s.objs_per_room}
    ),
    # ---- mazes
    goto.GoTo: lambda s: _seek(layout.GO_TO, s.num_dists, doors_open=s.doors_open),
    pickup.Pickup: lambda s: _seek(layout.PICK_UP, 18),
    pickup.UnblockPickup: lambda s: _seek(layout.PICK_UP, 20, all_reachable=False),
    pickup.PickupAbove: lambda s: Recipe(mazes.fill, mazes.PICKUP_ABOVE, 1),
    opening.Open: lambda s: Recipe(mazes.fill, mazes.OPEN_ANY, 18, {plan.NUMBER: 18}),
    other.FindObjS5: lambda s: Recipe(mazes.fill, mazes.FIND_OBJ, 1),
    # ---- doors
    goto.GoToDoor: lambda s: Recipe(doors.fill, doors.GO_TO_DOOR, 0),
    goto.GoToObjDoor: lambda s: Recipe(doors.fill, doors.GO_TO_OBJ_DOOR, 8, {plan.NUMBER: 8}),
    other.ActionObjDoor: lambda s: Recipe(doors.fill, doors.ACTION_OBJ_DOOR, 5, {plan.NUMBER: 5}),
    opening.OpenRedDoor: lambda s: Recipe(doors.fill, doors.OPEN_RED_DOOR, 0),
    opening.OpenDoor: _open_door,
    opening.OpenTwoDoors: _two_doors,
    opening.OpenDoorsOrder: _doors_order,
    # ---- keys
    unlock.Unlock: lambda s: _maze_with_key(s, keys.UNLOCK, 3),
    goto.GoToImpUnlock: lambda s: _maze_with_key(s, keys.GO_TO_IMP_UNLOCK, 2),
    unlock.UnlockLocal: lambda s: Recipe(keys.fill, keys.UNLOCK_LOCAL, 4, {plan.NUMBER: 3 * s.distractors}),
    unlock.KeyInBox: lambda s: Recipe(keys.fill, keys.KEY_IN_BOX, 2),
    unlock.UnlockPickup: lambda s: Recipe(keys.fill, keys.UNLOCK_PICKUP, 6, {plan.NUMBER: 4 * s.distractors}),
    unlock.BlockedUnlockPickup: lambda s: Recipe(keys.fill, keys.BLOCKED_UNLOCK_PICKUP, 3),
    unlock.UnlockToUnlock: lambda s: Recipe(keys.fill, keys.UNLOCK_TO_UNLOCK, 3),
    other.KeyCorridor: lambda s: Recipe(keys.fill, keys.KEY_CORRIDOR, 2, {keys.NOUN: layout.NOUNS.index(s.obj_type)}),
    # ---- ours
    levels.Local: _local,
    levels.Targets: _targets,
    # ---- sentences
    **dict.fromkeys(
        (
            LevelGen,
            goto.GoToSeq,
            pickup.PickupLoc,
            levels.PickupLocal,
            synth.Synth,
            synth.SynthLoc,
            synth.SynthSeq,
            synth.MiniBossLevel,
            synth.BossLevel,
            synth.BossLevelNoUnlock,
        ),
        _sentence,
    ),
}
