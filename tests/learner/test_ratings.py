"""Ratings: what was given stands, whatever was torn, killed or written at once; nothing is ever rewritten."""

from __future__ import annotations

import json
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learner.behaviours.agreement import agreement
from learner.behaviours.ratings import (
    LEVELS,
    MODEL,
    PEOPLE,
    RULE,
    RatingError,
    Ratings,
    pairs,
    read,
    scores,
    shuffled,
    waiting,
)

ITEMS = ["a", "b", "c", "d"]
EVENTS = st.one_of(st.just("back"), st.tuples(st.sampled_from(ITEMS), st.sampled_from([None, *LEVELS])))


def play(ratings: Ratings, events: list[object]) -> list[list[tuple[str, float | None]]]:
    """What must stand after each event, by a list that one pushes to and pops from."""
    standing: list[tuple[str, float | None]] = []
    after = []
    for event in events:
        if event == "back":
            taken = ratings.take_back()
            assert (taken and (taken.item, taken.score)) == (standing.pop() if standing else None)
        else:
            ratings.give(*event)  # type: ignore[misc]
            standing.append(event)  # type: ignore[arg-type]
        after.append(list(standing))
    return after


def stands(ratings: Ratings) -> list[tuple[str, float | None]]:
    return [(answer.item, answer.score) for answer in ratings.answers()]


@settings(max_examples=25, deadline=None)
@given(st.lists(EVENTS, max_size=12))
def test_what_stands_is_what_was_given_and_not_taken_back(events):
    with tempfile.TemporaryDirectory() as folder:
        ratings = Ratings(Path(folder) / "ratings", "ana")
        after = play(ratings, events)
        assert stands(ratings) == (after[-1] if after else [])


@settings(max_examples=25, deadline=None)
@given(st.lists(EVENTS, min_size=1, max_size=8), st.lists(EVENTS, max_size=4), st.integers(0, 10**6))
def test_a_file_cut_anywhere_keeps_every_whole_line_and_goes_on(events, more, place):
    with tempfile.TemporaryDirectory() as folder:
        ratings = Ratings(Path(folder) / "ratings", "ana")
        sizes, after = [0], [[]]
        for event in events:
            before = ratings.path.read_bytes() if ratings.path.exists() else b""
            play_one = stands(ratings)
            if event == "back":
                ratings.take_back()
                play_one = play_one[:-1]
            else:
                ratings.give(*event)
                play_one = [*play_one, event]
            content = ratings.path.read_bytes() if ratings.path.exists() else b""
            assert content.startswith(before)  # never rewritten
            sizes.append(len(content))
            after.append(play_one)
        if not sizes[-1]:
            return
        cut = place % (sizes[-1] + 1)
        ratings.path.write_bytes(content[:cut])
        # A line that lacks only its end says all that it has to say.
        whole = max(k for k, size in enumerate(sizes) if size <= cut or (size - 1 == cut and size > sizes[k - 1]))
        assert stands(ratings) == after[whole]
        expected = list(after[whole])
        for event in more:
            if event == "back":
                ratings.take_back()
                expected = expected[:-1]
            else:
                ratings.give(*event)
                expected.append(event)
        assert stands(ratings) == expected
        assert ratings.path.read_bytes().startswith(content[:cut])


def test_an_answer_is_on_the_disk_when_it_is_given(tmp_path, monkeypatch):
    """All of its bytes are synced, and the names of its file and folder."""
    synced: dict[str, int] = {}
    real = os.fsync

    def fsync(descriptor: int) -> None:
        real(descriptor)
        synced[os.readlink(f"/proc/self/fd/{descriptor}")] = os.fstat(descriptor).st_size

    monkeypatch.setattr(os, "fsync", fsync)
    ratings = Ratings(tmp_path / "ratings", "ana")
    for event in (lambda: ratings.give("a", 0.5), lambda: ratings.give("b", None), ratings.take_back):
        synced.clear()
        event()
        assert synced[str(ratings.path)] == ratings.path.stat().st_size
        assert str(tmp_path / "ratings") in synced
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda file, content: 3)  # a full disk takes some bytes
        with pytest.raises(OSError, match="not saved"):
            ratings.give("c", 0.1)


def test_many_at_once_lose_nothing(tmp_path):
    def rate(worker: int) -> None:
        for k in range(20):
            Ratings(tmp_path / "ratings", "ana").give(f"{worker}-{k}", k % 11 / 10)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(rate, range(6)))
    rows = [json.loads(line) for line in (tmp_path / "ratings/ana.jsonl").read_text().splitlines()]
    assert [row["n"] for row in rows] == list(range(120))
    assert {row["item"]: row["score"] for row in rows} == {f"{w}-{k}": k % 11 / 10 for w in range(6) for k in range(20)}


@pytest.mark.parametrize("link", ["file", "to nothing", "folder"])
def test_a_symbolic_link_is_refused_and_what_it_names_stays(tmp_path, link):
    """Else whoever fills a run folder chooses which file of the rater's is read, made or appended to."""
    outside, folder = tmp_path / "outside", tmp_path / "ratings"
    Ratings(outside, "ana").give("a", 0.5)
    before = {path.name: path.read_bytes() for path in outside.iterdir()}
    if link == "folder":
        folder.symlink_to(outside)
    else:
        folder.mkdir()
        (folder / "ana.jsonl").symlink_to(outside / ("ana.jsonl" if link == "file" else "new.jsonl"))
    ratings = Ratings(folder, "ana")
    for event in (ratings.answers, ratings.take_back, lambda: ratings.give("b", 0.1), lambda: read(folder)):
        with pytest.raises(RatingError, match=r"ana\.jsonl is reached by a symbolic link: put the file itself there"):
            event()
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == before


@pytest.mark.parametrize(
    "line",
    ["[]", "7", '{"n": 1}', '{"n": 0, "item": "a", "score": 0.5}', '{"n": 1, "item": "a", "score": 7}',
     '{"n": 1, "item": 3, "score": 0.5}', '{"n": 1, "item": "a"}', '{"n": 1, "retracts": "0"}',
     '{"n": 1, "item": "a", "score": [0.5]}'],
)  # fmt: skip
def test_a_whole_line_that_is_no_rating_is_told(tmp_path, line):
    ratings = Ratings(tmp_path / "ratings", "ana")
    ratings.give("a", 0.5)
    before = ratings.path.read_text()
    ratings.path.write_text(f"{before}{line}\n")
    for event in (
        ratings.answers,
        ratings.take_back,
        lambda: ratings.give("b", 0.1),
        lambda: read(tmp_path / "ratings"),
    ):
        with pytest.raises(RatingError, match=r"line 2 of .*ana\.jsonl is no rating"):
            event()
    assert ratings.path.read_text() == f"{before}{line}\n"


@pytest.mark.parametrize(
    "name", ["", "-ana", "Ana", "a/b", "../ana", "a" * 33, "ana\n", "a b", "á", ".", "ana.jsonl", "rule"]
)
def test_names_that_are_no_names_of_files(tmp_path, name):
    with pytest.raises(RatingError, match="a rater's name"):
        Ratings(tmp_path, name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("score", [-0.1, 1.1, 0.55, float("nan"), 5])
def test_scores_are_of_eleven_levels(tmp_path, score):
    with pytest.raises(RatingError, match="a score is one of"):
        Ratings(tmp_path / "ratings", "ana").give("a", score)
    assert not (tmp_path / "ratings").exists()


def test_what_was_passed_over_comes_again_in_the_end(tmp_path):
    ratings = Ratings(tmp_path / "ratings", "ana")
    assert waiting(ITEMS, []) == ITEMS
    ratings.give("b", None)
    ratings.give("a", 0.3)
    ratings.give("c", None)
    assert waiting(ITEMS, ratings.answers()) == ["d", "b", "c"]
    ratings.give("b", None)
    assert waiting(ITEMS, ratings.answers()) == ["d", "c", "b"]
    ratings.give("c", 0.0)
    ratings.give("d", 1.0)
    ratings.take_back()
    assert waiting(ITEMS, ratings.answers()) == ["d", "b"]
    assert scores(ratings.answers()) == {"a": 0.3, "c": 0.0}
    Ratings(tmp_path / "ratings", "bo").give("a", None)
    assert read(tmp_path / "ratings") == {"ana": {"a": 0.3, "c": 0.0}}  # bo has rated nothing


def test_each_rater_has_an_order_of_their_own():
    items = [f"item {k}" for k in range(60)]
    orders = [shuffled(items, who) for who in ("ana", "bo", "ana")]
    assert orders[0] == orders[2] == shuffled(items[::-1], "ana")
    assert orders[0] != orders[1]
    assert all(sorted(order) == sorted(items) for order in orders)
    places = np.array([[order.index(item) for item in items] for order in orders[:2]])
    assert abs(np.corrcoef(places)[0, 1]) < 0.4


def test_pairs_are_of_what_both_have_rated():
    people = {"ana": {"x": 0.2, "y": 0.4, "z": 1.0}, "bo": {"y": 0.6, "z": 0.0}, "cy": {"w": 0.1}}
    model, rule = {"y": 0.3, "z": 0.9, "v": 0.0}, {"x": 0.0, "y": 0.5, "z": 1.0, "w": 0.2, "v": 0.7}
    found = {names: (a.tolist(), b.tolist()) for names, (a, b) in pairs(people, model, rule).items()}
    assert found == {
        (MODEL, RULE): ([0.0, 0.3, 0.9], [0.7, 0.5, 1.0]),
        (PEOPLE, RULE): ([0.1, 0.2, 0.5, 0.5], [0.2, 0.0, 0.5, 1.0]),
        (PEOPLE, MODEL): ([0.5, 0.5], [0.3, 0.9]),
        ("ana", "bo"): ([0.4, 1.0], [0.6, 0.0]),
    }
    assert agreement(*pairs(people, model, rule)[(PEOPLE, RULE)])["mse"]["value"] == pytest.approx(0.3 / 4)
    assert pairs({}, {}, rule) == {}
