"""How long the rest takes, by the speed of late.

    progress at points in time ──> the last minute of them ──> seconds left, None while there is nothing to tell from

What comes before the first update says nothing about the others: roles start, networks are compiled, a replay fills. So
time counts from the first update on, and a slow minute is forgotten a minute later.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

WINDOW_S = 60.0
"""Seconds whose speed is taken for that of the rest."""
SURE_S = 5.0
"""Seconds before which nothing is said: chunks that waited for the first update are learned from all at once."""


class Pace:
    """Tells the time left from what was done when.

    Args:
        total: of whatever is counted.
        clock: seconds, from any beginning.
    """

    def __init__(self, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._total, self._clock = total, clock
        self._points: deque[tuple[float, int]] = deque()

    def reached(self, count: int, warm: bool = True) -> None:
        """So much of `total` is done now.

        warm: False while what is done is not what the rest is made of: time does not count yet.
        """
        if not warm or (self._points and count < self._points[-1][1]):
            self._points.clear()
        if not warm:
            return
        self._points.append((self._clock(), count))
        while len(self._points) > 2 and self._points[-1][0] - self._points[1][0] >= WINDOW_S:
            self._points.popleft()

    @property
    def left(self) -> float | None:
        """Seconds until `total` is reached, as of the last point; None if nothing can be said yet."""
        if not self._points:
            return None
        (began, first), (now, last) = self._points[0], self._points[-1]
        if last >= self._total:
            return 0.0
        if now - began < SURE_S or last == first:
            return None
        return (self._total - last) * (now - began) / (last - first)


def duration(seconds: float | None) -> str:
    """Seconds in words, `-` if nobody knows."""
    if seconds is None:
        return "-"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
