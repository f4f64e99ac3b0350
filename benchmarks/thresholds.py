"""Above which similarity is a goal reached? Compares what players of Crafter do with their possible goals.

    python -m benchmarks.thresholds        prints two tables and a recommendation, as Markdown

A goal is rewarded if the name of the event is similar enough to it: the cosine of their embeddings is above a threshold
(Du et al. 2023, arXiv 2302.06692, section 3). The right threshold depends on the encoder, so this script measures it
for ours. A pair of an event and a goal is a match if the goal is one of the names of the event, in any wording. A match
below the threshold is missed; any other pair above it is false.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from envs.crafter.rules import COMBINED, SENSIBLE, SYNONYMS
from envs.crafter.tasks import GOALS
from llm_service.embedding import embed_one

THRESHOLDS = (0.7, 0.75, 0.8, 0.85, 0.88, 0.9, 0.95, 0.99)
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
OTHER = "other actions"
"""Names of actions that are not goals of this environment: senseless goals, with or without a model."""

REWORDED: dict[str, tuple[str, ...]] = {
    "sleep": ("go to sleep", "take a nap", "sleep for a while"),
    "eat plant": ("eat the ripe plant", "eat a ripe plant", "eat some of the plant"),
    "attack zombie": ("fight the zombie", "kill a zombie", "defeat the zombie"),
    "attack skeleton": ("fight a skeleton", "kill the skeleton", "defeat the skeleton"),
    "attack cow": ("kill the cow", "hunt a cow", "eat the cow"),
    "chop tree": ("chop down the tree", "cut down a tree", "chop wood", "collect wood from a tree"),
    "chop grass": ("cut the grass", "chop some grass", "gather grass"),
    "mine stone": ("mine some stone", "dig stone", "collect stone"),
    "mine coal": ("mine some coal", "dig for coal", "collect coal"),
    "mine iron": ("mine some iron", "mine iron ore", "collect iron"),
    "mine diamond": ("mine diamonds", "dig for a diamond", "collect a diamond"),
    "drink water": ("drink some water", "have a drink of water", "drink from the water"),
    "place stone": ("place a stone block", "put down a stone", "place some stone"),
    "place crafting table": ("place a crafting table", "build a crafting table", "craft a table"),
    "place furnace": ("build a furnace", "put down a furnace", "place a stone furnace"),
    "place plant": ("plant a sapling", "place a sapling", "put the plant down"),
    "make wood pickaxe": ("craft a wooden pickaxe", "pick a wood pickaxe", "make a wooden pickaxe"),
    "make stone pickaxe": ("craft a stone pickaxe", "build a stone pickaxe"),
    "make iron pickaxe": ("craft an iron pickaxe", "build an iron pickaxe"),
    "make wood sword": ("craft a wooden sword", "make a wooden sword"),
    "make stone sword": ("craft a stone sword", "build a stone sword"),
    "make iron sword": ("craft an iron sword", "build an iron sword"),
}
"""Goals as someone who does not know their names would word them."""

Goals = Sequence[tuple[str, str]]
"""(wording, intended goal)."""


def wordings() -> dict[str, Goals]:
    """Goals by kind of wording."""
    framed = [(said, goal) for goal in GOALS for said in _framed(goal)]
    return {
        "the goal's name": [(goal, goal) for goal in GOALS],
        "with articles": framed,
        "second name": [(other, goal) for other, goal in SYNONYMS.items()],
        "other words": [(said, goal) for goal, phrases in REWORDED.items() for said in phrases],
        OTHER: [(said, said) for said in COMBINED if said not in {*GOALS, *SYNONYMS}],
    }


def _framed(goal: str) -> list[str]:
    verb, _, noun = goal.partition(" ")
    with_article = [f"{verb} {article} {noun}" for article in ("the", "a")] if noun else []
    return [goal.capitalize(), f"go and {goal}", *with_article]


class Pairs(NamedTuple):
    """Similarities of events and goals, for one kind of wording."""

    matches: NDArray[np.float32]
    sensible: NDArray[np.float32]  # other pairs whose event can succeed
    senseless: NDArray[np.float32]  # all other pairs, which count only if trying counts (success=loose)


def compare(goals: Goals, embed: Callable[[str], NDArray[np.float32]]) -> Pairs:
    """Pairs of every event with every goal."""
    events = np.stack([embed(event) for event in COMBINED])
    similarity = np.stack([embed(said) for said, _ in goals]) @ events.T
    match = np.array([[SYNONYMS.get(event, event) == goal for event in COMBINED] for _, goal in goals])
    sensible = np.array([event in SENSIBLE for event in COMBINED])
    return Pairs(similarity[match], similarity[~match & sensible], similarity[~match & ~sensible])


def recommended(found: Mapping[str, Pairs], everything: bool) -> float:
    """The lowest threshold without a false match, for events that can succeed and goals of this world, or for
    everything.

    A false match always teaches something wrong; a missed match only gives no reward for one wording of a goal.
    """
    own = [pairs.sensible for said, pairs in found.items() if said != OTHER]
    highest = np.concatenate([values for pairs in found.values() for values in pairs[1:]] if everything else own).max()
    return next(threshold for threshold in THRESHOLDS if threshold > highest)


def markdown(found: Mapping[str, Pairs]) -> str:
    """Both tables and the recommendation."""
    lines = [f"| pairs | number | {' | '.join(f'{q:.0%}' for q in QUANTILES)} |", "|---" * 9 + "|"]
    for said, pairs in found.items():
        for name, values in zip(("match", "other event", "senseless event"), pairs, strict=True):
            quantiles = " | ".join(f"{q:.3f}" for q in np.quantile(values, QUANTILES))
            lines.append(f"| {name}, {said} | {len(values)} | {quantiles} |")
    goals = [said for said in found if said != OTHER]
    heads = [
        *(f"missed, {said}" for said in goals),
        "false, other event",
        "false, senseless event",
        f"false, {OTHER}",
    ]
    lines += ["", f"| threshold | {' | '.join(heads)} |", "|---" * (1 + len(heads)) + "|"]
    for threshold in THRESHOLDS:
        counts = [f"{(found[said].matches <= threshold).sum()} of {len(found[said].matches)}" for said in goals]
        for which in (1, 2):
            values = np.concatenate([found[said][which] for said in goals])
            counts.append(str((values > threshold).sum()))
        counts.append(str((np.concatenate(found[OTHER][1:]) > threshold).sum()))
        lines.append(f"| {threshold:g} | {' | '.join(counts)} |")
    own, everything = (recommended(found, which) for which in (False, True))
    lines += ["", f"Recommended: {own:g} for goals of this world where success counts; {everything:g} for everything."]
    return "\n".join(lines)


if __name__ == "__main__":
    print(markdown({said: compare(goals, embed_one) for said, goals in wordings().items()}))
