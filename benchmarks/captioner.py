"""How often is the captioner of Crafter right? Plays held-out episodes, by day and by night.

    python -m benchmarks.captioner [FOLDER] > benchmarks/results/captioner.json      all counts
    python -m benchmarks.captioner [FOLDER] --markdown                               tables of the same

A captioner says what holds in a picture, and what was done between two (Du et al. 2023, arXiv 2302.06692, 5.2). Players
walk about and do what makes sense; episodes begin as the game does, or anywhere, where rare things are frequent.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from envs.crafter.captions import NAMES
from learner.captions.captioner import Captioner
from learner.captions.fit import measured

OURS = Path(__file__).resolve().parents[1] / "configs/knowledge/crafter/captioner"
OBSERVED = ["pixels", "cells", "facts"]
EPISODES: dict[str, tuple[int, dict[str, Any]]] = {
    "anywhere": (2048, {"start": "anywhere", "length": 30}),
    "game": (128, {"start": "middle", "length": 400}),
}
"""By name: how many episodes, and the options of the environment."""
PARTS = ("day", "night")


def measure(folder: Path) -> dict[str, Any]:
    """Tables of `Accuracy`, by kind of episodes."""
    captioner = Captioner.load(folder)
    return {
        name: measured(captioner, "crafter/Named", options | {"observe": OBSERVED}, episodes)
        for name, (episodes, options) in EPISODES.items()
    }


def markdown(found: dict[str, Any]) -> Iterator[str]:
    """Lines of three tables: sentences that are exactly right, things in view, and events. Items and feelings are left
    out: their sentences tell."""
    kinds = [*next(iter(found.values()))["all"]["exact"]]
    yield f"| episodes | states | {' | '.join(kinds)} |"
    yield "|---" * (len(kinds) + 2) + "|"
    for name, table in found.items():
        for part in PARTS:
            exact = [f"{table[part]['exact'][kind]:.1%}" for kind in kinds]
            yield f"| {name}, {part} | {table[part]['states']:,} | {' | '.join(exact)} |"
        guess = [f"{table['all']['constant'][kind]:.1%}" for kind in kinds]
        yield f"| {name}, always the most frequent | {table['all']['states']:,} | {' | '.join(guess)} |"
    yield ""
    yield "| in view, anywhere | by day | precision | recall | at night | precision | recall |"
    yield "|---|---|---|---|---|---|---|"
    for thing in NAMES:
        cells = [cell for part in PARTS for cell in _scores(found["anywhere"][part]["facts"][thing])]
        yield f"| {thing} | {' | '.join(cells)} |"
    yield ""
    yield "| event | anywhere | precision | recall | in the game | precision | recall |"
    yield "|---|---|---|---|---|---|---|"
    for event in found["anywhere"]["all"]["events"]:
        cells = [cell for table in found.values() for cell in _scores(table["all"]["events"][event])]
        yield f"| {event} | {' | '.join(cells)} |"


def _scores(found: dict[str, Any]) -> Sequence[str]:
    shares = ("-" if found[key] is None else f"{found[key]:.1%}" for key in ("precision", "recall"))
    return f"{found['times']:,}", *shares


def main(words: Sequence[str]) -> None:
    """Print what the arguments ask for."""
    folder = next((Path(word) for word in words if not word.startswith("--")), OURS)
    found = measure(folder)
    print("\n".join(markdown(found)) if "--markdown" in words else json.dumps(found, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
