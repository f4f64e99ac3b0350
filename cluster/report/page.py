"""The pieces of a page: one HTML file without scripts or outside resources, for a phone, a desk and the printer.

Words are escaped here; where a function takes HTML, its docstring says so.
"""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from cluster.metrics.statistics import Estimate
from learner.files import Attempt, replace_file


def percent(value: float) -> str:
    """0.973 -> 97.3 %."""
    return f"{100 * value:.1f} %"


def rate(value: Estimate | None) -> str:
    """97.3 % [95.5, 98.4], or a dash."""
    return f"{percent(value.value)} [{100 * value.low:.1f}, {100 * value.high:.1f}]" if value else "–"


def decimal(value: Estimate | None, digits: int = 2, sign: str = "") -> str:
    """0.28 [0.24, 0.33], or a dash. sign: "+" shows that of positive values."""
    if not value:
        return "–"
    return f"{value.value:{sign}.{digits}f} [{value.low:.{digits}f}, {value.high:.{digits}f}]"


def count(value: float | None) -> str:
    """1234567 -> 1,234,567, or a dash."""
    return "–" if value is None else f"{value:,.0f}"


def span(values: Iterable[float | None], form: str = ",.0f") -> str:
    """One number, or lowest to highest where runs differ."""
    found = sorted({format(v, form): v for v in values if v is not None}.items(), key=lambda item: item[1])
    return " to ".join(dict.fromkeys([found[0][0], found[-1][0]])) if found else "–"


def table(head: Sequence[str], rows: Iterable[Sequence[object]], dense: bool = False) -> str:
    """An HTML table; the first cell of a row names it. Cells are escaped.

    On a phone a table with a head is stacked, each cell behind the name of its column; a dense one, of many rows and
    short cells, is set in smaller letters.
    """
    cells = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    top = f"<thead><tr>{cells}</tr></thead>" if head else ""
    body = "".join(f"<tr>{_cells(head, row)}</tr>" for row in rows)
    kind = "facts" if not head else "dense" if dense else "stacked"
    return f'<table class="{kind}">{top}<tbody>{body}</tbody></table>'


def _cells(head: Sequence[str], row: Sequence[object]) -> str:
    columns = head[1:] or [""] * (len(row) - 1)
    cells = [
        f'<td data-column="{escape(column)}">{unbroken(escape(str(cell)))}</td>'
        for column, cell in zip(columns, row[1:], strict=True)
    ]
    return f'<th scope="row">{escape(str(row[0]))}</th>{"".join(cells)}'


def unbroken(cell: str) -> str:
    """`cell` with intervals and percentages that stay on one line, where a narrow page would part them."""
    return re.sub(r"\[[-+.,\d ]*\]| %", lambda match: match.group().replace(" ", "\N{NO-BREAK SPACE}"), cell)


def section(title: str, *parts: str) -> str:
    """A titled section; parts are HTML."""
    return f"<section><h2>{escape(title)}</h2>{''.join(parts)}</section>"


def text(sentence: str) -> str:
    """A paragraph; the sentence is escaped."""
    return f"<p>{unbroken(escape(sentence))}</p>"


def header(title: str, lines: Sequence[str], *parts: str) -> str:
    """The top of the page: title, quiet lines below it, then parts, which are HTML."""
    below = "<br>".join(map(escape, lines))
    return f'<header><h1>{escape(title)}</h1><p class="quiet">{below}</p>{"".join(parts)}</header>'


def grid(kind: str, figures: Iterable[str]) -> str:
    """Figures side by side, as many as fit; `kind` is `plots`, `small`, `animations` or `films`; figures are HTML."""
    return f'<div class="{kind}">{"".join(figures)}</div>'


def figure(svg: str, caption: str) -> str:
    """A figure; the caption is escaped, the SVG is not."""
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def tiles(facts: Mapping[str, str]) -> str:
    """Facts side by side: what it is below how much."""
    cells = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts.items())
    return f'<dl class="tiles">{cells}</dl>'


def code(program: str) -> str:
    """The text of a program; it is escaped."""
    return f"<pre>{escape(program)}</pre>"


def tree(config: Mapping[str, Any]) -> str:
    """A nested mapping as a nested list."""
    items = []
    for key, value in config.items():
        inner = tree(value) if isinstance(value, Mapping) and value else f" {escape(_value(value))}"
        items.append(f"<li><b>{escape(str(key))}</b>{inner}</li>")
    return f"<ul>{''.join(items)}</ul>"


def _value(value: object) -> str:
    return value if isinstance(value, str) and value else json.dumps(value, default=str, ensure_ascii=False)


def animation(gif: Path, words: str, caption: str) -> str:
    """A moving figure, and its first frame for print and for readers who asked their system for less motion.

    words: what is seen; escaped here. caption: HTML.
    """

    def image(look: str, kind: str, content: bytes) -> str:
        data = f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
        return f'<img class="{look}" alt="{escape(words)}" src="{data}">' if content else ""

    both = image("moving", "gif", gif.read_bytes()) + image("still", "png", _first_frame(gif))
    return f"<figure>{both}<figcaption>{caption}</figcaption></figure>"


def _first_frame(gif: Path) -> bytes:
    """As PNG; empty when the animation is damaged."""
    from PIL import Image

    out = io.BytesIO()
    try:
        with Image.open(gif) as image:
            image.convert("RGB").save(out, "PNG", optimize=True)
    except OSError:
        return b""
    return out.getvalue()


def save(path: Path, title: str, body: str, attempt: Attempt | None = None) -> Path:
    """Write a page, in an attempt's name, complete or not at all: it may be open while a run rewrites it."""
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        # Holds browsers to it that nothing is fetched and nothing runs.
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">"
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body><main>{body}</main></body></html>\n"
    )
    replace_file(path, page.encode(), attempt)
    return path


STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0; background: #fff; color: #1a1a1a; font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto,
  "Liberation Sans", Arial, sans-serif; overflow-wrap: anywhere; }
main { max-width: 62rem; margin: 0 auto; padding: 1rem 1rem 3rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 1rem 0 .2rem; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .6rem; padding-top: .6rem; border-top: 1px solid #ccc; }
h3 { font-size: 1rem; margin: 1.2rem 0 .2rem; }
p { margin: .4rem 0; max-width: 44rem; }
.quiet { color: #555; }
.headline { font-size: 3.4rem; font-weight: 700; line-height: 1.1; margin: 1rem 0 0; color: #00507d; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .6rem; margin: 1rem 0; }
.tiles div { display: flex; flex-direction: column-reverse; padding: .5rem .7rem; background: #f3f5f7;
  border-radius: .4rem; }
.tiles dt { color: #555; font-size: .85rem; } .tiles dd { margin: 0; font-size: 1.2rem; font-weight: 600; }
figure { margin: 0; break-inside: avoid; } section > figure { max-width: 36rem; }
figcaption { font-size: .88rem; line-height: 1.4; }
svg { display: block; width: 100%; max-width: 100%; height: auto; }
svg text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", Arial, sans-serif !important; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); gap: 1.2rem; }
.small { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(47%, 13rem), 1fr)); gap: .8rem; }
.animations { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(47%, 11rem), 1fr)); gap: 1rem; }
.films { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 17rem), 1fr)); gap: 1.2rem; }
.animations img, .films img { width: 100%; height: auto; border-radius: .3rem; }
.still { display: none; } .solved { color: #00664c; } .failed { color: #a33c00; }
table { border-collapse: collapse; width: 100%; margin: .6rem 0; font-size: .92rem; }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem .3rem 0; border-bottom: 1px solid #ddd; }
thead th { color: #555; font-weight: 600; overflow-wrap: normal; } tbody th { font-weight: 500; }
td { font-variant-numeric: tabular-nums; } .facts th, .commands th { overflow-wrap: normal; }
@media screen and (max-width: 36rem) {
  .stacked thead { display: none; } .stacked tr, .stacked th, .stacked td { display: block; border: 0; padding: 0; }
  .stacked tr { padding: .4rem 0; border-bottom: 1px solid #ddd; } .stacked tbody th { font-weight: 600; }
  .stacked td { display: grid; grid-template-columns: 6.5rem 1fr; }
  .stacked td::before { content: attr(data-column); color: #555; }
  .dense { font-size: .8rem; } .dense thead th { font-size: .72rem; } .dense th, .dense td { padding-right: .3rem; }
}
.commands td { font-family: ui-monospace, "Liberation Mono", Menlo, Consolas, monospace; }
pre { background: #f3f5f7; border-radius: .4rem; padding: .7rem; overflow-x: auto; font-size: .82rem; }
.tree { columns: 20rem auto; font-size: .88rem; } .tree > ul { padding: 0; }
.tree ul { list-style: none; margin: 0; padding-left: 1.1rem; } .tree b { font-weight: 600; }
.tree > ul > li { break-inside: avoid; margin-bottom: .5rem; }
.verdict { font-size: 1.3rem; font-weight: 600; margin: 1rem 0; }
@media (prefers-reduced-motion: reduce) { .moving { display: none; } .still { display: block; } }
@media print {
  body { font-size: 10.5pt; } main { max-width: none; padding: 0; }
  .moving { display: none; } .still { display: block; }
  .plots { grid-template-columns: 1fr 1fr; } .small, .animations, .films { grid-template-columns: repeat(4, 1fr); }
  .tiles { grid-template-columns: repeat(4, 1fr); } tr { break-inside: avoid; } h2 { break-after: avoid; }
}
"""
