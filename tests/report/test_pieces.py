"""Templates escape what is shown: only what pieces and drawings have made is taken for HTML."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from markupsafe import Markup

from cluster.report import page
from cluster.report.panels import panels
from cluster.runs import run_data
from tests.report.behaviour_run import write_behaviours

EVIL = "<i>\"'&"
PIECES: dict[str, Callable[[], Markup]] = {
    "title of a section": lambda: page.section(EVIL),
    "part of a section that is no piece": lambda: page.section("a", EVIL),
    "parts that are joined": lambda: page.join(page.text("a"), EVIL),
    "lines of a caption": lambda: page.below(EVIL, page.quiet("a")),
    "head of a table": lambda: page.table(["a", EVIL], [("b", "c")]),
    "name of a row": lambda: page.table(["a", "b"], [(EVIL, "c")]),
    "cell": lambda: page.table(["a", "b"], [("b", EVIL)]),
    "subtitle": lambda: page.subtitle(EVIL),
    "headline": lambda: page.headline(EVIL),
    "verdict": lambda: page.verdict(EVIL),
    "paragraph": lambda: page.text(EVIL),
    "quiet words": lambda: page.quiet(EVIL),
    "marked words": lambda: page.mark(EVIL, "solved"),
    "header": lambda: page.header(EVIL, [EVIL]),
    "drawing that is none": lambda: page.figure(EVIL, "a"),
    "caption": lambda: page.figure(Markup("<svg></svg>"), EVIL),
    "name and value of a tile": lambda: page.tiles({EVIL: EVIL}),
    "program": lambda: page.code(EVIL),
    "key and value of a tree": lambda: page.tree({EVIL: {"a": EVIL}}),
}


@pytest.mark.parametrize("piece", PIECES)
def test_what_is_shown_is_escaped(piece: str) -> None:
    made = PIECES[piece]()
    assert isinstance(made, Markup)
    assert "&lt;i&gt;&#34;&#39;&amp;" in made
    assert "<i>" not in made


def test_pieces_stay_what_they_are_within_pieces(tmp_path: Path) -> None:
    inner = page.join(page.subtitle("a & b"), page.table(["c", "d"], [("e", "97.3 % [95.5, 98.4]")]))
    body = page.section("f", inner)
    assert "<h3>a &amp; b</h3><table" in body
    assert "97.3\N{NO-BREAK SPACE}% [95.5,\N{NO-BREAK SPACE}98.4]" in body
    source = page.save(tmp_path / "a.html", EVIL, body).read_text()
    assert source.startswith("<!doctype html>\n<html")
    assert "<title>&lt;i&gt;&#34;&#39;&amp;</title>" in source
    assert f"<body><main>{body}</main></body></html>" in source
    assert page.subtitle("") == ""
    assert "<h2>" not in page.section("", inner)


def test_a_row_of_another_length_than_its_head_is_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        page.table(["a", "b"], [("c", "d", "e")])


@pytest.mark.usefixtures("undrawn")
def test_every_panel_gives_pieces_and_nothing_else(make_run: Callable[..., Path], tmp_path: Path) -> None:
    runs = [run_data.load(make_run("a", learning_rate=EVIL, rows=5)), run_data.load(make_run("b", rows=5))]
    behaviours = [run_data.load(write_behaviours(tmp_path / "c"))]
    given: list[tuple[Any, list[run_data.Run]]] = [
        *((module, runs) for module in panels("agents")),
        *((module, behaviours) for module in panels("behaviours")),
    ]
    told = 0
    for module, of in given:
        made = module.panel(of, run_data.arms(of))
        assert made == "" or isinstance(made, Markup), module.__name__
        assert not re.search("<i>|&lt;(p|h3|table|section)", made), module.__name__
        told += made != ""
    assert told > 4
