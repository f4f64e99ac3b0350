"""Episodes as animations: the environment's own pictures, and below them goals, actions and the values of the run's
potential (`actors/trace.py`), with a mark at the pictured state.

GIF files are small if frames change little. So all frames of an episode share a palette, nothing is dithered, and small
pictures are enlarged by integers: unchanged pixels are not stored again.
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

from actors.trace import Trace

WIDTH = 192  # pixels; with captions a third more, or words would not fit
LONGEST = 100  # frames; of a longer episode every second is kept, or every third, ..., and all notable ones
MILLISECONDS = 180
REST = 1500  # of the last frame
FONT = 11  # pixels
COLUMNS, LINES = 42, 4  # of a caption
INK, PAPER, MARK = (34, 34, 34), (250, 250, 247), (0, 110, 60)
LINE, HERE, QUIET = (0, 114, 178), (213, 94, 0), (140, 140, 140)  # of a curve: line, current position, rewards
CURVE, BARS = 44, 16  # pixels: heights of a curve, and of the bars below it
FINE = 4  # lines are drawn larger and then reduced, for smooth edges
COLOURS = 56  # of the pictures; text has its own
SHADES = 4  # shades of text: letters have smooth edges
SAMPLES = 16  # pictures that determine the palette


@dataclass
class Animation:
    """One episode while it is played."""

    mission: str  # what it is about
    captioned: bool = False  # leave room for words under the pictures
    frames: list[tuple[NDArray[np.uint8], Sequence[str], str]] = field(default_factory=list)

    def add(self, picture: NDArray[np.uint8], goals: Sequence[str] = (), reached: str = "") -> None:
        """The next picture uint8 [H, W, 3], the current goals, and the goal that was just reached, if any."""
        self.frames.append((picture, goals, reached))

    def gif(self, trace: Trace | None = None) -> bytes:
        """A looping animation that pauses on its last frame.

        trace: the trace of an episode with as many steps as frames, drawn below the frames. No picture shows the final
            state; the previous one is shown instead.
        """
        frames, inks = self.frames, [INK, MARK]
        if trace:
            picture, goals, _ = self.frames[-1]
            frames, inks = [*self.frames, (picture, goals, "")], [INK, MARK, LINE, HERE, QUIET]
        stride = math.ceil(len(frames) / LONGEST)
        last = len(frames) - 1
        steps = [i for i, frame in enumerate(frames) if i % stride == 0 or i == last or frame[2]]
        kept = [frames[i] for i in steps]
        drawn = [self._drawn(*frame, wide=trace is not None) for frame in kept]
        if trace:
            curve = Curve(trace, drawn[0].width)
            drawn = [_below(page, curve.at(i)) for i, page in zip(steps, drawn, strict=True)]
        palette = _palette([picture for picture, _, _ in kept], inks)
        pictures = [page.quantize(palette=palette, dither=Image.Dither.NONE) for page in drawn]
        durations = [4 * MILLISECONDS if reached else MILLISECONDS for _, _, reached in kept[:-1]] + [REST]
        buffer = io.BytesIO()
        pictures[0].save(
            buffer, "GIF", save_all=True, append_images=pictures[1:], duration=durations, loop=0, optimize=True
        )
        return buffer.getvalue()

    def _drawn(self, picture: NDArray[np.uint8], goals: Sequence[str], reached: str, wide: bool) -> Image.Image:
        drawn = _sized(Image.fromarray(picture), WIDTH * 4 // 3 if self.captioned or wide else WIDTH)
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


class Curve:
    """Phi over the steps of an episode.

    Args:
        trace: the episode, of T steps.
        width: of what is drawn, in pixels.
    """

    def __init__(self, trace: Trace, width: int) -> None:
        self._phi, self._reward = trace.phi, trace.reward
        self._width, self._height = width, CURVE + BARS + FONT + 10
        self._low, self._high = float(trace.phi.min()), float(trace.phi.max())
        ends = dict.fromkeys((f"{self._high + 0.0:.2g}", f"{self._low + 0.0:.2g}"))  # one, where it is always the same
        self._left = 10 + math.ceil(max(_font().getlength(end) for end in ends))
        self._still = Image.new("RGB", (FINE * width, FINE * self._height), PAPER)
        draw = ImageDraw.Draw(self._still)
        steps, middle = range(1, len(trace.phi)), FINE * (self._height - BARS // 2 - 2)
        for step in steps:
            if trace.reward[step - 1]:
                x = self._place(step)[0]
                draw.line([x, FINE * (FONT + 4), x, FINE * (FONT + CURVE + 8)], MARK, 2 * FINE)
        # Where an episode terminates, F = -phi: that bar is cut off, or the others would be too small to see.
        largest = float(np.abs(trace.paid[:-1]).max(initial=0)) or 1.0
        for step in steps:
            x, size = self._place(step)[0], float(np.clip(trace.paid[step - 1] / largest, -1, 1)) * FINE * BARS / 2
            draw.line([x, middle, x, middle - size], QUIET, 2 * FINE)
        draw.line([FINE * self._left, middle, FINE * (width - 5), middle], QUIET, 1)
        draw.line([self._place(step) for step in (0, *steps)], LINE, 2 * FINE, "curve")
        self._labels = dict(zip((FONT + 2, FONT + CURVE - 4), ends, strict=False)) | {self._height - BARS + 1: "F"}

    def _place(self, step: int) -> tuple[float, float]:
        """The position of the state after this many steps, in fine pixels."""
        share = (float(self._phi[step]) - self._low) / (self._high - self._low) if self._high > self._low else 0.5
        along = self._left + 1 + step / (len(self._phi) - 1) * (self._width - self._left - 7)
        return FINE * along, FINE * (FONT + 6 + (1 - share) * CURVE)

    def at(self, step: int) -> Image.Image:
        """The curve with a mark at the state after this many steps."""
        fine = self._still.copy()
        draw, (x, y) = ImageDraw.Draw(fine), self._place(step)
        draw.line([x, FINE * (FONT + 4), x, FINE * (self._height - 2)], HERE, FINE)
        draw.ellipse([x - 4 * FINE, y - 4 * FINE, x + 4 * FINE, y + 4 * FINE], HERE)
        page = fine.resize((self._width, self._height), Image.Resampling.BOX)
        write = ImageDraw.Draw(page)
        write.text((4, 1), f"phi {float(self._phi[step]) + 0.0:.3g}", LINE, _font())
        if step and (reward := float(self._reward[step - 1])):
            write.text((self._width / 2, 1), f"reward {reward:.3g}", MARK, _font(), "ma")
        write.text((self._width - 5, 1), f"step {step} of {len(self._phi) - 1}", INK, _font(), "ra")
        for top, label in self._labels.items():
            write.text((self._left - 5, top), label, INK, _font(), "ra")
        return page


def _below(page: Image.Image, curve: Image.Image) -> Image.Image:
    whole = Image.new("RGB", (page.width, page.height + curve.height), PAPER)
    whole.paste(page)
    whole.paste(curve, (0, page.height))
    return whole


def _sized(picture: Image.Image, width: int) -> Image.Image:
    """About `width` wide: enlarged by an integer, which keeps pixels square and sharp, or reduced."""
    if picture.width <= width:
        times = width // picture.width
        return picture.resize((times * picture.width, times * picture.height), Image.Resampling.NEAREST)
    return picture.resize((width, max(1, round(width * picture.height / picture.width))), Image.Resampling.LANCZOS)


def _palette(pictures: Sequence[NDArray[np.uint8]], inks: Sequence[tuple[int, int, int]]) -> Image.Image:
    """The palette of an animation: the main colours of some of its pictures, and the colours of text and lines."""
    some = pictures[:: math.ceil(len(pictures) / SAMPLES)]
    found = Image.fromarray(np.concatenate(some)).quantize(COLOURS, dither=Image.Dither.NONE).getpalette() or []
    shares = np.linspace(0, 1, SHADES)[:, None]
    words = [np.array(PAPER) * (1 - shares) + np.array(ink) * shares for ink in inks]
    palette = Image.new("P", (1, 1))
    palette.putpalette([*found[: 3 * COLOURS], *np.concatenate(words).round().astype(int).ravel().tolist()])
    return palette


@cache
def _font() -> Any:
    return ImageFont.load_default(FONT)
