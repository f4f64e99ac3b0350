"""Written answers: texts in which a language model's policy names its action, and their tokens as arrays.

    "go forward"                          a name alone: case, blanks around it and a final dot do not matter
    "a ball is ahead. Act: go forward."   free text, then the last marker, then a name
    "go fo", "Act: dance"                 no action

Without an action a uniformly random one is taken. A fixed one instead would be a name that the policy could write as
any nonsense; a random one makes nonsense worth as much as chance.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from envs.api import Written
from llm_service.scoring.trie import Tokens

MARKER = "act:"
"""What separates free text from the name of an action; compared without case."""
RUN = 3
"""Tokens of a run that counts as repeated where it was there before."""
OVER = -1
"""Fills arrays of tokens after an answer's end."""


def action(text: str, names: Sequence[str]) -> int | None:
    """Which of the names an answer gives; None: none of them."""
    said = _plain(text.casefold().rpartition(MARKER)[2])
    return next((place for place, name in enumerate(names) if _plain(name.casefold()) == said), None)


def _plain(text: str) -> str:
    return " ".join(text.split()).removesuffix(".").rstrip()


def padded(answers: Sequence[Tokens], most: int) -> NDArray[np.int32]:
    """Answers as [B, most], `OVER` after their ends."""
    tokens = np.full((len(answers), most), OVER, np.int32)
    for row, answer in zip(tokens, answers, strict=True):
        row[: len(answer)] = answer
    return tokens


def answers(tokens: NDArray[np.integer]) -> list[Tokens]:
    """The answers in [B, L]."""
    return [tuple(row[row != OVER].tolist()) for row in tokens]


def uniforms(random: NDArray[np.float32], most: int) -> NDArray[np.float64]:
    """Numbers in [0, 1) for each token of B answers, [B, most], all of which follow from the answer's own number."""
    seeds = random.astype(np.float32).view(np.uint32).tolist()
    return np.stack([np.random.default_rng(seed).random(most) for seed in seeds])


def instead(places: Sequence[int], prompt: Tokens, random: np.float32 | None) -> int:
    """One of the actions `places`, drawn uniformly, for an answer that names none.

    random: the answer's own number; None: the draw follows from the prompt.
    """
    seed = prompt if random is None else [int(random.view(np.uint32)), 1]
    return int(np.random.default_rng(seed).choice(np.asarray(places)))


def repeated(tokens: NDArray[np.integer]) -> float:
    """The share of tokens in [B, L] that end a run of `RUN` tokens which was there before in the same answer."""
    found = total = 0
    for answer in answers(tokens):
        runs = list(zip(*(answer[start:] for start in range(RUN)), strict=False))
        found, total = found + len(runs) - len(set(runs)), total + len(answer)
    return found / max(total, 1)


def of_answers(told: Written) -> dict[str, float]:
    """Statistics of a batch of answers: the share in which an action was found, their length, and repetition."""
    return {
        "policy/valid": float(told.valid.mean()),
        "policy/answer_tokens": float((told.tokens != OVER).sum(-1).mean()),
        "policy/repeated": repeated(told.tokens.reshape(-1, told.tokens.shape[-1])),
    }
