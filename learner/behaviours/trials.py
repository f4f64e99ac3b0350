"""The trials of a fitted transformer: frozen before anything is fitted, so that no choice can depend on the results.

    test behaviours ──> plain   the text and the end of a held-out behaviour
                    └─> how     two with the same end that pass other places: the text of each with the end of the
                                first, so that only the text tells which route

Each is asked in the describer's words, in words that the describer never uses, and in sentences of another grammar,
whose order of words is not the order of the route; from the map's start and from a nearby one. The two texts of a
`how` pair share target, start and noise, so whatever differs between their episodes comes from the text. This separates
language from the goal's coordinates, as users in Salehi and Doncieux wished.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from learner.behaviours.words import describes_route, obeyed
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
PARAPHRASED = (
    "{last} is where I want you to be in the end; before that, call at {first} and, after it, {middle}",
    "do not stop at {last} until you have seen {first} and, following that, {middle}",
    "before {last} becomes your final stop, you must have been to {reversed}, and earlier still to {first}",
    "once {first} and, later, {middle} lie behind you, {last} may be where your journey ends",
)
SHORT_PARAPHRASED = (
    "{last} is where I want you to be in the end; before that, call at {first}",
    "do not stop at {last} until you have seen {first}",
    "before {last} becomes your final stop, you must have been to {first}",
    "once {first} lies behind you, {last} may be where your journey ends",
)
AT_MOST = 0.5
"""How well a rival may obey a text at most: else its route is hardly another one."""


@dataclass(frozen=True)
class Trial:
    """One trial."""

    text: str
    wanted: list[str]  # places in order, at least two different ones
    rival: list[str]  # places of the other text of its pair; plain: none
    target: list[float]  # x, y
    start: list[float]  # x, y, heading
    behaviour: int  # id of the behaviour whose text it is
    pair: int  # number of its pair or single behaviour: trials of one number are asked with the same noise
    kind: str  # plain, how
    wording: str  # described, reworded, paraphrased
    begins: str  # map, nearby


def reworded(wanted: Sequence[str], number: int) -> str:
    """A text that asks for at least two places in an order, in words that no describer uses; the number selects the
    words."""
    places = [f"the {place}" for place in wanted]
    forms = SHORT if len(places) == 2 else WORDINGS
    middle = " and ".join(places[1:-1])
    return forms[number % len(forms)].format(first=places[0], middle=middle, last=places[-1])


def paraphrased(wanted: Sequence[str], number: int, other_names: Mapping[str, Sequence[str]]) -> str:
    """A text that asks for at least two places in subordinate clauses, mostly with the last place first, so that the
    order in which it names them is not the order asked for.

    number: selects the grammar, and in every second four whether places have other names.
    other_names: these names, by object or colour (`Scene.other_names`).
    """
    places = [f"the {place}" for place in wanted]
    if number // len(PARAPHRASED) % 2:
        places = [f"the {_renamed(place, number, other_names)}" for place in wanted]
    forms = SHORT_PARAPHRASED if len(places) == 2 else PARAPHRASED
    middle, backwards = ", then ".join(places[1:-1]), ", before it ".join(places[-2:0:-1])
    given = {"first": places[0], "middle": middle, "reversed": backwards, "last": places[-1]}
    text = forms[number % len(forms)].format(**given)
    return f"{text[0].upper()}{text[1:]}."


def _renamed(place: str, number: int, other_names: Mapping[str, Sequence[str]]) -> str:
    """ "couch" of "sofa", "crimson tile" of "red tile"; the number selects one of several names."""
    name = place if place in other_names else place.removesuffix(" tile")
    others = other_names.get(name, (name,))
    return others[number % len(others)] + place.removeprefix(name)


@dataclass(frozen=True)
class Route:
    """A held-out behaviour that could be asked for, with a true text."""

    wanted: list[str]  # places that its text names, in order
    passed: list[str]  # places that it visits, at every visit
    last: set[str]  # where it ends
    end: tuple[float, float]  # world units

    def differs(self, other: Route, near: float) -> bool:
        """Whether two behaviours are a pair: ends within `near` world units, the same last place, other routes.

        Routes are what the robots pass, not what their texts happen to mention: each may obey the other's text by at
        most AT_MOST, while both obey their own fully.
        """
        return (
            float(np.hypot(self.end[0] - other.end[0], self.end[1] - other.end[1])) <= near
            and self.wanted[-1] == other.wanted[-1]
            and max(
                obeyed(self.wanted, other.passed, other.last),
                obeyed(other.wanted, self.passed, self.last),
            )
            <= AT_MOST
        )


def rivals(routes: Sequence[Route], near: float, count: int, generator: np.random.Generator) -> list[tuple[int, int]]:
    """Up to `count` pairs of numbers of routes that `differ`, each route in at most one pair.

    A pair's second is the one that ends nearest to its first. Routes whose text is only an end are in none.
    """
    end = np.array([route.end for route in routes], np.float64).reshape(-1, 2)
    free = {row for row, route in enumerate(routes) if describes_route(route.wanted)}
    pairs: list[tuple[int, int]] = []
    for row in generator.permutation(len(routes)).tolist():
        if row not in free or len(pairs) == count:
            continue
        apart = np.linalg.norm(end - end[row], axis=1)
        for other in np.argsort(apart, kind="stable")[: int((apart <= near).sum())].tolist():
            if other != row and other in free and routes[row].differs(routes[other], near):
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
