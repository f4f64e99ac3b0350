"""Players in habitat-sim: what they do is asked of their processes, what they see and hold is written into our arrays.

    actions ──> act, or aim ──> checks of the hand, as published ──> lift or drop ──> pose, ids ──> State, Pictures

Pictures are taken after an action's effect; the published ones of a grip show the moment before. x of a player is that
of habitat-sim and y its -z, so that a turn to the left is one from x to y, as in our own houses.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.housekeep.habitat.children import LOAD_SECONDS, STEP_SECONDS, UNTRIED, Answer, Children, HabitatEnded
from envs.native.housekeep import hands
from envs.native.housekeep.layout import HEADINGS, NOWHERE, OBJECT, REACH, TILT, TILTS, Houses, State
from envs.native.housekeep.lens import KINDS, palette
from envs.native.housekeep.motion import GRAB_RELEASE
from envs.native.housekeep.pictures import Pictures

FRAME = 256
"""Pixels of a side of a picture for people, at least."""
_SHADE, _EMPTY = 6, (90, 90, 96)

Index = NDArray[np.intp]


class Habitat:
    """N players, each in its own process with the same house.

    Args:
        children: N processes.
        scene: what they load, as `scene.scene` makes it.
        houses: the row that belongs to it.
        see_through: whether hands reach through walls.

    Raises:
        HabitatEnded: a process ended.
    """

    def __init__(self, children: Children, scene: dict[str, Any], houses: Houses, see_through: bool) -> None:
        self._children, self._houses, self._see_through = children, houses, see_through
        everyone = range(len(children.processes))
        wanted = [*range(1, len(scene["pieces"]) + 1), *range(OBJECT, OBJECT + len(scene["objects"]))]
        loaded = children.ask({i: {"do": "load", **scene} for i in everyone}, LOAD_SECONDS)
        for i, (header, _) in loaded.items():
            if header["instances"] != wanted:
                children.end()
                raise HabitatEnded(f"player {i} has other instances than its scene: {header['instances']}; {UNTRIED}")

    def begin(self, state: State, pictures: Pictures, index: Index) -> None:
        """See `envs.housekeep.engines.Engine`."""
        objects = int(self._houses.objects[0])
        state.holding[index], state.place[index], state.slot[index], state.on[index] = NOWHERE, 0, NOWHERE, NOWHERE
        state.place[index, :objects] = self._houses.lies[0, :objects]
        state.known[index], state.met[index] = 0, 0
        state.outcome[index], state.target[index] = hands.NONE, (NOWHERE, 0)
        for i, answer in self._ask({i: {"do": "reset"} for i in index.tolist()}).items():
            _note(state, pictures, i, answer)

    def advance(self, state: State, pictures: Pictures, index: Index, actions: NDArray[np.int64]) -> None:
        """See `envs.housekeep.engines.Engine`.

        Raises:
            HabitatEnded: a process ended.
        """
        state.outcome[index], state.target[index] = hands.NONE, (NOWHERE, 0)
        aim = {"do": "aim", "reach": REACH, "see_through": self._see_through}
        chosen = dict(zip(index.tolist(), actions.tolist(), strict=True))
        asked = {i: aim if action == GRAB_RELEASE else {"do": "act", "action": action} for i, action in chosen.items()}
        grips = {}
        for i, answer in self._ask(asked).items():
            if chosen[i] != GRAB_RELEASE:
                _note(state, pictures, i, answer)
            elif grip := self._grip(state, i, answer):
                grips[i] = grip
        for i, answer in self._ask(grips).items():
            _note(state, pictures, i, answer)
            _handled(state, i, grips[i], answer[0].get("room", True))

    def _ask(self, requests: dict[int, dict[str, Any]]) -> dict[int, Answer]:
        return self._children.ask(requests, STEP_SECONDS)

    def _grip(self, state: State, i: int, answer: Answer) -> dict[str, Any] | None:
        """What to do with the object in the middle of the picture or in the hand; None if the grip fails."""
        instance, metres = answer[0]["instance"], answer[1]["metres"]
        held, k = int(state.holding[i]), instance - OBJECT
        piece = instance if k < 0 else int(state.place[i, k])
        if instance == 0:
            state.outcome[i] = hands.NOTHING_THERE
        elif k == held:
            state.outcome[i] = hands.IN_HAND
        elif min(metres[instance], metres[piece]) > REACH:
            state.outcome[i] = hands.FAR
        elif k < 0 and held == NOWHERE:
            state.outcome[i] = hands.HAND_EMPTY
        elif k >= 0 and held != NOWHERE:
            state.outcome[i] = hands.HAND_FULL
        elif not (_bit(state.visible[i], piece) or (k >= 0 and int(state.seen[i]) >> k & 1)):
            state.outcome[i] = hands.HIDDEN
        elif k >= 0:
            return {"do": "lift", "object": instance}
        else:
            return {"do": "drop", "object": OBJECT + held, "piece": piece}
        return None

    def frame(self, state: State, pictures: Pictures, i: int, right: NDArray[np.bool_]) -> NDArray[np.uint8]:
        """What the player sees: in colour if that is observed, else a colour for each kind of thing."""
        seen = pictures.rgb[i] if len(pictures.rgb) else self._painted(pictures.ids[i])
        times = max(1, FRAME // len(seen))
        return np.ascontiguousarray(seen.repeat(times, 0).repeat(times, 1))

    def _painted(self, ids: NDArray[np.uint8]) -> NDArray[np.uint8]:
        colours = np.zeros((256, 3), np.uint8)
        pieces, objects = int(self._houses.pieces[0]), int(self._houses.objects[0])
        colours[0] = _EMPTY
        colours[1 : pieces + 1] = palette()[self._houses.name[0, 1 : pieces + 1] % KINDS, _SHADE]
        colours[OBJECT : OBJECT + objects] = palette()[KINDS + self._houses.object[0, :objects], _SHADE]
        return colours[ids]

    def close(self) -> None:
        """End the processes."""
        self._children.end()


def _handled(state: State, i: int, grip: dict[str, Any], room: bool) -> None:
    """Player i has gripped or released an object, or found no room for it."""
    k = grip["object"] - OBJECT
    if grip["do"] == "lift":
        state.outcome[i], state.target[i] = hands.PICKED, (k, state.place[i, k])
        state.place[i, k], state.holding[i] = 0, k
    elif room:
        state.outcome[i], state.target[i] = hands.DROPPED, (k, grip["piece"])
        state.place[i, k], state.holding[i] = grip["piece"], NOWHERE
    else:
        state.outcome[i] = hands.NO_ROOM


def _note(state: State, pictures: Pictures, i: int, answer: Answer) -> None:
    """Where player i is and what it sees now."""
    header, arrays = answer
    state.x[i], state.y[i] = header["position"][0], -header["position"][2]
    state.heading[i], state.tilt[i] = direction(header["rotation"])
    pictures.ids[i] = arrays["ids"]
    if len(pictures.rgb):
        pictures.rgb[i] = arrays["rgb"]
    there = np.bincount(arrays["ids"].reshape(-1), minlength=256) > 0
    there[0] = False
    state.visible[i] = np.packbits(there[:OBJECT], bitorder="little").view(np.uint64)
    state.seen[i] = np.packbits(there[OBJECT : OBJECT + 16], bitorder="little").view(np.uint16)[0]
    state.known[i] |= state.visible[i]
    state.met[i] |= state.seen[i]


def direction(rotation: list[float]) -> tuple[int, int]:
    """Heading and tilt, as our arrays number them, of a camera with the rotation x, y, z, w: the nearest there are."""
    x, y, z, w = rotation
    right, up, back = -2 * (x * z + w * y), -2 * (y * z - w * x), -1 + 2 * (x * x + y * y)
    heading = (
        math.floor(math.atan2(-back, right) / math.tau * HEADINGS + 0.5 + 1e-6) % HEADINGS
    )  # between two: the left
    tilt = round(math.degrees(math.asin(min(1.0, max(-1.0, up)))) / TILT)
    return heading, min(TILTS, max(-TILTS, tilt))


def _bit(words: NDArray[np.uint64], n: int) -> bool:
    return bool(int(words[n >> 6]) >> (n & 63) & 1)
