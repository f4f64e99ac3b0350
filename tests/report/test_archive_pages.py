"""What a report shows of archives: scores, maps, and the browser, also in a real one."""

from __future__ import annotations

import base64
import html
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from cluster.report import archive_browser, archives, heat_maps
from cluster.report import document as report
from cluster.runs.run_data import load
from envs import navigation
from learner.behaviours.table import PARTS, Behaviours
from learner.search.descriptors import descriptor, with_room
from learner.search.elites import cell_of
from learner.search.quality_diversity import Tally
from learner.search.rollout import play
from learner.store.archive import Archive
from llm_service.errors import UsageError
from tests.cluster import browser
from tests.report.behaviour_run import STEPS, pixels, write_behaviours

Read = Callable[[Path], tuple[str, Any]]
STAGES = ("search", "merge", "describe", "split")
HOUSE = navigation.load()
SCENE = navigation.Scene(HOUSE)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_behaviours(tmp_path / "runs" / "found", stages=STAGES)


def by_hand(ends: Any, quality: Any) -> str:
    """Coverage, QD score and best quality of ends on the grid of 20 by 20, as the page writes them."""
    room, best = with_room(HOUSE, 20), {}
    for (x, y), value in zip(ends.tolist(), quality.tolist(), strict=True):
        cell = int(y // 30) * 20 + int(x // 30)
        if room[cell]:
            best[cell] = max(best.get(cell, -np.inf), value)
    score = sum(value + 16 for value in best.values())
    return f"{len(ends)} {100 * len(best) / room.sum():.1f} % {score:,.1f} {max(best.values()):.3g}"


def test_scores_are_those_of_archive_and_training_part(run: Path, read: Read) -> None:
    _, page = read(report.write([run]))
    told = page.text.replace("\xa0", " ")
    archive = Archive.read(run / "stages/search/archive-0")
    effort = archive.rows(np.arange(60), ["effort"])["effort"]
    assert f"threshold 0.5 {by_hand(archive.descriptors, -effort)}" in told
    table = Behaviours.load(run / "stages/merge")
    train = safetensors.numpy.load_file(run / "stages/split/parts.safetensors")["part"] == PARTS.index("train")
    assert f"learned from {by_hand(table.descriptor[train], -table.effort[train])}" in told
    assert f"has 400 cells, of which {with_room(HOUSE, 20).sum()} can be reached" in told


# ---- maps ------------------------------------------------------------------------------------------------------------


def squares(svg: str) -> dict[str, set[tuple[float, float]]]:
    """The corners of squares by colour."""
    found: dict[str, set[tuple[float, float]]] = {}
    for colour, path in re.findall(r'crispEdges" fill="(#\w+)" d="([^"]*)"', svg):
        found[colour] = {(float(x), float(y)) for x, y in re.findall(r"M([\d.]+) ([\d.]+)h", path)}
    return found


def test_a_map_colours_filled_cells_and_greys_empty_ones() -> None:
    tally = Tally(20, np.array([[0.0, 600.0]] * 2), with_room(HOUSE, 20), -16.0)
    tally.add(np.array([[45.0, 45.0], [45.0, 46.0], [555.0, 45.0]]), np.array([-9.0, -5.0, -2.0]))
    svg = heat_maps.heat_map(SCENE, descriptor("end"), tally, heat_maps.quality_plane(tally), "<best>")
    found, room = squares(svg), with_room(HOUSE, 20).reshape(20, 20)
    assert found.pop(heat_maps.colour(0)) == {(10.0, 10.0)}  # cell 1, 1 of pixels 10 wide
    assert found.pop(heat_maps.colour(1)) == {(180.0, 10.0)}
    room[1, 1] = room[1, 18] = False
    assert found.pop(heat_maps.EMPTY) == {(10.0 * x, 10.0 * y) for y, x in np.argwhere(room)}
    assert not found
    assert ">-5</text>" in svg
    assert ">-2</text>" in svg
    assert "&lt;best&gt;" in svg
    density = squares(heat_maps.heat_map(SCENE, descriptor("end"), tally, heat_maps.density_plane(tally), "", log=True))
    assert density[heat_maps.colour(1)] == {(10.0, 10.0)}


def test_planes_of_four_numbers_show_the_best_and_the_sum() -> None:
    tally = Tally(5, np.array([[0.0, 100.0]] * 4), np.ones(625, bool), 0.0)
    tally.add(np.array([[10.0, 30, 0, 0], [10.0, 30, 90, 90], [90.0, 90, 50, 50]]), np.array([1.0, 3.0, 2.0]))
    best, count = heat_maps.quality_plane(tally), heat_maps.density_plane(tally)
    assert (best[1, 0], best[4, 4], np.isfinite(best).sum()) == (3.0, 2.0, 2)
    assert (count[1, 0], count[4, 4], np.isfinite(count).sum()) == (2.0, 1.0, 2)


# ---- the browser -----------------------------------------------------------------------------------------------------


def test_each_cell_shows_its_best_behaviour(run: Path) -> None:
    (collection,) = archives.read(load(run))
    cells, rollout = archive_browser.choose(collection, SCENE, STEPS)
    cell = cell_of(collection.archive.descriptors, 20, 600.0)
    assert sorted(20 * c.row + c.column for c in cells) == np.unique(cell).tolist()
    for c in cells:
        there = np.flatnonzero(cell == 20 * c.row + c.column)
        assert c.count == len(there)
        assert c.rows[0] == there[collection.quality[there].argmax()]
        assert set(c.rows) <= set(there.tolist())
        assert len(c.rows) <= 2
    rows = [row for c in cells for row in c.rows]
    weights = collection.archive.rows(np.array(rows), ["weights"])["weights"]
    assert rollout.pose.tobytes() == play(HOUSE, weights, STEPS).pose.tobytes()


def test_few_are_shown_of_many_and_the_page_says_so(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (collection,) = archives.read(load(run))
    monkeypatch.setattr(archive_browser, "MOST", 7)
    cells, rollout = archive_browser.choose(collection, SCENE, STEPS)
    assert len(cells) == len(rollout.pose) == 7
    assert (cells[0].row, cells[-1].row) == (
        int(collection.archive.descriptors[:, 1].min() // 30), int(collection.archive.descriptors[:, 1].max() // 30),
    )  # fmt: skip
    words, _ = archive_browser.browser(load(run), collection, SCENE, STEPS)
    filled = len(np.unique(cell_of(collection.archive.descriptors, 20, 600.0)))
    assert f"7 of 60 behaviours of threshold 0.5, in 7 of {filled} filled cells" in words


def test_a_behaviour_shows_its_texts_part_and_weights(tmp_path: Path, read: Read) -> None:
    """Every weight of the page is in the archive, and its behaviour's end, texts and part stand beside it."""
    text = 'go to <script>alert(1)</script> the "sofa"'
    folder = write_behaviours(tmp_path / "found", stages=STAGES, texts=[text])
    source, page = read(report.write([folder]))
    assert "script" not in page.tags
    assert source.count('type="radio"') > 20
    assert source.count(" checked>") == 1
    archive = Archive.read(folder / "stages/search/archive-0")
    payload = archive.rows(np.arange(60), ["weights", "effort", "generation"])
    pose = play(HOUSE, payload["weights"], STEPS).pose
    table = Behaviours.load(folder / "stages/merge")
    part = safetensors.numpy.load_file(folder / "stages/split/parts.safetensors")["part"]
    lines = [json.loads(line) for line in (folder / "stages/describe/texts.jsonl").read_text().splitlines()]
    true = {line["id"] for line in lines if line["true"]}
    shown = re.findall(
        r"<h3 style[^>]*>Behaviour (\d+)</h3>(.*?)<a download=\"archive-0-(\d+).npy\"[^>]*base64,([^\"]*)", source, re.S
    )
    assert len(shown) > 20
    described = 0
    for name, between, number, weights in shown:
        i = int(name)
        assert name == number
        found = np.load(io.BytesIO(base64.b64decode(html.unescape(weights))), allow_pickle=False)
        assert found.tobytes() == payload["weights"][i].tobytes()
        told = html.unescape(between)
        assert f"ends at {pose[i, -1, 0]:.0f}, {pose[i, -1, 1]:.0f} " in told
        assert f"effort {payload['effort'][i]:.3g} " in told
        assert f"generation {payload['generation'][i]} " in told
        row = np.flatnonzero(table.id == i)
        assert f"part {PARTS[part[row[0]]] if len(row) else 'left out by merge'}" in told
        assert (f"“{text} ({i})”" in told) == (len(row) > 0 and i in true)
        described += "“" in told
    assert described > 5


def test_a_thin_way_starts_and_ends_where_its_behaviour_does(run: Path, read: Read) -> None:
    source, _ = read(report.write([run]))
    (collection,) = archives.read(load(run))
    _, rollout = archive_browser.choose(collection, SCENE, STEPS)
    ways = re.findall(r'<path d="M(\d+) (\d+)l([-\d ]+)" fill="none" stroke="#', source)
    assert len(ways) == len(rollout.pose)
    for (x, y, steps), pose in zip(ways, rollout.pose, strict=True):
        numbers = np.array([int(n) for n in steps.split()]).reshape(-1, 2)
        assert len(numbers) < 20
        first, last = pixels(pose[0].tolist()), pixels(pose[-1].tolist())
        assert abs(int(x) - first[0]) <= 0.6
        assert abs(int(y) - first[1]) <= 0.6
        end = np.array([int(x), int(y)]) + numbers.sum(0)
        assert np.abs(end - last).max() <= 0.6


def test_damaged_texts_and_unknown_modules_are_told(run: Path, read: Read) -> None:
    (run / "stages/describe/texts.jsonl").write_text("{\n")
    _, page = read(report.write([run]))
    assert "It cannot be shown:" in page.text
    assert "run the stage describe again" in page.text
    index = run / "stages/search/archive-0/archive.json"
    says = json.loads(index.read_text())
    index.write_text(json.dumps(says | {"about": {"search": {"quality": "gone"}}}))
    with pytest.raises(UsageError, match="was searched with the quality 'gone', whose module is not here"):
        archives.read(load(run))


def test_the_page_of_a_whole_archive_is_small(run: Path) -> None:
    """600 cells and two behaviours each would be too many; what is shown of 500 fits two megabytes."""
    size = report.write([run]).stat().st_size
    (collection,) = archives.read(load(run))
    _, drawing = archive_browser.browser(load(run), collection, SCENE, STEPS)
    shown = drawing.count("<h3")
    assert len(drawing) / shown * archive_browser.MOST < 2e6
    assert size < 1e6


def test_cells_are_chosen_by_mouse_and_keys(tmp_path: Path, run: Path) -> None:
    if browser.find() is None:
        pytest.skip("no browser here: apt-get install chromium")
    page = report.write([run])
    chosen = "[...document.querySelectorAll('.cells input')].findIndex(i => i.checked)"
    shown = "[...document.querySelectorAll('.chosen')].filter(c => c.offsetHeight).map(c => c.innerText).join('|')"
    with browser.browse(tmp_path) as window:
        window.open(page.as_uri())
        count = window.look("document.querySelectorAll('.cells input').length")
        window.click(".cells input")
        assert window.look(chosen) == 0
        first = window.look(shown)
        window.press("ArrowRight", "ArrowDown")
        assert window.look(chosen) == 2
        assert window.look(shown) != first
        assert "|" not in first
        window.press("ArrowLeft")
        assert window.look(chosen) == 1
        boxes = window.look(
            "[...document.querySelectorAll('.cells input')].map(i => { const b = i.getBoundingClientRect(), "
            "m = document.querySelector('.cells > svg').getBoundingClientRect(); "
            "return [(b.x - m.x) / m.width, (b.y - m.y) / m.width, b.width / m.width] })"
        )
        assert len(boxes) == count
        (collection,) = archives.read(load(run))
        cells, _ = archive_browser.choose(collection, SCENE, STEPS)
        for (x, y, wide), cell in zip(boxes, cells, strict=True):
            assert (x, y, wide) == pytest.approx((cell.column / 20, cell.row / 20, 1 / 20), abs=0.003)
        assert not window.errors
        assert all(url.startswith(("file:", "data:")) for url in window.requests)


def test_descriptors_that_are_no_places_have_axes(monkeypatch: pytest.MonkeyPatch) -> None:
    end = descriptor("end")
    monkeypatch.setattr(type(end), "is_place", False)
    tally = Tally(20, np.array([[0.0, 600.0]] * 2), np.ones(400, bool), 0.0)
    svg = heat_maps.heat_map(SCENE, end, tally, heat_maps.quality_plane(tally), "empty")
    assert "→ end_x 0 to 600" in svg
    assert "→ end_y 0 to 600" in svg
