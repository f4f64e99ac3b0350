"""Probes: a few states of BabyAI whose right action is plain, to watch what a language model's policy learns first.

    mission, caption, what was seen and done ──> policy ──> probability of the right action, after every update

Carta et al. 2023 (arXiv 2302.02662) draw such curves too; these states are our own. Each differs from a neighbour in
one thing that matters: the side on which the goal is, what is carried, which of two events comes first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from envs.text import TextTable
from learner.models.config import HISTORY

if TYPE_CHECKING:  # a report wants the texts alone, and no PyTorch
    from learner.models.language.llm_policy import LanguagePolicy


class Probe(NamedTuple):
    """A state, in the words of BabyAI's captions, and what is right in it.

    earlier: captions of the steps before, each with what was done then, oldest first.
    """

    mission: str
    caption: str
    action: str
    earlier: tuple[tuple[str, str], ...] = ()


_BOX_AND_BALL = "You see a wall 4 steps forward. You see a yellow ball 2 steps left. You see a red box 2 steps right"

PROBES = {
    "ahead": Probe(
        "go to the blue key", "You see a wall 2 steps right. You see a blue key 3 steps forward", "go forward"
    ),
    "on_the_left": Probe(
        "go to the purple ball", "You see a wall 4 steps forward. You see a purple ball 2 steps left", "turn left"
    ),
    "on_the_right": Probe(
        "go to the purple ball", "You see a wall 4 steps forward. You see a purple ball 2 steps right", "turn right"
    ),
    "in_reach": Probe(
        "pick up the grey ball", "You see a wall 2 steps left. You see a grey ball 1 step forward", "pick up"
    ),
    "key_first": Probe(
        "open the yellow door",
        "You see a wall 3 steps right. You see a locked yellow door 2 steps left and 3 steps forward. "
        "You see a yellow key 1 step forward",
        "pick up",
    ),
    "key_in_hand": Probe(
        "open the yellow door",
        "You carry a yellow key. You see a wall 2 steps left. You see a locked yellow door 1 step forward",
        "toggle",
    ),
    "place_found": Probe(
        "put the red ball next to the green key",
        "You carry a red ball. You see a wall 3 steps left. You see a green key 2 steps forward",
        "drop",
    ),
    "box_then_ball": Probe("pick up the red box, then go to the yellow ball", _BOX_AND_BALL, "turn right"),
    "ball_after_box": Probe("go to the yellow ball after you pick up the red box", _BOX_AND_BALL, "turn right"),
    "box_in_hand": Probe(
        "pick up the red box, then go to the yellow ball",
        "You carry a red box. You see a wall 4 steps forward. You see a yellow ball 2 steps left",
        "turn left",
    ),
    "turned_away": Probe(
        "go to the green box",
        "You see a wall 3 steps forward",
        "turn right",
        (
            (
                "You see a wall 4 steps forward. You see a wall 3 steps left. "
                "You see a green box 3 steps right and 1 step forward",
                "turn left",
            ),
        ),
    ),
}
"""By name. The last one needs to be told of the step before."""


def probe(policy: LanguagePolicy) -> dict[str, float]:
    """The probability in [0, 1] of the right action in each probe, without variation of prompts.

    Left out are probes whose action the world does not have, or whose past the policy is not told; all of them where
    prompts are made of anything but mission and caption.
    """
    prompter = policy.prompter
    if prompter.fields.keys() - {HISTORY} != {"mission", "caption"}:
        return {}
    places = prompter.fields[HISTORY].shape[0] if HISTORY in prompter.fields else 0
    chosen = {n: p for n, p in PROBES.items() if p.action in prompter.names and 2 * len(p.earlier) <= places}
    if not chosen:
        return {}
    texts, asked = TextTable(), list(chosen.values())
    obs = {
        "mission": np.array([texts.intern(p.mission) for p in asked]),
        "caption": np.array([texts.intern(p.caption) for p in asked]),
    }
    if places:
        pasts = [[text for step in p.earlier for text in step] for p in asked]
        told = [[""] * (places - len(past)) + past for past in pasts]
        obs[HISTORY] = np.array([[texts.intern(text) for text in past] for past in told])
    varied, prompter.prompt.varied = prompter.prompt.varied, False
    try:
        logits, _ = policy.decide(obs, texts)
    finally:
        prompter.prompt.varied = varied
    shares = logits.double().softmax(-1)
    return {name: float(shares[row, prompter.names.index(p.action)]) for row, (name, p) in enumerate(chosen.items())}
