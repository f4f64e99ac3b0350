"""Features of a text by its words, compiled: every word with its two neighbours, and the largest of each feature.

    feature(i) = relu(W [left word + its place, word + its place, right word + its place] + b)      code = max over i

The sum in the brackets splits into parts of single words and of single places: few words make all texts of a world, so
that a part is computed once for each of them, and a window is a sum of four rows. The gradient goes to the window that
had the largest feature, and so to four rows. The limit is reading these rows: words of all texts times features.

`text_encoder.py: LearnedText` computes the same by plain operations, on any device.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from envs.compiler import compiled
from learner.models.rows import Appearing

Array = NDArray[np.float32]
Tokens = NDArray[np.int64]


def read(embedding: Tensor, place: Tensor, weight: Tensor, bias: Tensor, tokens: Tensor) -> Tensor:
    """Codes [U, H] of texts.

    Args:
        embedding: [V, E] of words; row 0, no word, is 0.
        place: [P, E] of places; those beyond share the last.
        weight: [H, 3 * E].
        bias: [H]; all on the CPU, in float32.
        tokens: int64 [U, L], rows of `embedding`, 0 after the last word of a text. They are not checked.
    """
    with torch.autocast("cpu", enabled=False):  # sums of rounded parts would be rounded twice
        codes: Tensor = _Windows.apply(embedding, place, weight, bias, tokens)  # type: ignore[no-untyped-call]
    return codes


class _Windows(torch.autograd.Function):
    """Of equal features in a text, the first gets the gradient."""

    @staticmethod
    def forward(ctx: Any, embedding: Tensor, place: Tensor, weight: Tensor, bias: Tensor, tokens: Tensor) -> Tensor:
        named = np.zeros((len(tokens), tokens.shape[1] + 2), np.int64)  # no word before the first and after the last
        named[:, 1:-1] = tokens.numpy()
        used, rows = Appearing(len(embedding))(named)  # "no word" appears first: it is 0 there too
        words = embedding[torch.from_numpy(used)]
        at = _places(tokens.shape[1], len(place))
        places = _placed(place, at)
        by_side = _by_side(weight)  # [3 * H, E]
        of_words = words @ by_side.t()  # [W, 3 * H]
        of_places = torch.addmm(bias, places, weight.t())  # [2 * n, H]: before a word, and at the end of the text
        codes, chosen = words.new_zeros(len(tokens), len(bias)), np.full((len(tokens), len(bias)), -1, np.int32)
        _largest(rows, of_words.numpy(), of_places.numpy(), codes.numpy(), chosen)
        ctx.save_for_backward(embedding, place, weight)
        ctx.rest = used, rows, words, at, places, chosen
        return codes

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_codes: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, None]:
        (embedding, place, weight), (used, rows, words, at, places, chosen) = ctx.saved_tensors, ctx.rest
        hidden = len(weight)
        d_words, d_places = words.new_zeros(len(used), 3 * hidden), places.new_zeros(len(places), hidden)
        _to_largest(rows, chosen, d_codes.float().contiguous().numpy(), d_words.numpy(), d_places.numpy())
        d_words[:1] = 0  # no word is always 0
        d_weight = (d_words.t() @ words).view(3, hidden, -1).transpose(0, 1).reshape(weight.shape)
        d_weight += d_places.t() @ places
        d_embedding = torch.zeros_like(embedding)
        d_embedding[torch.from_numpy(used)] = d_words @ _by_side(weight)
        d_place = torch.zeros(len(place) + 1, place.shape[1])
        d_place.index_add_(0, at.ravel(), (d_places @ weight).view(at.numel(), -1))
        return d_embedding, d_place[:-1], d_weight, d_places.sum(0), None


def _by_side(weight: Tensor) -> Tensor:
    """The weights [H, 3 * E] of a window as [3 * H, E]: those of the left word, of the word, of the right one."""
    return weight.view(len(weight), 3, -1).transpose(0, 1).reshape(3 * len(weight), -1)


@cache
def _places(length: int, count: int) -> Tensor:
    """The places [2 * n, 3] of a window's words at positions 0 to n - 1, then of windows that end the text; `count`
    means none. All positions from `count` on are alike."""
    position = torch.arange(min(length, count + 1))
    left = torch.where(position > 0, (position - 1).clamp(max=count - 1), count)
    own, right = position.clamp(max=count - 1), (position + 1).clamp(max=count - 1)
    inner, last = (torch.stack([left, own, after], -1) for after in (right, torch.full_like(own, count)))
    return torch.cat([inner, last])


def _placed(place: Tensor, at: Tensor) -> Tensor:
    """Embeddings of the places `at` [..., 3], side by side."""
    return torch.cat([place, place.new_zeros(1, place.shape[1])])[at].flatten(1)


@compiled
def _largest(rows: Tokens, of_words: Array, of_places: Array, codes: Array, chosen: NDArray[np.int32]) -> None:
    """Fill codes [U, H], 0 at first, and the positions [U, H] that have them, -1 at first.

    rows: [U, L + 2], 0 before the first word and after the last.
    """
    texts, hidden = codes.shape
    positions = len(of_places) // 2
    for u in range(texts):
        code, at = codes[u], chosen[u]
        i = 0
        while rows[u, i + 1]:
            place = of_places[min(i, positions - 1) + (0 if rows[u, i + 2] else positions)]
            left, own, right = of_words[rows[u, i]], of_words[rows[u, i + 1]], of_words[rows[u, i + 2]]
            for h in range(hidden):
                feature = place[h] + left[h] + own[hidden + h] + right[2 * hidden + h]
                larger = feature > code[h] or feature != feature  # what is not a number stays so
                code[h] = feature if larger else code[h]
                at[h] = i if larger else at[h]
            i += 1


@compiled
def _to_largest(rows: Tokens, chosen: NDArray[np.int32], d_codes: Array, d_words: Array, d_places: Array) -> None:
    """Add the gradients of codes to those of the rows that they are sums of."""
    texts, hidden = d_codes.shape
    positions = len(d_places) // 2
    for u in range(texts):
        for h in range(hidden):
            i = chosen[u, h]
            if i < 0:
                continue
            slope = d_codes[u, h]
            d_places[min(i, positions - 1) + (0 if rows[u, i + 2] else positions), h] += slope
            d_words[rows[u, i], h] += slope
            d_words[rows[u, i + 1], hidden + h] += slope
            d_words[rows[u, i + 2], 2 * hidden + h] += slope
