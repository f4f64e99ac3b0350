"""What a search found, in a report: coverage and QD score, maps of quality and density, a browser of behaviours.

    report/archives.py ──> table, curves over generations   (of the first run)
    report/heat_maps.py ──> maps of the first archive and of the first grid
    report/archive_browser.py ──> cells to click: trajectories, texts, weights

A run shows what it worked with, also where `from` names another run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from cluster.report import archive_browser, archives, deployed, heat_maps, plots
from cluster.report.archives import Collection
from cluster.report.page import count, figure, grid, join, percent, section, subtitle, table, text
from cluster.runs.run_data import Run, part
from envs.navigation import Scene
from llm_service.errors import UsageError

LENGTH = 400  # steps of an episode, where a run does not say


def archive_sections(run: Run, note: str) -> str:
    """Both sections; "" where nothing was searched."""
    if deployed.find_stage(run, "search") is None:
        return ""
    try:
        found, scene = archives.read(run), deployed.read_house(run)
        if not found:
            return section("Archive", text("The search kept no behaviour."), note)
        parts = [_scores(run, found, scene), _curves(found, scene), _maps(found, scene), note]
        return join(section("Archive", *parts), _browser(run, found, scene, note))
    except UsageError as error:
        return section("Archive", text(f"It cannot be shown: {error}."), note)


def _scores(run: Run, found: Sequence[Collection], scene: Scene) -> str:
    """Coverage, QD score and best quality of each collection, and of what is learned from."""
    space = found[0].space
    rows = []
    for collection in found:
        tally = space.tally(scene.house)
        tally.add(collection.archive.descriptors, collection.quality)
        rows.append((collection.label, len(collection.archive), tally.scores()))
    if merged := archives.learned(run):
        _, behaviours, parts = merged
        chosen = np.ones(len(behaviours), bool) if parts is None else parts == "train"
        tally = space.tally(scene.house)
        values, quality = space.measured(scene.house, behaviours, length(run))
        tally.add(values[chosen], quality[chosen])
        rows.append(("learned from" if parts is not None else "merged", int(chosen.sum()), tally.scores()))
    head = ["behaviours of", "how many", "coverage", "QD score", "best quality"]
    lines = [
        (label, count(many), percent(scores.coverage), f"{scores.qd_score:,.1f}", _decimal(scores.best_quality))
        for label, many, scores in rows
    ]
    tally, chosen_names = space.tally(scene.house), ", ".join(space.descriptor.names)
    words = (
        f"The space of the descriptor {space.descriptor_name} ({chosen_names}) has {len(tally.reachable):,} cells, of "
        f"which {int(tally.reachable.sum()):,} can be reached; coverage is the share of these that are filled. QD "
        f"score is the sum over filled cells of the best quality there, counted from {tally.lowest:g}. Quality is "
        f"{space.quality_name}: {space.quality.meaning}."
    )
    return join(table(head, lines), text(words))


def _curves(found: Sequence[Collection], scene: Scene) -> str:
    """Cells reached and QD score over generations, of each archive."""
    reached, scores = [], []
    for i, collection in enumerate(c for c in found if not c.is_grid):
        x, cells, score = progress(collection, scene)
        reached.append(plots.Line(collection.label, x, cells, colour=i, dash=i))
        scores.append(plots.Line(collection.label, x, score, colour=i, dash=i))
    if not reached:
        return ""
    cells_caption = f"Cells that the archive{'s' * (len(reached) > 1)} filled over generations."
    score_caption = "QD score over generations."
    return grid(
        "plots",
        [
            figure(
                plots.curves("coverage", reached, title=cells_caption, x_label="generation", zero=True), cells_caption
            ),
            figure(
                plots.curves("qd-score", scores, title=score_caption, x_label="generation", zero=True), score_caption
            ),
        ],
    )


def progress(
    collection: Collection, scene: Scene
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Generations at which a score changed, and the last one; cells filled and QD score by then."""
    tally = collection.space.tally(scene.house)
    points: dict[int, tuple[float, float]] = {}
    order = np.argsort(collection.generation, kind="stable")
    generations, first = np.unique(collection.generation[order], return_index=True)
    for generation, rows in zip(generations.tolist(), np.split(order, first[1:]), strict=True):
        tally.add(collection.archive.descriptors[rows], collection.quality[rows])
        scores = tally.scores()
        cells = round(scores.coverage * tally.reachable.sum())
        if (cells, scores.qd_score) != next(reversed(points.values()), None):
            points[generation] = (cells, scores.qd_score)
    points[int(collection.generation.max())] = points[max(points)]
    x, (cells, score) = np.array(list(points), np.float64), np.array(list(points.values())).T
    return x, cells, score


def _maps(found: Sequence[Collection], scene: Scene) -> str:
    """Quality and density of the first archive and of the first grid."""
    shown = [next((c for c in found if c.is_grid == kind), None) for kind in (False, True)]
    figures = []
    for collection in (c for c in shown if c):
        chosen, tally = collection.space.descriptor, collection.space.tally(scene.house)
        tally.add(collection.archive.descriptors, collection.quality)
        named, what = " and ".join(chosen.names[:2]), f"{len(collection.archive):,} behaviours, {collection.label}"
        for word, plane, log in (
            (f"best {collection.space.quality_name}", heat_maps.quality_plane(tally), False),
            ("how many behaviours, colours by logarithm", heat_maps.density_plane(tally), True),
        ):
            caption = f"By {named}: {word}. {what}. Grey cells are empty."
            figures.append(figure(heat_maps.heat_map(scene, chosen, tally, plane, caption, log=log), caption))
    return join(subtitle("Maps"), grid("plots", figures))


def _browser(run: Run, found: Sequence[Collection], scene: Scene, note: str) -> str:
    grids = [collection for collection in found if collection.is_grid]
    elites = part(run.config, "method", "merge").get("take") == "elites"
    collection = grids[0] if elites and grids else found[0]
    words, drawing = archive_browser.browser(run, collection, scene, length(run))
    return section("Behaviours", text(words), drawing, note)


def length(run: Run) -> int:
    """Steps of an episode."""
    env: Mapping[str, object] = part(run.config, "env")
    steps = env.get("length")
    return steps if isinstance(steps, int) else LENGTH


def _decimal(value: float | None) -> str:
    return "–" if value is None else f"{value + 0.0:.3g}"
