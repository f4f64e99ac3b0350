"""The trials of a fitted transformer: frozen before anything is fitted, so that no choice can depend on the results.

    test behaviours ──> plain   the text and the end of a held-out behaviour
                    └─> how     two with the same end but different routes: the text of each with the end of the first,
                                so that only the text tells which route

Each is asked in the describer's words and in words that the describer never uses, from the map's start and from nearby
starts. This separates language from the goal's coordinates, as users in Salehi and Doncieux wished.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from learner.files import Attempt, replace_file
from learner.store.episodes import StoreError

FILE = "trials.jsonl"
WORDINGS = (
    "start by visiting {first}; {middle} comes next; finish at {last}",
    "via {first}, via {middle}: destination {last}",
    "take a route by way of {first} and {middle} that finishes at {last}",
    "the tour covers {first} followed by {middle}, with {last} as its terminus",
)
SHORT = (
    "start by visiting {first}; finish at {last}",
    "via {first}: destination {last}",
    "take a route by way of {first} that finishes at {last}",
    "the tour covers {first}, with {last} as its terminus",
)
SINGLE = ("destination: {last}", "finish at {last}", "{last} is the terminus", "the tour finishes at {last}")


@dataclass(frozen=True)
class Trial:
    """One trial."""

    text: str
    wanted: list[str]  # places in order
    target: list[float]  # x, y
    start: list[float]  # x, y, heading
    behaviour: int  # id of the behaviour whose text it is
    kind: str  # plain, how
    wording: str  # described, reworded
    begins: str  # map, nearby


def reworded(wanted: Sequence[str], number: int) -> str:
    """A text that asks for places in an order, in words that no describer uses; the number selects the words."""
    places = [f"the {place}" for place in wanted]
    forms = SINGLE if len(places) == 1 else SHORT if len(places) == 2 else WORDINGS
    middle = " and ".join(places[1:-1])
    return forms[number % len(forms)].format(first=places[0], middle=middle, last=places[-1])


def rivals(
    descriptor: NDArray[np.float32],
    wanted: Sequence[Sequence[str]],
    group: NDArray[np.int64],
    near: float,
    count: int,
    generator: np.random.Generator,
) -> list[tuple[int, int]]:
    """Up to `count` pairs of rows that end within `near` world units by routes that share only the end.

    descriptor: [N, 2]; wanted: the places of each row's text, in order; group: [N]. A row is in one pair at most, and
    the rows of a pair are in different groups. Both texts name a place before the last, and the same last one.
    """
    way = [frozenset(places[:-1]) - set(places[-1:]) for places in wanted]
    free = set(range(len(wanted)))
    pairs: list[tuple[int, int]] = []
    for row in generator.permutation(len(wanted)).tolist():
        if row not in free or not way[row] or len(pairs) == count:
            continue
        apart = np.linalg.norm(descriptor - descriptor[row], axis=1)
        for other in np.argsort(apart, kind="stable").tolist():
            if apart[other] > near:
                break
            fits = other in free and group[other] != group[row] and wanted[other] and way[other]
            if fits and wanted[other][-1] == wanted[row][-1] and not way[other] & way[row]:
                pairs.append((row, other))
                free -= {row, other}
                break
    return pairs


def save(trials: Sequence[Trial], folder: Path, attempt: Attempt | None = None) -> None:
    """Save one line per trial, on behalf of an attempt: complete or absent."""
    replace_file(folder / FILE, "".join(json.dumps(asdict(trial)) + "\n" for trial in trials).encode(), attempt)


def load(folder: Path) -> list[Trial]:
    """Read what `save` wrote.

    Raises:
        StoreError: the file is missing or damaged.
    """
    try:
        return [Trial(**json.loads(line)) for line in (folder / FILE).read_text().splitlines()]
    except (OSError, ValueError, TypeError) as error:
        raise StoreError(f"{folder / FILE} cannot be read: {error}; run the stage split again") from None
