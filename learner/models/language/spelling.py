"""A policy over actions, told token by token of their names: what the ratio of each token is made of.

    logits of turn left, turn right, go forward      a softmax over them is the policy that acts
    "turn"      P(turn left or turn right)
    "left"      P(turn left) / P(turn left or turn right)
    "go"        P(go forward);      "forward": 1, nothing else can follow

A token's probability is restricted to names of the state's actions, at the temperature that acts. So the probabilities
of a name's tokens multiply to that of the action. Those of the language model alone, over all its vocabulary, do not:
a ratio of them moves with words that can never be said.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from learner.models.language.prompter import Asked
from llm_service.scoring.placed import placed
from llm_service.scoring.trie import Tokens


def token_log_probs(logits: Tensor, asked: Sequence[Asked], action: Sequence[int]) -> Tensor:
    """Log-probability [B, L] of each token of the name of `action` [B], under logits [B, A]; 0 after a name's end."""
    size = logits.shape[1]
    each = [_alike(q.candidates, q.places, chosen, size) for q, chosen in zip(asked, action, strict=True)]
    longest = max(map(len, each))
    masks = np.stack([np.concatenate([mask, np.repeat(mask[-1:], longest - len(mask), 0)]) for mask in each])
    others = placed(~masks, logits.device)
    mass = logits[:, None].masked_fill(others, -float("inf")).logsumexp(-1)
    return mass[:, 1:] - mass[:, :-1]


@functools.lru_cache(maxsize=1024)
def _alike(names: tuple[Tokens, ...], places: tuple[int, ...], chosen: int, size: int) -> NDArray[np.bool_]:
    """bool [L + 1, A]: which actions' names begin like the chosen one's, by the number of tokens; at its end itself."""
    own = names[places.index(chosen)]
    alike = np.zeros((len(own) + 1, size), np.bool_)
    for length in range(len(own)):
        for name, place in zip(names, places, strict=True):
            alike[length, place] = name[:length] == own[:length]
    alike[-1, chosen] = True
    return alike
