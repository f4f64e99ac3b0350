"""A browser of an archive inside a report: choose a cell of the map, see the behaviours there. It has no script.

    Collection ──> per cell the best, and the one that drives most differently ──> replayed
               ──> radio buttons over the map's cells; the chosen one shows its behaviours' ways, texts and weights

Radio buttons need no script: a mouse chooses one, the arrow keys go from cell to cell, and what follows the chosen one
is shown. Weights are a .npy file inside the page, so that anybody can play the policy:

    navigation.rollout(house, None, numpy.load(file)[None], steps)

A page stays below some 2 MB: at most `MOST` behaviours, ways of 20 points.
"""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from cluster.report import archives, heat_maps, house_plan, plots
from cluster.report.archives import Collection, Told
from cluster.report.page import cells
from cluster.runs.run_data import Run
from envs.navigation import Scene
from learner.search.elites import cell_of
from learner.search.rollout import Rollout, play

MOST = 500  # behaviours on a page
CANDIDATES = 8  # of each cell, of which the most different one is the second that is shown
APART = 30.0  # world units, as a mean over steps, from which on a second behaviour is different enough
COLOURS = (plots.COLOURS[0], plots.COLOURS[1])
PLAN = "house-plan"


@dataclass(frozen=True)
class Cell:
    """One that can be chosen, at a row and a column of the map."""

    row: int
    column: int
    count: int
    rows: list[int]  # of the behaviours that are shown, in the collection


def browser(run: Run, collection: Collection, scene: Scene, length: int) -> tuple[str, Markup]:
    """What is shown, in words, and the browser.

    Raises:
        UsageError: a file of another stage is damaged.
    """
    tally = collection.space.tally(scene.house)
    tally.add(collection.archive.descriptors, collection.quality)
    plane = heat_maps.quality_plane(tally)
    chosen, rollout = choose(collection, scene, length)
    at = {row: i for i, row in enumerate(row for cell in chosen for row in cell.rows)}
    told = archives.told(run, collection)
    defs = f'<defs><g id="{PLAN}">{house_plan.floor(scene)}{house_plan.names(scene)}</g></defs>'
    title = f"quality of {collection.label} by cell"
    picture = heat_maps.heat_map(scene, collection.space.descriptor, tally, plane, title, inner=defs)
    height, width = scene.tiles.shape
    wide, tall = 1 / plane.shape[1], (1 if collection.space.descriptor.is_place else height / width) / plane.shape[0]
    generations = collection.generation
    entries: list[dict[str, Any]] = []
    for cell in chosen:
        ways = [house_plan.thin_way(scene, rollout.pose[at[row]], COLOURS[k]) for k, row in enumerate(cell.rows)]
        box = f'<svg role="img" aria-label="ways of its behaviours" viewBox="0 0 {width} {height}">'
        best = heat_maps.number(float(collection.quality[cell.rows[0]]))
        words = f"row {cell.row + 1}, column {cell.column + 1}: {cell.count} behaviours, best quality {best}"
        entries.append(
            {
                "place": f"--x:{cell.column * wide:.4g};--y:{cell.row * tall:.4g}",
                "words": words,
                "drawing": Markup(f'{box}<use href="#{PLAN}"/>{"".join(ways)}</svg>'),
                "behaviours": [
                    _behaviour(collection, told, rollout, row, at[row], COLOURS[k], int(generations[row]))
                    for k, row in enumerate(cell.rows)
                ],
            }
        )
    first = max(range(len(chosen)), key=lambda i: (any(b["texts"] for b in entries[i]["behaviours"]), chosen[i].count))
    drawing = cells(picture, f"--wide:{wide:.4g};--tall:{tall:.4g}", entries, first)
    filled = int(np.isfinite(plane).sum())
    shown = f"{len(at):,} of {len(collection.archive):,} behaviours of {collection.label}, in {len(chosen):,} of "
    shown += f"{filled:,} filled cells: of each the one of the highest quality and, where they differ most, one that "
    shown += "drives differently. Click a cell, or use the arrow keys; a ring is a start, a disc an end."
    return shown, drawing


def choose(collection: Collection, scene: Scene, length: int) -> tuple[list[Cell], Rollout]:
    """The cells and behaviours that are shown, and these behaviours played, in their order."""
    tally = collection.space.tally(scene.house)
    low, high = tally.bounds[:2].T
    cell = cell_of(collection.archive.descriptors[:, :2], tally.cells, high, low)
    order = np.lexsort((collection.archive.ids, -collection.quality, cell))
    filled, begin, count = np.unique(cell[order], return_index=True, return_counts=True)
    kept = np.unique(np.linspace(0, len(filled) - 1, min(len(filled), MOST)).astype(int))  # all, or evenly spread
    groups = [order[begin[k] : begin[k] + min(count[k], CANDIDATES)] for k in kept]
    rows = np.concatenate(groups)
    rollout = _play(collection, scene, rows, length)
    first = np.cumsum([0, *map(len, groups)])
    place = [rollout.pose[begin:end, :, :2] for begin, end in pairwise(first)]
    apart = [np.linalg.norm(own - own[0], axis=-1).mean(1) for own in place]
    far = np.array([distance.max() for distance in apart])
    second = set(np.argsort(-far, kind="stable")[: MOST - len(groups)].tolist()) & set(
        np.flatnonzero(far > APART).tolist()
    )
    found, used = list[Cell](), list[int]()
    for i, k in enumerate(kept.tolist()):
        shown = [0, int(apart[i].argmax())] if i in second else [0]
        row, column = divmod(int(filled[k]), tally.cells)
        found.append(Cell(row, column, int(count[k]), groups[i][shown].tolist()))
        used += (first[i] + shown).tolist()
    kept_rows = (rollout.weights, rollout.start, rollout.pose, rollout.action)
    return found, Rollout(scene.house, *(array[used] for array in kept_rows))


def _play(collection: Collection, scene: Scene, rows: NDArray[np.int64], length: int) -> Rollout:
    weights = collection.archive.rows(rows, ["weights"])["weights"]
    return play(scene.house, weights, length)


def _behaviour(
    collection: Collection, told: Told, rollout: Rollout, row: int, at: int, colour: str, generation: int
) -> dict[str, Any]:
    """What is shown of one behaviour beside its way."""
    own = int(collection.archive.ids[row])
    x, y = rollout.pose[at, -1, :2].tolist()
    facts = {
        "quality": heat_maps.number(float(collection.quality[row])),
        "effort": heat_maps.number(float(collection.effort[row])),
        "ends at": f"{x:.0f}, {y:.0f}",
        "generation": f"{generation:,}",
    }
    if told.merged:
        facts["part"] = told.part.get(own, "merged") if own in told.merged else "left out by merge"
    file = io.BytesIO()
    np.save(file, rollout.weights[at], allow_pickle=False)
    return {
        "name": f"Behaviour {own:,}",
        "colour": colour,
        "facts": facts,
        "texts": told.texts.get(own, []),
        "file": f"{collection.name}-{own}.npy",
        "weights": base64.b64encode(file.getvalue()).decode(),
    }
