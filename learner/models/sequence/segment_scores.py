"""Scores of segments without gradients: each different observation is encoded once, each window is one query of K keys.

    rows [R] ──> those that differ [U] ──> sum of rows of tables ──> ReLU ──> token ──> query, key, value    (`_encode`)
    windows [M, K] of them ──> attention of the last place ──> perceptron ──> score [M]                      (`_score`)

What can be added beforehand is: what a symbol adds in a cell, what an action and a place add to query, key and value.
What is computed for a window is one chain of sums in one order, whatever else is asked: a score is the same to the bit
in any batch, which products of matrices by a library do not promise (`_add_product`).

The limit is arithmetic: 33,000 multiplications a different observation and window at width 64.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import embedding_bag, pad

from envs.api import Observation
from envs.compiler import compiled
from learner.models.sequence.segment_transformer import HEADS, SegmentShape, SegmentTransformer, led_there
from learner.models.weights import Weights, set_weights
from learner.windows import Windows

Array = NDArray[np.float32]
Rows = NDArray[np.int64]
LEAST = np.float32(1e-5)
"""Added to a variance."""
TOGETHER = 512
"""Windows whose intermediate numbers are in memory at once: 1 MB at width 64, so that they stay near the core."""


class SegmentScores:
    """Judges windows with the weights of a `SegmentTransformer`.

    Raises:
        ValueError: the weights are of another shape.
    """

    def __init__(self, shape: SegmentShape, weights: Weights) -> None:
        self.shape = shape
        with torch.random.fork_rng([]), torch.no_grad():
            model = SegmentTransformer(shape)
            set_weights(model, weights, "model of segments")
            tables = [model.table(name, torch.arange(column.symbols)) for name, column in shape.whole.items()]
            self._table = _array(torch.cat([model.bias[None], *tables]))  # the first row is everybody's
            self._numbers = _array(_in_fours(model.numbers.T).T)
            ask, tell = model.query.weight.T, torch.cat([model.key.weight.T, model.value.weight.T], 1)
            self._observed, self._project = _array(model.observed.weight.T), _array(torch.cat([ask, tell], 1))
            led = model.actions + model.places[:, None]  # [K, 1 + A, width]
            self._asked, self._told = _array(torch.cat([led[-1], led[-1] @ ask], 1)), _array(led @ tell)
            self._out, self._norm = _array(model.out.weight), _array(model.norm.weight)
            self._up, self._up_bias = _array(model.up.weight), _array(model.up.bias)
            self._head, self._last = _array(model.head.weight[0]), _array(model.last.weight[0])

    def of(self, windows: Windows) -> Array:
        """Float32 [M]. Observations that are equal are encoded once."""
        rows = {name: windows.rows[name] for name in self.shape.columns}
        first, place = _deduplicate(_words(rows))
        rows = {name: column[first] for name, column in rows.items()}
        return self.of_all(Windows(rows, place[windows.index], windows.actions))

    def of_all(self, windows: Windows) -> Array:
        """The same, where each observation is encoded, whether or not it is there twice."""
        tokens, projected = self._encode(windows.rows)
        index, led = np.ascontiguousarray(windows.index, np.int64), led_there(windows.actions)
        scores = np.empty(len(index), np.float32)
        for begin in range(0, len(index), TOGETHER):
            some = slice(begin, begin + TOGETHER)
            scores[some] = self._score(index[some], led[some], tokens, projected)
        return scores

    def _encode(self, obs: Observation) -> tuple[Array, Array]:
        """Of U observations the token [U, width], and its query, key and value [U, 3 * width], without action and
        place."""
        numbers = self.shape.numbers(obs)
        codes: list[NDArray[np.integer]] = [np.zeros((len(numbers), 1), np.int32)]
        begin = 1
        for name, column in self.shape.whole.items():
            codes.append(column.codes(obs[name]) + begin + column.symbols * np.arange(column.places, dtype=np.int32))
            begin += column.symbols * column.places
        rows = torch.from_numpy(np.concatenate(codes, 1))
        hidden = embedding_bag(rows, torch.from_numpy(self._table), mode="sum").numpy()  # each sum by itself, in order
        _add_product(_array(_in_fours(torch.from_numpy(numbers))), self._numbers, hidden)
        np.maximum(hidden, 0, out=hidden)
        tokens = np.zeros((len(hidden), self.shape.width), np.float32)
        _add_product(hidden, self._observed, tokens)
        projected = np.zeros((len(hidden), 3 * self.shape.width), np.float32)
        _add_product(tokens, self._project, projected)
        return tokens, projected

    def _score(self, index: Rows, led: Rows, tokens: Array, projected: Array) -> Array:
        x, weight = _compared(index, led, tokens, projected, self._asked, self._told)
        np.exp(weight, out=weight)  # NumPy's is the same to the bit wherever a number stands, and eight at once
        seen = _seen(index, led, projected, self._told, weight)
        x, seen = np.ascontiguousarray(x.T), np.ascontiguousarray(seen.T)  # a column each: loops over windows are long
        _add_product(self._out, seen, x)
        inner = np.repeat(self._up_bias[:, None], len(index), 1)
        _add_product(self._up, _normed(x, self._norm), inner)
        scores: Array = _judged(x, inner, self._head, self._last)
        return scores


def _array(value: torch.Tensor) -> Array:
    return np.ascontiguousarray(value.detach().numpy(), np.float32)


def _in_fours(x: torch.Tensor) -> torch.Tensor:
    """With as many zeros behind each row as `_add_product` asks for."""
    return pad(x, (0, -x.shape[1] % 4))


def _words(rows: Observation) -> Rows:
    """The bytes of all fields of each of R observations, as int64 [R, W]."""
    parts = [np.ascontiguousarray(column).view(np.uint8).reshape(len(column), -1) for column in rows.values()]
    ends = np.cumsum([part.shape[1] for part in parts])
    together = np.zeros((len(parts[0]), -(-int(ends[-1]) // 8) * 8), np.uint8)
    for part, end in zip(parts, ends.tolist(), strict=True):
        together[:, end - part.shape[1] : end] = part
    return together.view(np.int64)


@compiled
def _deduplicate(words: Rows) -> tuple[Rows, Rows]:
    """Where each of the U that differ stands first [U], and which of them each is [R]."""
    size = 1
    while size < 2 * len(words):
        size *= 2
    slots, first, place = np.full(size, -1, np.int64), np.empty(len(words), np.int64), np.empty(len(words), np.int64)
    count = 0
    for r in range(len(words)):
        mixed = np.uint64(0)
        for i in range(words.shape[1]):
            mixed = (mixed ^ np.uint64(words[r, i])) * np.uint64(0x9E3779B97F4A7C15)
            mixed ^= mixed >> np.uint64(32)
        at = np.int64(mixed & np.uint64(size - 1))
        while slots[at] >= 0 and not (words[first[slots[at]]] == words[r]).all():
            at = (at + 1) & (size - 1)
        if slots[at] < 0:
            slots[at], first[count] = count, r
            count += 1
        place[r] = slots[at]
    return first[:count], place


@compiled
def _add_product(left: Array, right: Array, total: Array) -> None:
    """total [M, J] += left [M, I] @ right [I, J], I a multiple of 4: each number's sum in one order.

    Two rows at a time, which read `right` once for both; of an odd number of rows the last comes alone.
    """
    (inner, width), twos = right.shape, len(left) // 2 * 2
    for m in range(0, twos, 2):
        for i in range(0, inner, 4):
            a, b, c, d = left[m, i], left[m, i + 1], left[m, i + 2], left[m, i + 3]
            e, f, g, h = left[m + 1, i], left[m + 1, i + 1], left[m + 1, i + 2], left[m + 1, i + 3]
            for j in range(width):
                p, q, r, s = right[i, j], right[i + 1, j], right[i + 2, j], right[i + 3, j]
                total[m, j] = total[m, j] + a * p + b * q + c * r + d * s
                total[m + 1, j] = total[m + 1, j] + e * p + f * q + g * r + h * s
    for m in range(twos, len(left)):
        for i in range(0, inner, 4):
            a, b, c, d = left[m, i], left[m, i + 1], left[m, i + 2], left[m, i + 3]
            for j in range(width):
                p, q, r, s = right[i, j], right[i + 1, j], right[i + 2, j], right[i + 3, j]
                total[m, j] = total[m, j] + a * p + b * q + c * r + d * s


@compiled
def _compared(
    index: Rows, led: Rows, tokens: Array, projected: Array, asked: Array, told: Array
) -> tuple[Array, Array]:
    """Tokens [M, width] of the last places, and how much each head looks at each place [M, K, HEADS]: the logarithm,
    at most 0. asked: token and query of each action that led to the last place, [1 + A, 2 * width]; told: key and value
    of each that led to each place, [K, 1 + A, 2 * width]."""
    (m, window), width = index.shape, tokens.shape[1]
    lanes, scale = np.int64(HEADS), np.float32(1 / math.sqrt(width / HEADS))
    x, weight = np.empty((m, width), np.float32), np.empty((m, window, lanes), np.float32)
    query, product, most = np.empty(width, np.float32), np.empty(width, np.float32), np.empty(lanes, np.float32)
    for s in range(m):
        at, action = index[s, window - 1], led[s, window - 1]
        for j in range(width):
            x[s, j] = tokens[at, j] + asked[action, j]
            query[j] = (projected[at, j] + asked[action, width + j]) * scale
        most[:] = -np.inf
        for k in range(window):
            at, action = index[s, k], led[s, k]
            for j in range(width):
                product[j] = query[j] * (projected[at, width + j] + told[k, action, j])
            for h in range(lanes):
                total = np.float32(0)
                for j in range(h, width, lanes):
                    total += product[j]
                weight[s, k, h], most[h] = total, max(most[h], total)
        for k in range(window):
            for h in range(lanes):
                weight[s, k, h] -= most[h]
    return x, weight


@compiled
def _seen(index: Rows, led: Rows, projected: Array, told: Array, weight: Array) -> Array:
    """The mean of the values of all places [M, width], weighed by `weight` [M, K, HEADS]."""
    (m, window), width, lanes = index.shape, projected.shape[1] // 3, np.int64(HEADS)
    seen, total, share = np.zeros((m, width), np.float32), np.empty(lanes, np.float32), np.empty(width, np.float32)
    for s in range(m):
        total[:] = 0
        for k in range(window):
            for h in range(lanes):
                total[h] += weight[s, k, h]
        for k in range(window):
            at, action = index[s, k], led[s, k]
            for h in range(lanes):
                part = weight[s, k, h] / total[h]
                for j in range(h, width, lanes):
                    share[j] = part
            for j in range(width):
                seen[s, j] += share[j] * (projected[at, 2 * width + j] + told[k, action, width + j])
    return seen


@compiled
def _normed(x: Array, norm: Array) -> Array:
    """Tokens [width, M] of mean 0 and spread 1, times `norm`."""
    width, m = x.shape
    normed, mean, scale = np.empty((width, m), np.float32), np.zeros(m, np.float32), np.zeros(m, np.float32)
    for j in range(width):
        for s in range(m):
            mean[s] += x[j, s]
    for s in range(m):
        mean[s] /= np.float32(width)
    for j in range(width):
        for s in range(m):
            scale[s] += (x[j, s] - mean[s]) * (x[j, s] - mean[s])
    for s in range(m):
        scale[s] = np.float32(1) / np.sqrt(scale[s] / np.float32(width) + LEAST)
    for j in range(width):
        for s in range(m):
            normed[j, s] = (x[j, s] - mean[s]) * scale[s] * norm[j]
    return normed


@compiled
def _judged(x: Array, inner: Array, head: Array, last: Array) -> Array:
    """Scores [M] of tokens [width, M] and of the perceptron's inner numbers [2 * width, M] before the ReLU."""
    scores = np.zeros(x.shape[1], np.float32)
    for j in range(len(x)):
        for s in range(len(scores)):
            scores[s] += head[j] * x[j, s]
    for j in range(len(inner)):
        for s in range(len(scores)):
            scores[s] += last[j] * max(inner[j, s], np.float32(0))
    return scores
