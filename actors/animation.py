"""Episodes as animations: the world's own pictures, and under them the goals and what was done.

A format of 1989 is made small by what stays the same from frame to frame. So all frames of an episode share a palette,
nothing is dithered, and small pictures are enlarged by whole numbers: a pixel that does not change is not stored again.
"""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

WIDTH = 192  # pixels; with captions a third more, or words would not fit
LONGEST = 100  # frames; of a longer episode every second is kept, or every third, ..., and all that are notable
MILLISECONDS = 180
REST = 1500  # of the last frame
FONT = 11  # pixels
COLUMNS, LINES = 42, 4  # of a caption
INK, PAPER, MARK = (34, 34, 34), (250, 250, 247), (0, 110, 60)
COLOURS = 56  # of the pictures; words have their own
SHADES = 4  # of ink on paper: letters have soft edges
SAMPLES = 16  # pictures that decide on the colours


@dataclass
class Animation:
    """One episode while it is played."""

    mission: str  # what it is about
    captioned: bool = False  # leave room for words under the pictures
    frames: list[tuple[NDArray[np.uint8], Sequence[str], str]] = field(default_factory=list)

    def add(self, picture: NDArray[np.uint8], goals: Sequence[str] = (), reached: str = "") -> None:
        """The next picture uint8 [H, W, 3], the goals that stand now, and the goal that was just reached, if any."""
        self.frames.append((picture, goals, reached))

    def gif(self) -> bytes:
        """An endless animation that rests on its last frame."""
        stride = math.ceil(len(self.frames) / LONGEST)
        last = len(self.frames) - 1
        kept = [frame for i, frame in enumerate(self.frames) if i % stride == 0 or i == last or frame[2]]
        drawn = [self._drawn(*frame) for frame in kept]
        palette = _palette([picture for picture, _, _ in kept])
        pictures = [page.quantize(palette=palette, dither=Image.Dither.NONE) for page in drawn]
        durations = [4 * MILLISECONDS if reached else MILLISECONDS for _, _, reached in kept[:-1]] + [REST]
        buffer = io.BytesIO()
        pictures[0].save(
            buffer, "GIF", save_all=True, append_images=pictures[1:], duration=durations, loop=0, optimize=True
        )
        return buffer.getvalue()

    def _drawn(self, picture: NDArray[np.uint8], goals: Sequence[str], reached: str) -> Image.Image:
        drawn = _sized(Image.fromarray(picture), WIDTH * 4 // 3 if self.captioned else WIDTH)
        if not self.captioned:
            return drawn
        page = Image.new("RGB", (drawn.width, drawn.height + (LINES + 1) * (FONT + 3) + 6), PAPER)
        page.paste(drawn)
        write, y = ImageDraw.Draw(page), drawn.height + 3
        told = f"goals: {', '.join(goals) or 'none'}"
        for line in textwrap.wrap(told, COLUMNS, max_lines=LINES, placeholder=" ..."):
            write.text((4, y), line, INK, _font())
            y += FONT + 3
        if reached:
            write.text((4, page.height - FONT - 6), f"reached: {reached}", MARK, _font())
        return page


def _sized(picture: Image.Image, width: int) -> Image.Image:
    """About `width` wide: enlarged by a whole number, which keeps pixels square and sharp, or else made smaller."""
    if picture.width <= width:
        times = width // picture.width
        return picture.resize((times * picture.width, times * picture.height), Image.Resampling.NEAREST)
    return picture.resize((width, max(1, round(width * picture.height / picture.width))), Image.Resampling.LANCZOS)


def _palette(pictures: Sequence[NDArray[np.uint8]]) -> Image.Image:
    """The colours of an animation: the most telling of some of its pictures, and those of words."""
    some = pictures[:: math.ceil(len(pictures) / SAMPLES)]
    found = Image.fromarray(np.concatenate(some)).quantize(COLOURS, dither=Image.Dither.NONE).getpalette() or []
    shares = np.linspace(0, 1, SHADES)[:, None]
    words = [np.array(PAPER) * (1 - shares) + np.array(ink) * shares for ink in (INK, MARK)]
    palette = Image.new("P", (1, 1))
    palette.putpalette([*found[: 3 * COLOURS], *np.concatenate(words).round().astype(int).ravel().tolist()])
    return palette


@cache
def _font() -> Any:
    return ImageFont.load_default(FONT)
