"""Actions, and whether the mission is accomplished: Minigrid's `step` and BabyAI's verifier over rows.

    action ──> agent, map, things ──> KNOWN ──> clauses ──> groups ──> mission ──> reward, terminated, truncated

Equal to Minigrid 3.2 in its corners too:

* The verifier's positions (KNOWN) are renewed after a drop action only. A ball that was picked up still counts as "gone
  to" where it lay, until something is dropped.
* A clause remembers what was carried when it was last looked at (PREVIOUS), and it is looked at only while its turn
  lasts: what was in the agent's hands before that does not count as carried.
* A failure inside "a and b" is forgotten; elsewhere it ends the episode without reward.

A step costs about 20 ns a world, most of it waiting for the row to come from memory.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from envs.babyai.symbols import CODES, DOOR, EMPTY, EMPTY_CODE, OBJECTS, STATES, TRIPLE
from envs.compiler import compiled
from envs.native.babyai.layout import (
    AFTER,
    ALONE,
    AT,
    CARRYING,
    CLAUSES,
    CODE,
    CONTAINS,
    COUNT,
    DIRECTION,
    DONE,
    GO_TO,
    KNOWN,
    LINK,
    MAP,
    MEMBER,
    NO_VERB,
    NONE,
    NOWHERE,
    OPEN,
    ORDER,
    PICK_UP,
    POSITION,
    PREVIOUS,
    STRICT,
    STRICT_ORDER,
    STRIDE,
    THING,
    VERB,
    Row,
    Rows,
    ahead,
)

LEFT, RIGHT, FORWARD, PICK, DROP, TOGGLE, IDLE = range(7)
GOES_ON, ACCOMPLISHED, FAILED = 0, 1, 2

_KEY, _BOX = OBJECTS.index("key"), OBJECTS.index("box")
_OPEN_STATE, _LOCKED_STATE = STATES.index("open"), STATES.index("locked")

_KIND: NDArray[np.uint8] = TRIPLE[:, 0].copy()
_COLOUR: NDArray[np.uint8] = TRIPLE[:, 1].copy()
_STATE: NDArray[np.uint8] = TRIPLE[:, 2].copy()
_PASSABLE: NDArray[np.bool_] = (_KIND == EMPTY) | ((_KIND == DOOR) & (_STATE == _OPEN_STATE))
_PORTABLE: NDArray[np.bool_] = (_KIND >= _KEY) & (_KIND <= _BOX)
assert _BOX - _KEY == 2, "keys, balls and boxes follow each other"
assert CODES <= THING, "a code fits below a thing"


@compiled
def act(row: Row, action: int) -> None:
    """Do one of Minigrid's actions in the world `row`."""
    if action == LEFT:
        row[DIRECTION] = (row[DIRECTION] + 3) % 4
        return
    if action == RIGHT:
        row[DIRECTION] = (row[DIRECTION] + 1) % 4
        return
    if action == IDLE:
        return
    front = ahead(row)
    cell = row[MAP + front]
    code = cell % THING
    thing = cell // THING - 1
    carrying = row[CARRYING]
    if action == FORWARD:
        if _PASSABLE[code]:
            row[AT] = front
    elif action == PICK:
        if _PORTABLE[code] and carrying == NONE:
            row[CARRYING] = thing
            row[POSITION + thing] = NOWHERE
            row[MAP + front] = EMPTY_CODE
    elif action == DROP:
        if cell == EMPTY_CODE and carrying != NONE:
            row[CARRYING] = NONE
            _put(row, carrying, front)
    elif action == TOGGLE:
        if _KIND[code] == DOOR:
            _toggle_door(row, thing, code, carrying)
        elif _KIND[code] == _BOX:
            row[POSITION + thing] = NOWHERE
            row[MAP + front] = EMPTY_CODE
            if row[CONTAINS + thing] != NONE:
                _put(row, row[CONTAINS + thing], front)


@compiled
def _put(row: Row, thing: int, position: int) -> None:
    row[POSITION + thing] = position
    row[MAP + position] = row[CODE + thing] + THING * (thing + 1)


@compiled
def _toggle_door(row: Row, door: int, code: int, carrying: int) -> None:
    if _STATE[code] == _LOCKED_STATE:
        if carrying == NONE:
            return
        key = row[CODE + carrying]
        if _KIND[key] != _KEY or _COLOUR[key] != _COLOUR[code]:
            return
    closed = code - _STATE[code] + 1
    row[CODE + door] = closed if _STATE[code] == _OPEN_STATE else closed - 1
    _put(row, door, row[POSITION + door])


@compiled
def verify(row: Row, action: int) -> int:
    """What the mission says of the world after `action`: GOES_ON, ACCOMPLISHED or FAILED."""
    if action == DROP:
        for thing in range(row[COUNT]):
            row[KNOWN + thing] = row[POSITION + thing]
    if row[LINK] == ALONE:
        return _group(row, 0, action)
    earlier = 1 if row[LINK] == AFTER else 0
    if not row[ORDER]:
        status = _group(row, earlier, action)
        if status == FAILED:
            return FAILED
        if status == GOES_ON:
            if row[STRICT] & STRICT_ORDER and _group(row, 1 - earlier, action) == ACCOMPLISHED:
                return FAILED
            return GOES_ON
        row[ORDER] = 1
    return _group(row, 1 - earlier, action)


@compiled
def _group(row: Row, group: int, action: int) -> int:
    """One clause, or two of which the order does not matter."""
    first = 2 * group
    if row[VERB + first + 1] == NO_VERB:
        return _clause(row, first, action)
    for clause in range(first, first + 2):
        if not row[DONE + clause] and _clause(row, clause, action) == ACCOMPLISHED:
            row[DONE + clause] = 1
    return ACCOMPLISHED if row[DONE + first] and row[DONE + first + 1] else GOES_ON


@compiled
def _clause(row: Row, clause: int, action: int) -> int:
    verb = row[VERB + clause]
    strict = row[STRICT] >> clause & 1
    meant = 1 << 2 * clause
    if verb == GO_TO:
        front = ahead(row)
        for thing in range(row[COUNT]):
            if row[MEMBER + thing] & meant and row[KNOWN + thing] == front:
                return ACCOMPLISHED
        return GOES_ON
    if verb == OPEN:
        if action != TOGGLE:
            return GOES_ON
        cell = row[MAP + ahead(row)]
        if _KIND[cell % THING] != DOOR:
            return GOES_ON
        if row[MEMBER + cell // THING - 1] & meant and _STATE[cell % THING] == _OPEN_STATE:
            return ACCOMPLISHED
        return FAILED if strict else GOES_ON
    carrying, before = row[CARRYING], row[PREVIOUS + clause]
    row[PREVIOUS + clause] = carrying
    if verb == PICK_UP:
        if action != PICK or carrying == NONE:
            return GOES_ON
        if before == NONE and row[MEMBER + carrying] & meant:
            return ACCOMPLISHED
        return FAILED if strict else GOES_ON
    if strict and action == PICK and carrying != NONE:
        return FAILED
    if action == DROP and before != NONE and row[MEMBER + before] & meant and row[POSITION + before] != NOWHERE:
        for thing in range(row[COUNT]):
            if row[MEMBER + thing] & meant << 1 and row[KNOWN + thing] != NOWHERE:
                apart = abs(row[POSITION + before] - row[KNOWN + thing])
                if apart == 1 or apart == row[STRIDE]:
                    return ACCOMPLISHED
    return GOES_ON


@compiled
def advance(
    rows: Rows,
    length: NDArray[np.int32],
    limit: NDArray[np.int32],
    actions: NDArray[np.int64],
    usable: int,
    reward: NDArray[np.float32],
    terminated: NDArray[np.bool_],
    truncated: NDArray[np.bool_],
) -> None:
    """Step every world once; nothing is reset.

    Args:
        rows: [N, K], changed in place.
        length: [N] steps already made in the running episodes.
        limit: [N] steps after which they are truncated.
        actions: [N] not negative; those from `usable` on do nothing.
        reward, terminated, truncated: [N], written.
    """
    for i in range(len(rows)):
        action = actions[i] if actions[i] < usable else IDLE
        act(rows[i], action)
        status = verify(rows[i], action)
        terminated[i] = status != GOES_ON
        truncated[i] = length[i] + 1 >= limit[i]
        reward[i] = 1 - 0.9 * ((length[i] + 1) / limit[i]) if status == ACCOMPLISHED else 0.0


@compiled
def replay(rows: Rows, length: NDArray[np.int32], log: NDArray[np.int16], usable: int) -> None:
    """Bring world i from its beginning to step `length[i]` by the actions `log[i]`, [N, T]."""
    for i in range(len(rows)):
        for t in range(length[i]):
            action = log[i, t] if log[i, t] < usable else IDLE
            act(rows[i], action)
            verify(rows[i], action)


assert CLAUSES == 4, "a clause's strictness is a bit below STRICT_ORDER"
