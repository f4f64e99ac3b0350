"""Episodes as animations: the world's own pictures, and under them the goals and what was done."""

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

WIDTH = 192  # pixels; with captions a third more, or words would not fit
LONGEST = 160  # frames; of a longer episode every second is kept, or every third, ..., and all that are notable
MILLISECONDS = 180
REST = 1500  # of the last frame
FONT = 11  # pixels
COLUMNS, LINES = 42, 4  # of a caption
INK, PAPER, MARK = (34, 34, 34), (250, 250, 247), (0, 110, 60)


@dataclass
class Film:
    """One episode while it is played.

    Args:
        mission: what it is about.
        captioned: leave room for words under the pictures.
    """

    mission: str
    captioned: bool = False
    frames: list[tuple[NDArray[np.uint8], Sequence[str], str]] = field(default_factory=list)

    def add(self, picture: NDArray[np.uint8], goals: Sequence[str] = (), reached: str = "") -> None:
        """The next picture uint8 [H, W, 3], the goals that stand now, and the goal that was just reached, if any."""
        self.frames.append((picture, goals, reached))

    def gif(self) -> bytes:
        """An endless animation that rests on its last frame."""
        stride = math.ceil(len(self.frames) / LONGEST)
        last = len(self.frames) - 1
        kept = [frame for i, frame in enumerate(self.frames) if i % stride == 0 or i == last or frame[2]]
        pictures = [self._drawn(*frame) for frame in kept]
        durations = [4 * MILLISECONDS if reached else MILLISECONDS for _, _, reached in kept[:-1]] + [REST]
        buffer = io.BytesIO()
        pictures[0].save(
            buffer, "GIF", save_all=True, append_images=pictures[1:], duration=durations, loop=0, optimize=True
        )
        return buffer.getvalue()

    def _drawn(self, picture: NDArray[np.uint8], goals: Sequence[str], reached: str) -> Any:
        from PIL import Image, ImageDraw

        drawn = Image.fromarray(picture)
        width = WIDTH * 4 // 3 if self.captioned else WIDTH
        height = max(1, round(width * drawn.height / drawn.width))
        drawn = drawn.resize((width, height), Image.Resampling.LANCZOS)
        if self.captioned:
            page = Image.new("RGB", (width, height + (LINES + 1) * (FONT + 3) + 6), PAPER)
            page.paste(drawn)
            write, y = ImageDraw.Draw(page), height + 3
            told = f"goals: {', '.join(goals) or 'none'}"
            for line in textwrap.wrap(told, COLUMNS, max_lines=LINES, placeholder=" ..."):
                write.text((4, y), line, INK, _font())
                y += FONT + 3
            if reached:
                write.text((4, page.height - FONT - 6), f"reached: {reached}", MARK, _font())
            drawn = page
        return drawn.quantize(64)


@cache
def _font() -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(FONT)
