"""What a report draws of one task that was played again and again: a room a trial, with the path through it, and where
the memory said to look.

stages/trials/paths.safetensors ──> a few trials ──> room, path, chunk, cells that paid ──> SVG

Of worlds whose observation is a row and a column; of others there is no picture. Where the last step of a trial leads
is not observed, and not drawn.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from safetensors import safe_open

from cluster.metrics.trials import PATHS
from cluster.report.outcome import Arms
from cluster.report.page import figure, grid, section, text
from cluster.report.plots import COLOURS
from cluster.runs.run_data import Run

SUBJECT, ORDER = "agents", 28
MOST = 8  # trials that are drawn, more of the early ones
OWN, CHUNK, PAID = COLOURS[0], COLOURS[1], COLOURS[2]
WORDS = (
    "One task of seed 0, the one whose return rose by the median from the first trial to the last. Blue: the path, "
    "from the ring to the disc. Green: cells that paid in this trial; with a green frame, cells that paid in any."
)
LOOKED = (
    " Orange, dashed: a chunk of an earlier trial that was looked at, the first one in the trial that was paid for "
    "anything, or else the first one."
)

Integers = NDArray[np.int64]


def panel(runs: Sequence[Run], groups: Arms) -> str:
    """The pictures of the first run that has some, as HTML; "" where none has."""
    found = ((run, *_read(run)) for run in runs if (run.folder / "stages" / "trials" / PATHS).exists())
    run, about, arrays = next((one for one in found if {"obs.row", "obs.column"} <= one[2].keys()), (None, {}, {}))
    if run is None:
        return ""
    played = Played(about, arrays)
    drawn = [played.drawn(trial) for trial in shown(len(played.length))]
    words = WORDS + (LOOKED if len(played.query) else "")
    words += f" Shown for {run.name}, the first of {len(runs)} runs." if len(runs) > 1 else ""
    return section("Paths", text(words), grid("small", drawn))


def shown(trials: int) -> list[int]:
    """Up to `MOST` of so many trials, from 0: the first and the last, and between them ever fewer."""
    chosen = np.arange(trials) if trials <= MOST else np.unique(np.geomspace(1, trials, MOST).round().astype(int) - 1)
    return chosen.tolist()


def _read(run: Run) -> tuple[Mapping[str, Any], Mapping[str, NDArray[Any]]]:
    """What the file is of, and what it holds."""
    with safe_open(run.folder / "stages" / "trials" / PATHS, "numpy") as file:
        return json.loads(file.metadata()["about"]), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


class Played:
    """All trials of one task.

    Attributes:
        length: int64 [trials], steps of each.
        query: int64 [Q, 5], see `actors.paths`; none where others' memories were searched.
    """

    def __init__(self, about: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        self.length: Integers = arrays["length"]
        self._ends = np.cumsum(self.length)
        self._cells = np.stack([arrays["obs.column"], arrays["obs.row"]], 1)  # [S, 2], x and y
        self._reward = arrays["reward"]
        self._width, self._height = (int(about["sizes"][name]) for name in ("column", "row"))
        query = arrays["query"]
        self.query: Integers = query[(query[:, 2] >= 0) & (about["memory"] == "own")]

    def drawn(self, trial: int) -> str:
        """A figure, as HTML."""
        words = f"Trial {trial + 1}: return {self._return(trial):g}{self._since(trial)}."
        layers = [_cells(self._paid(*self._steps(trial)), f'fill="{PAID}" fill-opacity=".55"')]
        if (chunk := self._looked(trial)) is not None:
            of, start, stop = chunk
            words += f" Looked at trial {of + 1}, {trial - of} earlier, return {self._return(of):g}."
            first = self._steps(of)[0]
            layers.append(_line(self._cells[first + start : first + stop], CHUNK, 0.12, 'stroke-dasharray=".3 .2"'))
        first, end = self._steps(trial)
        layers.append(_way(self._cells[first:end]))
        every = _cells(self._paid(0, len(self._reward)), f'fill="none" stroke="{PAID}" stroke-width=".12"')
        inner = "".join([_room(self._width, self._height), *layers, every])
        box = f"-.1 -.1 {self._width + 0.2:g} {self._height + 0.2:g}"
        svg = f'<svg role="img" aria-label="{escape(words)}" viewBox="{box}">{inner}</svg>'
        return figure(Markup(svg), words)

    def _steps(self, trial: int) -> tuple[int, int]:
        """Of all steps, the first of a trial, and the one after its last."""
        return int(self._ends[trial] - self.length[trial]), int(self._ends[trial])

    def _return(self, trial: int) -> float:
        return float(self._reward[slice(*self._steps(trial))].sum(dtype=np.float64))

    def _since(self, trial: int) -> str:
        paid = np.flatnonzero(self._reward[slice(*self._steps(trial))] > 0)
        return f", paid first in step {paid[0] + 1}" if len(paid) else ""

    def _paid(self, first: int, end: int) -> Integers:
        """Cells that steps [first, end) were paid for reaching, each once, [K, 2]."""
        paid = np.flatnonzero(self._reward[first:end] > 0) + first
        return np.unique(self._cells[np.setdiff1d(paid, self._ends - 1) + 1], axis=0)

    def _looked(self, trial: int) -> tuple[int, int, int] | None:
        """Trial, first step and the step after the last of a chunk that was looked at; None if there was none."""
        chunks: list[tuple[int, int, int]] = [tuple(row) for row in self.query[self.query[:, 0] == trial, 2:].tolist()]
        for of, start, stop in chunks:
            first = self._steps(of)[0]
            if self._reward[first + start : first + stop].any():
                return of, start, stop
        return chunks[0] if chunks else None


def _room(width: int, height: int) -> str:
    lines = "".join(f"M{x} 0V{height}" for x in range(width + 1))
    lines += "".join(f"M0 {y}H{width}" for y in range(height + 1))
    return f'<path d="{lines}" fill="none" stroke="#ccc" stroke-width=".04"/>'


def _cells(cells: Integers, style: str) -> str:
    return "".join(f'<rect x="{x}" y="{y}" width="1" height="1" {style}/>' for x, y in cells.tolist())


def _line(cells: Integers, colour: str, aside: float, style: str = "") -> str:
    """Through the middle of cells [T, 2], or so far aside of it."""
    moved = cells[np.r_[True, (cells[1:] != cells[:-1]).any(1)]] + 0.5 + aside
    points = " ".join(f"{x:g},{y:g}" for x, y in moved.tolist())
    look = 'fill="none" stroke-width=".16" stroke-linejoin="round" stroke-linecap="round" stroke-opacity=".8"'
    return f'<polyline points="{points}" stroke="{colour}" {look} {style}/>'


def _way(cells: Integers) -> str:
    """A path with a ring where it begins and a disc where it ends."""
    aside = -0.08
    (x, y), (x1, y1) = (cells[[0, -1]] + 0.5 + aside).tolist()
    ends = f'<circle cx="{x:g}" cy="{y:g}" r=".26" fill="#fff" stroke="{OWN}" stroke-width=".12"/>'
    return _line(cells, OWN, aside) + ends + f'<circle cx="{x1:g}" cy="{y1:g}" r=".24" fill="{OWN}"/>'
