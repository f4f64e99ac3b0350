"""Minigrid's environments <-> rows: how a level of Minigrid's own generator enters the engine, and how a world of the
engine gets the pictures and the expert that work on Minigrid's environments.

    pack(simulator, row)          a freshly reset environment -> the row that its episode begins with
    unpack(row, step, simulator)  a row in the middle of an episode -> an environment in the same state

What neither carries over: the random generator, which no step uses.
"""

# mypy: allow-untyped-calls
# Minigrid says that it is typed; most of its functions are not.

from __future__ import annotations

from typing import Any

import numpy as np
from minigrid.core.roomgrid import RoomGrid
from minigrid.core.world_object import WorldObj
from minigrid.envs.babyai.core.verifier import (
    AfterInstr,
    AndInstr,
    BeforeInstr,
    GoToInstr,
    ObjDesc,
    OpenInstr,
    PickupInstr,
    PutNextInstr,
)

from envs.babyai.symbols import COLOURS, EMPTY, TRIPLE, code_of_cell
from envs.babyai.world import kind_of_mission
from envs.native.babyai import layout as at

_PLACE_NAMES = (None, "left", "right", "front", "behind")
_VERBS: dict[Any, int] = {GoToInstr: at.GO_TO, PickupInstr: at.PICK_UP, OpenInstr: at.OPEN, PutNextInstr: at.PUT_NEXT}
_INSTRUCTIONS = {verb: instruction for instruction, verb in _VERBS.items()}


class CannotPack(ValueError):
    """The environment holds something that rows have no room for."""


def pack(simulator: Any, row: at.Row) -> None:
    """Write a freshly reset Minigrid environment, a `RoomGridLevel`, into `row`.

    Raises:
        CannotPack: it is too large for the row, has too many things, or a kind of cell or mission that rows lack.
    """
    grid = simulator.grid
    if at.row_size(grid.width, grid.height) > len(row):
        raise CannotPack(f"a map of {grid.width} x {grid.height} cells does not fit a row of {len(row)} numbers")
    at.clear(row, grid.width)
    things: dict[int, int] = {}  # id of a Minigrid object -> its number

    def number(thing: Any, position: int) -> int:
        new = things[id(thing)] = len(things)
        if new == at.THINGS:
            raise CannotPack(f"the level has more than {at.THINGS} things")
        row[at.CODE + new], row[at.POSITION + new], row[at.KNOWN + new] = code_of_cell(thing), position, position
        if thing.contains is not None:
            row[at.CONTAINS + new] = number(thing.contains, at.NOWHERE)
        return new

    for y in range(grid.height):
        for x in range(grid.width):
            cell, position = grid.get(x, y), at.cell_at(row, x, y)
            code = code_of_cell(cell)
            if cell is None or cell.type == "wall":
                row[at.MAP + position] = code
            elif cell.type in at.NOUNS:
                row[at.MAP + position] = code + at.THING * (number(cell, position) + 1)
            else:
                raise CannotPack(f"rows have no {cell.type}")
    if simulator.carrying is not None:
        row[at.CARRYING] = number(simulator.carrying, at.NOWHERE)
    row[at.AT], row[at.DIRECTION] = at.cell_at(row, *(int(i) for i in simulator.agent_pos)), simulator.agent_dir
    row[at.COUNT] = len(things)
    row[at.LIMIT] = min(simulator.max_steps, at.LONGEST)
    row[at.KIND] = kind_of_mission(simulator.instrs)
    _pack_mission(simulator.instrs, row, things)


def _pack_mission(mission: Any, row: at.Row, things: dict[int, int]) -> None:
    row[at.LINK] = {BeforeInstr: at.THEN, AfterInstr: at.AFTER}.get(type(mission), at.ALONE)
    groups = [mission] if row[at.LINK] == at.ALONE else [mission.instr_a, mission.instr_b]
    if row[at.LINK] != at.ALONE and mission.strict:
        row[at.STRICT] |= at.STRICT_ORDER
    for g, group in enumerate(groups):
        clauses = [group.instr_a, group.instr_b] if type(group) is AndInstr else [group]
        for c, clause in enumerate(clauses, start=2 * g):
            if type(clause) not in _VERBS:
                raise CannotPack(f"rows have no instruction {type(clause).__name__}")
            row[at.VERB + c] = _VERBS[type(clause)]
            row[at.STRICT] |= getattr(clause, "strict", False) << c
            for d, meant in enumerate(_descriptions(clause), start=2 * c):
                noun = at.NOUNS.index(meant.type or "object")
                colour = at.ANY_COLOUR if meant.color is None else COLOURS.index(meant.color)
                place, unique = _PLACE_NAMES.index(meant.loc), len(meant.obj_set) == 1
                row[at.DESCRIPTION + d] = at.describe_code(noun, colour, place, int(unique))
                for thing, (x, y) in zip(meant.obj_set, meant.obj_poss, strict=True):
                    if thing.type == "wall":
                        if type(clause) is not PickupInstr:
                            raise CannotPack("rows cannot judge a mission that means walls, but to pick them up")
                        continue  # "a grey object" means walls too; they count for the article
                    row[at.MEMBER + things[id(thing)]] |= 1 << d
                    row[at.KNOWN + things[id(thing)]] = at.cell_at(row, x, y)


def _descriptions(clause: Any) -> list[Any]:
    return [clause.desc_move, clause.desc_fixed] if isinstance(clause, PutNextInstr) else [clause.desc]


def unpack(row: at.Row, step: int, limit: int, simulator: Any) -> None:
    """Put a Minigrid environment of the same level into the state of `row`, after `step` of `limit` steps."""
    stride = int(row[at.STRIDE])
    width = stride - 2 * at.MARGIN
    things = [_thing(int(code)) for code in row[at.CODE : at.CODE + row[at.COUNT]]]
    for number, thing in enumerate(things):
        if row[at.CONTAINS + number] != at.NONE:
            thing.contains = things[row[at.CONTAINS + number]]
        thing.cur_pos = _place(row, int(row[at.POSITION + number]))
    simulator.num_cols = (width - 1) // (simulator.room_size - 1)
    simulator.width = width = simulator.num_cols * (simulator.room_size - 1) + 1
    height = simulator.num_rows * (simulator.room_size - 1) + 1
    RoomGrid._gen_grid(simulator, width, height)
    for y in range(height):
        for x in range(width):
            cell = int(row[at.MAP + at.cell_at(row, x, y)])
            simulator.grid.set(x, y, things[cell // at.THING - 1] if cell >= at.THING else _thing(cell))
    simulator.agent_pos, simulator.agent_dir = _place(row, int(row[at.AT])), int(row[at.DIRECTION])
    simulator.carrying = None if row[at.CARRYING] == at.NONE else things[row[at.CARRYING]]
    simulator.step_count, simulator.max_steps = step, limit
    simulator.instrs = _unpack_mission(row, things, simulator)


def _unpack_mission(row: at.Row, things: list[Any], simulator: Any) -> Any:
    groups = []
    for first in (0, 2):
        clauses = [_unpack_clause(row, c, things) for c in (first, first + 1) if row[at.VERB + c] != at.NO_VERB]
        if len(clauses) == 2:
            both: Any = AndInstr(*clauses)
            both.a_done, both.b_done = (
                "success" if done else False for done in row[at.DONE + first : at.DONE + first + 2]
            )
            clauses = [both]
        groups += clauses
    mission = groups[0]
    if row[at.LINK] != at.ALONE:
        order: Any = BeforeInstr if row[at.LINK] == at.THEN else AfterInstr
        mission = order(*groups, strict=bool(row[at.STRICT] & at.STRICT_ORDER))
        done: Any = "success" if row[at.ORDER] else False
        mission.a_done, mission.b_done = (done, False) if row[at.LINK] == at.THEN else (False, done)
    _set_environment(mission, simulator)
    return mission


def _unpack_clause(row: at.Row, c: int, things: list[Any]) -> Any:
    instruction = _INSTRUCTIONS[int(row[at.VERB + c])]
    meant = [_description(row, d, things) for d in range(2 * c, 2 * c + (2 if instruction is PutNextInstr else 1))]
    clause = instruction(*meant)
    if instruction is not GoToInstr:
        clause.strict = bool(row[at.STRICT] >> c & 1)
    clause.preCarrying = None if row[at.PREVIOUS + c] == at.NONE else things[row[at.PREVIOUS + c]]
    return clause


def _description(row: at.Row, d: int, things: list[Any]) -> Any:
    noun, colour, place, _ = at.described(int(row[at.DESCRIPTION + d]))
    meant = ObjDesc(
        None if noun == at.ANY_NOUN else at.NOUNS[noun],
        None if colour == at.ANY_COLOUR else COLOURS[colour],
        _PLACE_NAMES[place],
    )
    for number, thing in enumerate(things):
        if row[at.MEMBER + number] >> d & 1:
            meant.obj_set.append(thing)
            if row[at.KNOWN + number] != at.NOWHERE:
                meant.obj_poss.append(_place(row, int(row[at.KNOWN + number])))
    return meant


def _set_environment(instruction: Any, simulator: Any) -> None:
    instruction.env = simulator
    for part in ("instr_a", "instr_b"):
        if hasattr(instruction, part):
            _set_environment(getattr(instruction, part), simulator)


def _place(row: at.Row, position: int) -> Any:
    """Map index -> (x, y) as Minigrid has it."""
    if position == at.NOWHERE:
        return np.array([-1, -1])
    y, x = divmod(position, int(row[at.STRIDE]))
    return (x - at.MARGIN, y - at.MARGIN)


def _thing(code: int) -> Any:
    """A new Minigrid object for a code, None for an empty cell."""
    kind, colour, state = TRIPLE[code].tolist()
    return None if kind == EMPTY else WorldObj.decode(kind, colour, state)
