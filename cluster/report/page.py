"""The pieces of a page: one HTML file without scripts or outside resources, for a phone, a desk and the printer.

    words and numbers ──> a function here ──> its macro of templates/pieces.html ──> `Markup` ──> templates/page.html

Templates escape every string. Only `Markup`, which pieces and drawings are, is taken for HTML: parts are joined by
`join`, since `"".join` makes a plain string, which would be escaped.
"""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

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


def unbroken(words: object) -> str:
    """`words` with intervals and percentages that stay on one line, where a narrow page would part them."""
    return re.sub(r"\[[-+.,\d ]*\]| %", lambda match: match.group().replace(" ", "\N{NO-BREAK SPACE}"), str(words))


def _configured(value: object) -> str:
    return value if isinstance(value, str) and value else json.dumps(value, default=str, ensure_ascii=False)


TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"), autoescape=True, undefined=StrictUndefined
)
TEMPLATES.filters |= {"unbroken": unbroken, "configured": _configured}
_PIECES = TEMPLATES.get_template("pieces.html").module


def _piece(name: str, *values: object) -> Markup:
    made: Markup = getattr(_PIECES, name)(*values)
    return made


def join(*parts: str) -> Markup:
    """Parts one after the other; those that are no `Markup` are escaped."""
    return Markup().join(parts)


def below(*parts: str) -> Markup:
    """Parts below each other."""
    return _piece("breaks", parts)


def table(head: Sequence[str], rows: Iterable[Sequence[object]], dense: bool = False, kind: str = "") -> Markup:
    """A table; the first cell of a row names it.

    On a phone a table with a head is stacked, each cell behind the name of its column; a dense one, of many rows and
    short cells, is set in smaller letters. kind: another look, as `commands`.
    """
    kind = kind or ("facts" if not head else "dense" if dense else "stacked")
    columns = [(row, head[1:] or [""] * (len(row) - 1)) for row in rows]
    cells = [(row[0], list(zip(names, row[1:], strict=True))) for row, names in columns]
    return _piece("table", kind, head, cells)


def section(title: str, *parts: str) -> Markup:
    """A section of parts, with a title or, where that is "", without."""
    return _piece("section", title, parts)


def subtitle(words: str) -> Markup:
    """Above a part of a section; nothing of ""."""
    return _piece("subtitle", words) if words else Markup()


def headline(words: str) -> Markup:
    """What a reader sees first: a number, in large letters."""
    return _piece("headline", words)


def verdict(sentence: str) -> Markup:
    """What a page comes to."""
    return _piece("verdict", sentence)


def text(sentence: str) -> Markup:
    """A paragraph."""
    return _piece("text", sentence)


def quiet(words: str) -> Markup:
    """Words of a caption that matter less."""
    return _piece("quiet", words)


def mark(words: str, kind: str = "") -> Markup:
    """Words of a caption that matter most; `kind` is `solved`, `failed` or ""."""
    return _piece("mark", kind, words)


def header(title: str, lines: Sequence[str], *parts: str) -> Markup:
    """The top of the page: title, quiet lines below it, then parts."""
    return _piece("header", title, lines, parts)


def grid(kind: str, figures: Iterable[str]) -> Markup:
    """Figures side by side, as many as fit; `kind` is `plots`, `small`, `animations` or `films`; `tree` of a `tree`."""
    return _piece("grid", kind, list(figures))


def figure(drawing: str, caption: str) -> Markup:
    """A drawing and what it shows."""
    return _piece("figure", drawing, caption)


def tiles(facts: Mapping[str, str]) -> Markup:
    """Facts side by side: what it is below how much."""
    return _piece("tiles", facts)


def code(program: str) -> Markup:
    """The text of a program."""
    return _piece("code", program)


def tree(config: Mapping[str, Any]) -> Markup:
    """A nested mapping as a nested list."""
    return _piece("tree", config)


def cells(picture: Markup, size: str, entries: Sequence[Mapping[str, Any]], chosen: int) -> Markup:
    """A picture whose cells can be chosen, each with what is shown then, without a script.

    size: CSS, `--wide` and `--tall` of a cell as shares of the picture's width.
    entries: of each cell `place`, CSS, `--x` and `--y` in the same shares; `words` for those who cannot see it;
        `drawing`; and `behaviours`, each with `name`, `colour`, `facts`, `texts`, `file` and `weights` in base64.
    chosen: index of the one that is chosen at first.
    """
    return _piece("cells", picture, size, entries, chosen)


def animation(gif: Path, words: str, caption: str) -> Markup:
    """A moving figure, and its first frame for print and for readers who asked their system for less motion.

    words: what is seen.
    """
    both = ("moving", "gif", gif.read_bytes()), ("still", "png", _first_frame(gif))
    images = [(look, kind, base64.b64encode(content).decode()) for look, kind, content in both if content]
    return _piece("animation", images, words, caption)


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
    page = TEMPLATES.get_template("page.html").render(title=title, body=body)
    replace_file(path, page.encode(), attempt)
    return path
