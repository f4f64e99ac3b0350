"""The cost of captions around Minigrid: a plain Python walk over the cells that the agent sees.

The published text version of BabyAI computes the agent's view once more for its captions, encodes it, and loops over
its 49 cells. This module does the same without an image. Given the image that the last step returned, it reads that.
"""

from __future__ import annotations

from typing import Any

from minigrid.core.constants import IDX_TO_COLOR, IDX_TO_OBJECT

WALL, DOOR = 2, 4
FIRST_THING, LAST_THING = 3, 9
STATES = ("open", "closed", "locked")


def captions_of(simulator: Any, obs: Any) -> list[str]:
    """Sentences that describe what the agent of a Minigrid env sees.

    Args:
        simulator: the env, stepped or reset just now.
        obs: the observation that it returned; None: compute the view again.
    """
    if obs is None:
        grid, visible = simulator.gen_obs_grid()
        image = grid.encode(visible)
    else:
        image = obs["image"]
    cells = image.tolist()
    said = []
    kind, colour, _ = cells[3][6]
    if FIRST_THING <= kind <= LAST_THING:
        said.append(f"You carry a {IDX_TO_COLOR[colour]} {IDX_TO_OBJECT[kind]}")
    ways = (
        ("forward", [(3, row) for row in range(5, -1, -1)]),
        ("left", [(column, 6) for column in (2, 1, 0)]),
        ("right", [(column, 6) for column in (4, 5, 6)]),
    )
    for way, path in ways:
        for distance, (column, row) in enumerate(path, start=1):
            kind = cells[column][row][0]
            if kind >= WALL:
                if kind == WALL:
                    said.append(f"You see a wall {_steps(distance)} {way}")
                break
    for column in range(7):
        for row in range(7):
            kind, colour, state = cells[column][row]
            if FIRST_THING <= kind <= LAST_THING and (column, row) != (3, 6):
                thing = f"{IDX_TO_COLOR[colour]} {IDX_TO_OBJECT[kind]}"
                if kind == DOOR:
                    thing = f"{STATES[state]} {thing}"
                places = []
                if column != 3:
                    places.append(f"{_steps(abs(column - 3))} {'left' if column < 3 else 'right'}")
                if row != 6:
                    places.append(f"{_steps(6 - row)} forward")
                said.append(f"You see a {thing} {' and '.join(places)}")
    return said


def _steps(number: int) -> str:
    return f"{number} step{'s' if number > 1 else ''}"
