"""One step of a robot with two wheels, two bumpers and three lasers.

    action ──> clip ──> move ──> touches? ── yes: back, but turned; which bumper ──┐
                                         └── no ───────────────────────────────────┴──> three lasers ──> observation

The robot of the navigation task of Salehi and Doncieux (2023, arXiv 2308.13278), bit for bit: its state is float32 and
its trigonometry float64, and what is rounded where decides which pixel a laser ends in, so casts are written out and
their order matters. y grows downwards, and angles with it: positive is clockwise on the picture.

A step costs 0.22 us on one core of 2.6 GHz, half of it the three rays. They jump over free squares (`Floor.clear`), 2.2
jumps instead of 10 to 30 pixels on average; what is left is the processor guessing wrong where a ray will end.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from envs.compiler import compiled
from envs.native.navigation.floor import MARGIN, RADIUS, REACH, Floor

FASTEST = np.float32(4)  # world units a step that a wheel moves at most
X, Y, HEADING = range(3)  # columns of a pose
SENSORS, LEFT_BUMPER, RIGHT_BUMPER = 5, 3, 4  # columns of an observation; the first are lasers at +45, 0, -45 degrees

_AXLE, _HALF_AXLE = np.float32(2 * RADIUS), np.float32(RADIUS)
_RADIUS, _MARGIN, _BOX = np.float32(RADIUS), np.float32(MARGIN), np.float32(2 * (RADIUS + MARGIN))
_REACH = np.float32(REACH)
_STRAIGHT = 1e-10  # turns below this are none
_EIGHTH = np.float32(math.pi / 4)
_ROOT = math.sqrt(0.5)
_PI, _TURN, _QUARTER = math.pi, 2 * math.pi, math.pi / 2


@compiled
def pixel(value: np.float32, scale: np.float32) -> int:
    """The pixel of a coordinate: the nearest, half away from zero."""
    place = np.float64(np.float32(value * scale))
    return int(place + 0.5) if place >= 0 else -int(0.5 - place)


@compiled
def wrapped(angle: np.float32) -> np.float32:
    """The same angle within [-pi, pi]."""
    while angle > _PI:
        angle = np.float32(angle - _TURN)
    while angle < -_PI:
        angle = np.float32(angle + _TURN)
    return angle


@compiled
def _clipped(speed: np.float32) -> np.float32:
    """Within [-FASTEST, FASTEST], whatever it is: what is not a number would lead out of the tables."""
    if not speed > -FASTEST:
        return -FASTEST
    return min(speed, FASTEST)


@compiled
def start(floor: Floor, poses: NDArray[np.float32], sensors: NDArray[np.float32], i: int) -> None:
    """Robot i begins where `poses[i]` says: its angle is wrapped, and it looks around."""
    poses[i, HEADING] = wrapped(poses[i, HEADING])
    sensors[i, LEFT_BUMPER] = sensors[i, RIGHT_BUMPER] = 0
    _look(floor, poses, sensors, i)


@compiled
def step(
    floor: Floor, poses: NDArray[np.float32], sensors: NDArray[np.float32], i: int, left: np.float32, right: np.float32
) -> None:
    """Move robot i once and let it look; rows i of both arrays are changed.

    Args:
        poses: [N, 3] x, y, heading.
        sensors: [N, 5] lasers at +45, 0 and -45 degrees, left and right bumper.
        left, right: how far each wheel moves, world units; clipped to [-4, 4].
    """
    left, right = _clipped(left), _clipped(right)
    x, y, heading = poses[i, X], poses[i, Y], poses[i, HEADING]
    turn = np.float32(np.float32(right - left) / _AXLE)
    if abs(turn) > _STRAIGHT:
        rho = np.float64(np.float32(np.float32(left / turn) + _HALF_AXLE))
        angle = np.float64(turn)
        dx, dy = (math.cos(angle) - 1) * rho, math.sin(angle) * rho
        angle = np.float64(np.float32(np.float64(heading) - _QUARTER))
        c, s = math.cos(angle), math.sin(angle)
        x, y = np.float32(x + np.float32(c * dx - s * dy)), np.float32(y + np.float32(s * dx + c * dy))
        heading = wrapped(np.float32(heading + turn))
    else:
        angle, far = np.float64(heading), np.float64(left)
        x, y = np.float32(x + np.float32(math.cos(angle) * far)), np.float32(y + np.float32(math.sin(angle) * far))
    sensors[i, LEFT_BUMPER] = sensors[i, RIGHT_BUMPER] = 0
    free = not floor.touching[pixel(y, floor.scale) * floor.width + pixel(x, floor.scale)]
    if free or not _touch(floor, x, y, heading, sensors, i):
        poses[i, X], poses[i, Y] = x, y
    poses[i, HEADING] = heading
    _look(floor, poses, sensors, i)


@compiled
def _touch(
    floor: Floor, x: np.float32, y: np.float32, heading: np.float32, sensors: NDArray[np.float32], i: int
) -> bool:
    """Whether a wall is within the radius; which bumpers it presses goes to row i of `sensors`."""
    clear, disc, bearings = floor.clear, floor.disc, floor.bearings
    width, height, scale = floor.width, floor.height, floor.scale
    column, row = pixel(x, scale), pixel(y, scale)
    # The search box is wider than the disc, except on maps of very large pixels.
    x0, y0 = np.float32(np.float32(x - _RADIUS) - _MARGIN), np.float32(np.float32(y - _RADIUS) - _MARGIN)
    first, top = pixel(x0, scale), pixel(y0, scale)
    last, bottom = pixel(np.float32(x0 + _BOX), scale), pixel(np.float32(y0 + _BOX), scale)
    touched = False
    for k in range(len(disc)):
        px, py = column + disc[k, 0], row + disc[k, 1]
        if px < first or px >= last or py < top or py >= bottom:
            continue
        if 0 <= px < width and 0 <= py < height and clear[py * width + px]:
            continue
        touched = True
        bearing = bearings[k] - np.float64(heading)
        if bearing > _PI:
            bearing -= _TURN
        elif bearing < -_PI:
            bearing += _TURN
        if 0 < bearing < _QUARTER:
            sensors[i, RIGHT_BUMPER] = 1
        elif -_QUARTER < bearing < 0:
            sensors[i, LEFT_BUMPER] = 1
    return touched


@compiled
def _look(floor: Floor, poses: NDArray[np.float32], sensors: NDArray[np.float32], i: int) -> None:
    """Measure all three lasers of robot i. Their ends are first reckoned from one sine and one cosine."""
    x, y, heading = poses[i, X], poses[i, Y], poses[i, HEADING]
    clear, width, size, scale = floor.clear, floor.width, floor.width * floor.height, floor.scale
    c, s, reach = math.cos(np.float64(heading)), math.sin(np.float64(heading)), REACH * np.float64(scale)
    across, along = (c - s) * _ROOT * reach, (c + s) * _ROOT * reach
    x_here, y_here = pixel(x, scale), pixel(y, scale)
    for laser in range(3):
        if laser == 0:
            direction, dx, dy = np.float32(heading + _EIGHTH), across, along
        elif laser == 1:
            direction, dx, dy = heading, c * reach, s * reach
        else:
            direction, dx, dy = np.float32(heading - _EIGHTH), along, -across
        x_end, y_end = np.float64(x) * scale + dx, np.float64(y) * scale + dy
        column, row = math.floor(x_end + 0.5), math.floor(y_end + 0.5)
        if max(abs(x_end - column), abs(y_end - row)) > 0.5 - floor.doubt:
            angle = np.float64(direction)  # in doubt, as the published simulator does
            column = pixel(np.float32(x + np.float32(np.float32(math.cos(angle)) * _REACH)), scale)
            row = pixel(np.float32(y + np.float32(np.float32(math.sin(angle)) * _REACH)), scale)
        hit, column, row = _ray(clear, width, size, x_here, y_here, column, row)
        sensors[i, laser] = _REACH
        if hit:
            far_x = np.float32(x - np.float32(np.float32(column) / scale))
            far_y = np.float32(y - np.float32(np.float32(row) / scale))
            far = np.float32(math.sqrt(np.float32(np.float32(far_x * far_x) + np.float32(far_y * far_y))))
            sensors[i, laser] = min(far, _REACH)


@compiled
def _ray(
    clear: NDArray[np.uint8], width: int, size: int, x: int, y: int, x_end: int, y_end: int
) -> tuple[bool, int, int]:
    """Whether the line from one pixel to another meets a wall, and the pixel where.

    A supercover line (Dedu 2001): Bresenham's, and a step that changes both coordinates also tests the pixel beside the
    corner that the line crosses, both if it goes through the corner itself. What is returned is where the line had got
    to, not which of these was a wall. `error` is the usual one, in [1, whole]; after k steps it has grown by k * rise,
    less `whole` for each sidestep, so k free steps are one division.
    """
    dx, dy = x_end - x, y_end - y
    table = ((2 if dy < 0 else 0) + (1 if dx < 0 else 0)) * size
    at = table + y * width + x
    right, down = -1 if dx < 0 else 1, -1 if dy < 0 else 1
    level = abs(dx) > abs(dy)
    along, beside = (right, down * width) if level else (down * width, right)
    steps, rise = (abs(dx), abs(dy)) if level else (abs(dy), abs(dx))
    whole, rise, error = 2 * steps, 2 * rise, steps
    walked, aside = 0, 0
    # How far it may go before the next wall that it could meet; not 0, as a robot's centre is never in a wall.
    jump: int = np.int64(clear[at])  # type: ignore[assignment]
    while walked + jump <= steps:
        # jump - 1 steps over pixels that are free, and one that is tested
        error += (jump - 1) * rise
        drift = (error - 1) // whole if jump > 1 else 0
        before = error - drift * whole
        error = before + rise
        turns = error > whole
        if turns:
            error -= whole
            drift += 1
        at += jump * along + drift * beside
        walked += jump
        aside += drift
        jump = np.int64(clear[at])  # type: ignore[assignment]
        hit = jump == 0
        if turns and not hit:
            both = error + before
            hit = (both <= whole and clear[at - beside] == 0) or (both >= whole and clear[at - along] == 0)
        if hit:
            if level:
                return True, x + walked * right, y + aside * down
            return True, x + aside * right, y + walked * down
    return False, x_end, y_end
