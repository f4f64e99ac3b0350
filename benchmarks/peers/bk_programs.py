"""Programs as Python functions, like those that language models write for BabyAI: bk's `code` row runs them.

The peer calls the functions; ours gets their source (`text_of`), so that both sides run one program. Numbers are
Minigrid's: object 2 is a wall, 4 a door, 5 a key, 6 a ball, 7 a box; colour 0 is red; action 2 goes forward. The player
stands at column 3, row 6 of the view.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from llm_service.sandbox.grammar import normalise


def nearest(observations: Any, actions: Any) -> float:
    # a red ball in view is good, the nearer the better: the example of docs/shaping.md
    best = 0.0
    now = observations[-1]
    for column in range(7):
        for row in range(7):
            cell = now[column][row]
            if cell[0] == 6 and cell[1] == 0:
                distance = abs(column - 3) + abs(row - 6)
                best = max(best, 1.0 - distance / 10)
    return best


def rules(observations: Any, actions: Any) -> float:
    # three of the rules that the scripted backend writes
    view = observations[-1]
    near = max(
        (
            1 - (abs(x - len(view) // 2) + len(column) - 1 - y) / (len(view) + len(column))
            for x, column in enumerate(view)
            for y, cell in enumerate(column)
            if cell[0] in (4, 5, 6, 7)
        ),
        default=0,
    )
    new = sum(1 for i in range(1, len(observations)) if observations[i] not in observations[:i])
    idle = sum(
        1
        for before, now, action in zip(observations, observations[1:], actions)  # noqa: B905 - as it is written
        if action >= 0 and before == now
    )
    return 0.4 * near + 0.4 * new / len(actions) + -0.5 * idle / len(actions)


def first_thing(observations: Any, actions: Any) -> float:
    # searches, and returns at the first object found: later iterations do not run
    now = observations[-1]
    for age, view in enumerate(observations[::-1]):
        for x, column in enumerate(view):
            for y, cell in enumerate(column):
                if cell[0] in (5, 6, 7):
                    distance = abs(x - 3) + abs(y - 6)
                    return 1.0 / (1 + distance) - 0.1 * age
    if now[3][5][0] == 2:
        return -0.2
    return 0.0


def approach(observations: Any, actions: Any) -> float:
    # how much nearer the nearest object has come from view to view
    previous, gained = 99, 0.0
    for view in observations:
        closest = 99
        for x in range(7):
            for y in range(7):
                if view[x][y][0] in (5, 6, 7):
                    distance = abs(x - 3) + abs(y - 6)
                    if distance < closest:
                        closest = distance
        if closest < previous:
            gained += 0.25
        elif closest > previous:
            gained -= 0.25
        previous = closest
    return gained


def conduct(observations: Any, actions: Any) -> float:
    # a sum of terms, like a typical reward: walking pays, bumping and turning on the spot do not, new views do
    forward, bumps, turns = 0, 0, 0
    for i in range(len(actions)):
        if actions[i] == 2:
            if observations[i] == observations[i + 1]:
                bumps += 1
            else:
                forward += 1
        elif actions[i] in (0, 1):
            turns += 1
    counts = [sum(1 for column in view for cell in column if cell[0] in (4, 5, 6, 7)) for view in observations]
    sights = counts[-1] - min(counts)
    blocked = 1.0 if observations[-1][3][5][0] == 2 else 0.0
    return 0.2 * forward - 0.3 * bumps - 0.05 * turns + 0.1 * sights - 0.1 * blocked


Written = Callable[[Any, Any], float]

PROGRAMS: tuple[Written, ...] = (nearest, rules, first_thing, approach, conduct)


def text_of(function: Written) -> str:
    """The function's source, in the form that the sandbox takes."""
    _, _, body = inspect.getsource(function).partition("\n")
    return normalise(f"def potential(observations, actions):\n{body}")
