"""The report of runs on behaviours: its numbers, its pictures, and no word of what such runs do not do."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from markupsafe import Markup

from cluster.report import agreement as agreement_page
from cluster.report import deployed, house_plan, plots
from cluster.report import document as report
from cluster.report.panels import lgqd as behaviour_pages
from envs import navigation
from learner.behaviours.agreement import agreement
from learner.behaviours.ratings import Ratings
from learner.store.archive import Archive
from llm_service.errors import UsageError
from tests.report.behaviour_run import TEXTS, pixels, results, write_behaviours

Read = Callable[[Path], tuple[str, Any]]
SENSELESS = ("Success by task kind", "Throughput and policy lag", "Losses", "Held-out", "Learning curve", "Fitting")

SVG = Markup("<svg></svg>")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_behaviours(tmp_path / "runs" / "ways")


def test_results_are_those_of_the_file(run: Path, read: Read) -> None:
    source, page = read(report.write([run]))
    assert "lgqd on navigation/House" in page.text
    assert '<p class="headline">25.0 %</p>' in source
    assert "chance is 50 % (23.0 to 28.0 %), 16 trials." in page.text.replace("\xa0", " ")
    told = page.text.replace("\xa0", " ")
    assert "all trials 16 25.0 % [23.0, 28.0] 25.1 % [23.1, 28.1] 25.2 % [23.2, 28.2] –" in told
    assert "in other words 12 29.0 % [27.0, 32.0] 29.1 % [27.1, 32.1]" in told
    assert "one end, two routes 15 0.36 [0.34, 0.39] 0.36 [0.34, 0.39] 0.36 [0.34, 0.39] –" in told
    assert "from nearby 10 61.0 % [59.0, 64.0]" in told
    assert told.count("a behaviour's own text and end") == 3  # nobody has a rival there
    assert "3 episodes of each trial" in told


def test_nothing_is_said_of_what_such_runs_do_not_do(run: Path, make_run: Callable[..., Path], read: Read) -> None:
    _, page = read(report.write([run]))
    assert not [words for words in SENSELESS if words in page.text]
    for title in ("Behaviours asked for", "Episodes", "Distances", "Judges", "Archive", "Run", "Configuration", "Next"):
        assert title in page.words
    _, other = read(report.write([make_run("ppo-a", rows=3)]))
    assert not {"Behaviours asked for", "Distances", "Judges", "Archive"} & set(other.words)
    assert "Held-out" in other.text


def test_the_page_stands_alone(run: Path, read: Read) -> None:
    Ratings(run / "ratings", "ana").give(deployed.read(run).items[3], 0.5)
    source, page = read(report.write([run]))
    assert "script" not in page.tags
    assert "://" not in source
    links = [value for name, value in page.attributes if name in ("src", "href")]
    assert not [link for link in links if not link.startswith(("#", "data:application/octet-stream;base64,"))]
    ids = [value for name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))


def test_texts_are_escaped(tmp_path: Path, read: Read) -> None:
    folder = write_behaviours(tmp_path / "ways", texts=['go to <script>alert(1)</script> "sofa" & <b>bed</b>'])
    source, page = read(report.write([folder]))
    assert "script" not in page.tags
    assert "<script" not in source
    assert "<b>bed" not in source
    assert 'go to <script>alert(1)</script> "sofa" & <b>bed</b>' in page.text


# ---- pictures -------------------------------------------------------------------------------------------------------


def test_trials_are_drawn_by_rank(run: Path, read: Read) -> None:
    """Each way ends where its robot did, each cross is where its target was; texts are not repeated while there are
    others."""
    source, page = read(report.write([run]))
    found = deployed.read(run)
    order = np.argsort(found.error[:, 0])
    for words, share in behaviour_pages.SHOWN.items():
        trial = order[int(share * 15)]
        missed = f"{100 * found.error[trial, 0] / found.diagonal:.1f}"
        assert f"{missed} % off, {words}; obedience {found.score[trial, 0]:.2f}" in page.text.replace("\xa0", " ")
        x, y = pixels(found.pose[trial, -1])
        assert re.search(rf'<circle cx="{x:g}" cy="{y:g}" r="3.6"', source)
        x, y = pixels(found.trials[trial].target)
        assert f'<circle cx="{x:g}" cy="{y:g}" r="3.25"/><path d="M{x - 5:g} {y:g}h10' in source
    assert page.tags.count("animatemotion") == 6
    assert len({text for text in TEXTS if text in page.text}) == 4


def test_a_way_tells_its_time_and_skips_what_stands_still() -> None:
    scene = navigation.Scene(navigation.load())
    pose = np.zeros((100, 3), np.float32)
    pose[:50, 0], pose[50:, 0], pose[:, 1] = np.linspace(60, 300, 50), 300, 450
    svg = house_plan.way(scene, pose)
    pieces = re.findall(r'd="(M[^"]*)" stroke="(#[0-9a-f]{6})"', svg)
    assert len(pieces) == house_plan.PIECES
    assert pieces[0][0].startswith("M20 150L")
    assert pieces[0][1] == "#e69f00"
    assert pieces[-1] == ("M100 150L100 150", "#2b105f")
    assert len({colour for _, colour in pieces}) == house_plan.PIECES
    whole = re.search(r'd="(M[^"]*)" stroke="#fff"', svg)
    assert whole is not None
    assert whole[1].count("L") == 49


def test_the_floor_is_the_map(tmp_path: Path) -> None:
    """Every pixel is wall or tile as the scene has it; names with marks of HTML are text."""
    scene = navigation.Scene(navigation.load())
    svg = house_plan.floor(scene)
    drawn = np.zeros_like(scene.tiles)
    for colour, x, y, x1, y1 in re.findall(r'fill="(\w+)" d="M(\d+) (\d+)H(\d+)V(\d+)H\d+z"', svg):
        drawn[int(y) : int(y1), int(x) : int(x1)] = scene.colours.index(colour)
    walls = re.search(r'fill="#333" d="([^"]*)"', svg)
    assert walls is not None
    for x, y, x1, y1 in re.findall(r"M(\d+) (\d+)H(\d+)V(\d+)H\d+z", walls[1]):
        drawn[int(y) : int(y1), int(x) : int(x1)] = 0
    np.testing.assert_array_equal(drawn, scene.tiles)
    house = navigation.load().as_json() | {"objects": [{"name": "Ann's chair", "x": 98, "y": 175}]}
    other = navigation.Scene(navigation.load(house))
    assert ">Ann&#x27;s chair</text>" in house_plan.names(other)


def test_distances_are_counted(run: Path, monkeypatch: pytest.MonkeyPatch, read: Read) -> None:
    drawn: dict[str, Any] = {}
    monkeypatch.setattr(
        plots, "curves", lambda name, lines, **_: drawn.setdefault(name, lines) and Markup("<svg></svg>")
    )
    report.write([run])
    found = deployed.read(run)
    ends = {
        "single": found.error[:, 0],
        "best of 3": found.error.min(1),
        "archive replayed": found.replayed_error[:, 0],
    }
    assert [line.label for line in drawn["distances"]] == list(ends)
    for line in drawn["distances"]:
        shares = 100 * ends[line.label] / found.diagonal
        edges = line.x[::2]
        assert line.x.tolist() == np.repeat(edges, 2).tolist()
        expected = [((shares >= low) & (shares < high)).sum() for low, high in pairwise(edges)]
        expected[-1] += (shares == edges[-1]).sum()
        assert sum(expected) == 16
        assert line.y.tolist() == [0, *np.repeat(expected, 2), 0]


def test_cells_are_counted_when_they_are_first_reached(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: dict[str, Any] = {}
    monkeypatch.setattr(
        plots, "curves", lambda name, lines, **_: drawn.setdefault(name, lines) and Markup("<svg></svg>")
    )
    report.write([run])
    (line,) = drawn["coverage"]
    archive = Archive.read(run / "stages/search/archive-0")
    generation = archive.rows(np.arange(60), ["generation"])["generation"]
    reached: set[tuple[int, int]] = set()
    expected = []
    for g in range(10):
        reached |= {(int(x // 30), int(y // 30)) for x, y in archive.descriptors[generation == g]}
        expected.append(len(reached))
    assert line.label == "threshold 0.5"
    assert line.x.tolist() == list(range(10))
    assert line.y.tolist() == expected


# ---- judges ---------------------------------------------------------------------------------------------------------


def test_agreement_of_all_three(run: Path, read: Read) -> None:
    found = deployed.read(run)
    ana = {item: k % 11 / 10 for k, item in enumerate(found.items[4:14])}
    bo = {item: (k * 7) % 11 / 10 for k, item in enumerate(found.items[6:16])}
    for who, given in (("ana", ana), ("bo", bo), ("cy", {"of another model's episodes": 1.0})):
        for item, score in given.items():
            Ratings(run / "ratings", who).give(item, score)
    _, page = read(report.write([run]))
    told = page.text.replace("\xa0", " ")
    assert "how many trials each: ana (10), bo (10)." in told
    mean = {i: np.mean([s[i] for s in (ana, bo) if i in s]) for i in sorted(ana.keys() | bo.keys())}
    rule = dict(zip(found.items, found.score[:, 0].astype(float), strict=True))
    model = {found.items[15 - k]: ((3 * k) % 11 + (3 * k + 1) % 11) / 20 for k in range(10)}
    for names, one, other in (
        ("language model and rule", model, rule), ("people and rule", mean, rule),
        ("people and language model", mean, model), ("ana and bo", ana, bo),
    ):  # fmt: skip
        both = sorted(one.keys() & other.keys())
        expected = agreement(np.array([one[i] for i in both]), np.array([other[i] for i in both]))
        cells = [
            "{value:.{d}f} [{low:.{d}f}, {high:.{d}f}]".format(**expected[name], d=3 if name == "mse" else 2)
            for name in ("pearson", "spearman", "kendall", "mse")
        ]
        assert f"{names} {len(both)} {' '.join(cells)}" in told


def test_discs_have_the_area_of_their_counts() -> None:
    x, y = np.array([0.0, 0.0, 0.0, 0.0, 0.5, 0.51]), np.array([1.0, 1.0, 1.0, 1.0, 0.2, 0.2])
    discs = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)" r="([\d.]+)"', agreement_page.counts("a", "b <c>", x, y))
    (left, top, large), (right, below, small) = ([float(number) for number in disc] for disc in discs)
    assert left < right
    assert top < below
    assert (large / small) ** 2 == pytest.approx(2, rel=0.05)


def test_without_raters_it_says_how_to_rate(run: Path, read: Read) -> None:
    _, page = read(report.write([run]))
    assert "python launch.py judge ways" in page.text
    assert "people and rule" not in page.text


# ---- other runs -----------------------------------------------------------------------------------------------------


def test_stages_of_another_run(tmp_path: Path, read: Read) -> None:
    """A run that only judges shows what the other deployed; a judge of other episodes is not believed."""
    first = write_behaviours(tmp_path / "first", stages=("search", "split", "deploy"))
    second = write_behaviours(tmp_path / "second", stages=("judge",), origin="run:first/deploy")
    found = deployed.read(second)
    assert len(found.judged) == 10
    assert found.ratings == second / "ratings"
    np.testing.assert_array_equal(found.pose, deployed.read(first).pose)
    third = write_behaviours(tmp_path / "third", stages=("deploy",), origin=str(first / "stages" / "split"), seed=5)
    (first / "stages" / "judge").mkdir()
    for name in ("judgements.jsonl", "manifest.json"):
        (first / "stages/judge" / name).write_text((second / "stages/judge" / name).read_text())
    assert deployed.read(first).judged
    assert not deployed.read(third).judged
    assert not set(deployed.read(third).items) & set(deployed.read(first).items)
    assert "lgqd" in read(report.write([second]))[1].text


def test_arms_are_told_apart(tmp_path: Path, read: Read) -> None:
    kinds = [("none", 0.25, 0), ("none", 0.35, 1), ("text", 0.5, 0), ("target", 0.6, 0), ("both", 0.7, 0)]
    folders = [
        write_behaviours(tmp_path / f"{name}-{seed}", ablate=name, right=value, seed=seed)
        for name, value, seed in kinds
    ]
    _, page = read(report.write(folders[:3]))
    told = page.text.replace("\xa0", " ")
    assert "Behaviours asked for: ablate=none 30.0 %" in told  # the mean of two seeds, lowest to highest
    assert "(25.0 to 35.0 %), 32 trials." in told
    assert "Behaviours asked for: ablate=text 50.0 %" in told
    assert "16 trials, arm no_text." in told
    assert "Shown for none-0, the first of 3 runs." in told
    _, page = read(report.write(folders))
    assert "ablate=both 70.0 % [68.0, 73.0] 0.80 [0.78, 0.83] 0.90 [0.88, 0.93]" in page.text.replace("\xa0", " ")


@pytest.mark.parametrize("stages", [(), ("search",), ("search", "split"), ("split", "judge")])
def test_runs_that_are_not_finished(tmp_path: Path, stages: tuple[str, ...], read: Read) -> None:
    folder = write_behaviours(tmp_path / "ways", stages=stages)
    _, page = read(report.write([folder]))
    assert "there is no finished deploy stage" in page.text
    assert ("Archive" in page.words) == ("search" in stages)
    with pytest.raises(UsageError, match="has no finished stage deploy"):
        deployed.read(folder)


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("deploy/episodes.safetensors", b"torn", "run the stage deploy again"),
        ("deploy/episodes.safetensors", safetensors.numpy.save({"pose": np.zeros((16, 2, 3))}), "deploy again"),
        ("split/trials.jsonl", b"{}\n", "run the stage split again"),
        ("split/trials.jsonl", b"", "is not of the 0 trials"),
        ("judge/judgements.jsonl", b'{"trial": 99, "overall": 3}\n', "run the stage judge again"),
        ("judge/judgements.jsonl", b"{", "run the stage judge again"),
    ],
)
def test_damaged_files_are_told(run: Path, file: str, content: bytes, words: str, read: Read) -> None:
    (run / "stages" / file).write_bytes(content)
    _, page = read(report.write([run]))
    assert "Episodes They cannot be shown:" in page.text
    assert words in page.text
    assert "Archive" in page.words
    with pytest.raises(UsageError, match=words):
        deployed.read(run)


def test_damaged_ratings_archives_and_maps_are_told(run: Path, tmp_path: Path, read: Read) -> None:
    (run / "ratings").mkdir()
    (run / "ratings" / "ana.jsonl").write_text("7\n")
    next((run / "stages/search/archive-0").glob("*.parquet")).write_bytes(b"torn")
    _, page = read(report.write([run]))
    assert "Ratings cannot be shown: line 1 of" in page.text
    assert "It cannot be shown:" in page.text
    other = write_behaviours(tmp_path / "other", house=str(tmp_path / "gone.json"))
    _, page = read(report.write([other]))
    assert page.text.count("other: cannot read the map") == 2


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("rows", [None, [], [{"arm": "text"}], [{"arm": "text", "trials": "all", "value": "x"}]])
def test_strange_results(run: Path, rows: Any, read: Read) -> None:
    (run / "stages/deploy/results.json").write_text(json.dumps(results(16) | {"rows": rows}))
    _, page = read(report.write([run]))
    assert ("there is no finished deploy stage" in page.text) == (not rows)
