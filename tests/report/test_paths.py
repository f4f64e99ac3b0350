"""Pictures of trials: the room, the path through it, what was looked at, and where it was paid."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from cluster.report import document as report
from cluster.report.panels import paths
from cluster.runs import run_data

MakeRun = Callable[..., Path]
Read = Callable[[Path], tuple[str, Any]]


def told(run: Path, memory: str = "own", **changed: Any) -> Path:
    """Three trials of 4 steps in a room of 4 columns and 3 rows, where column 2 of row 0 pays.

    The first goes down and finds nothing, the second walks east to where it is paid from its second step on, so does
    the third. It looks at a chunk that nothing was paid in, and then at one that was paid.
    """
    row = [0, 1, 2, 2, *[0] * 8]
    column = [0, 0, 0, 0, 0, 1, 2, 2, 0, 1, 2, 2]
    reward = [0, 0, 0, 0, 0, 1, 1, 1, 0, 1, 1, 1]
    query = [[1, 0, 0, 0, 2], [2, 0, 0, 1, 4], [2, 2, 1, 0, 3]]
    arrays: dict[str, Any] = {
        "obs.row": np.array(row), "obs.column": np.array(column), "reward": np.array(reward, np.float32),
        "action": np.zeros(12, np.int64), "length": np.array([4, 4, 4]), "query": np.array(query),
    } | changed  # fmt: skip
    about = {"memory": memory, "sizes": {"row": 3, "column": 4}}
    place = run / "stages" / "trials"
    place.mkdir(parents=True)
    kept = {name: array for name, array in arrays.items() if array is not None}
    (place / "paths.safetensors").write_bytes(safetensors.numpy.save(kept, {"about": json.dumps(about)}))
    return run


def panel(*folders: Path) -> str:
    runs = [run_data.load(folder) for folder in folders]
    return paths.panel(runs, run_data.arms(runs))


def lines(picture: str, colour: str) -> list[list[tuple[int, int]]]:
    """Cells, as column and row, that lines of a colour go through."""
    found = re.findall(rf'<polyline points="([^"]*)" stroke="{colour}"', picture)
    return [[tuple(int(float(of)) for of in point.split(",")) for point in points.split()] for points in found]


def pictures(page: str) -> list[str]:
    return re.findall(r"<figure>.*?</figure>", page)


def test_each_trial_is_a_room_with_its_path_and_what_was_looked_at(make_run: MakeRun) -> None:
    first, second, third = pictures(panel(told(make_run("a"))))
    for picture in (first, second, third):
        assert 'viewBox="-.1 -.1 4.2 3.2"' in picture
        assert picture.count('fill="none" stroke="#009E73"') == 1
        assert '<rect x="2" y="0" width="1" height="1" fill="none" stroke="#009E73"' in picture
    down, east = [(0, 0), (0, 1), (0, 2)], [(0, 0), (1, 0), (2, 0)]
    assert [lines(picture, paths.OWN) for picture in (first, second, third)] == [[down], [east], [east]]
    assert [lines(picture, paths.CHUNK) for picture in (first, second, third)] == [[], [down[:2]], [east]]
    paid = '<rect x="2" y="0" width="1" height="1" fill="#009E73"'
    assert [paid in picture for picture in (first, second, third)] == [False, True, True]
    assert "<figcaption>Trial 1: return 0.</figcaption>" in first
    words = "Trial 2: return 3, paid first in step 2. Looked at trial 1, 1 earlier, return 0."
    assert f"<figcaption>{words}</figcaption>" in second
    assert "Looked at trial 2, 1 earlier, return 3." in third  # not at the first chunk, in which nothing was paid


def test_trials_may_be_of_any_length_and_end_where_they_are_paid(make_run: MakeRun) -> None:
    first, second = pictures(panel(told(make_run("a"), length=np.array([5, 7]))))
    assert lines(first, paths.OWN) == [[(0, 0), (0, 1), (0, 2), (0, 0)]]
    assert lines(second, paths.OWN) == [[(1, 0), (2, 0), (0, 0), (1, 0), (2, 0)]]
    single = pictures(panel(told(make_run("b"), length=np.array([6, 6]))))[0]
    assert 'fill="#009E73"' not in single  # where its last step led was not seen
    assert "Trial 1: return 1, paid first in step 6." in single


@pytest.mark.parametrize("memory", ["others", "none"])
def test_chunks_of_others_are_not_drawn(make_run: MakeRun, memory: str) -> None:
    page = panel(told(make_run("a"), memory))
    assert len(pictures(page)) == 3
    assert "Looked at" not in page
    assert "Orange" not in page


def test_a_query_that_found_nothing_is_none(make_run: MakeRun) -> None:
    page = panel(told(make_run("a"), query=np.array([[1, 0, -1, -1, -1]])))
    assert "Looked at" not in page


def test_without_rows_and_columns_there_is_no_picture(make_run: MakeRun) -> None:
    sensors = {"obs.row": None, "obs.column": None, "obs.sensors": np.zeros((12, 6), np.float32)}
    assert panel(told(make_run("a"), **sensors)) == ""
    assert panel(make_run("b")) == ""


def test_of_several_runs_the_first_that_has_some_is_drawn(make_run: MakeRun) -> None:
    page = panel(make_run("a"), told(make_run("b")), told(make_run("c")))
    assert len(pictures(page)) == 3
    assert "Shown for b, the first of 3 runs." in page


def test_few_trials_are_all_drawn_and_of_many_the_early_ones_more(make_run: MakeRun) -> None:
    assert paths.shown(1) == [0]
    assert paths.shown(8) == list(range(8))
    assert paths.shown(40) == [0, 1, 2, 4, 7, 13, 23, 39]
    for trials in range(1, 60):
        chosen = paths.shown(trials)
        assert chosen[0] == 0
        assert chosen[-1] == trials - 1
        assert len(chosen) <= paths.MOST


@pytest.mark.usefixtures("undrawn")
def test_a_page_holds_them(make_run: MakeRun, read: Read) -> None:
    source, page = read(report.write([told(make_run("a", rows=0))]))
    assert "Paths" in page.words
    assert source.count("<polyline") == 5
