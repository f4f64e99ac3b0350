"""Scores of segments without gradients: each observation is encoded once, each window is one query of K keys.

    rows [R] ──> sum of rows of tables ──> ReLU ──> token, query, key, value of each     (`_encode`)
    windows [M, K] of them ──> attention of the last place ──> perceptron ──> score [M]  (`_score`)

All that can be multiplied beforehand is: what a symbol adds in a cell, what an action and a place add to query, key and
value. What is computed for a window is one chain of sums in one order, whatever else is asked: a score is the same to
the bit in any batch, which products of matrices by a library do not promise. Zeros after the ReLU are skipped.

The limit is reading the tables: 49 rows of 512 bytes an observation of BabyAI, from the processor's cache.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray

from envs.compiler import compiled
from learner.models.sequence.segment_transformer import HEADS, SegmentShape, SegmentTransformer, led_there
from learner.models.weights import Weights, set_weights
from learner.windows import Windows

Array = NDArray[np.float32]
LEAST = np.float32(1e-5)
"""Added to a variance."""


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
            self._table = _array(torch.cat([torch.zeros(1, 2 * shape.width), *tables]))
            self._numbers, self._bias = _array(model.numbers), _array(model.bias)
            ask, tell = model.query.weight.T, torch.cat([model.key.weight.T, model.value.weight.T], 1)
            self._project = _array(model.observed.weight.T @ torch.cat([torch.eye(shape.width), ask, tell], 1))
            led = model.actions + model.places[:, None]  # [K, 1 + A, width]
            self._asked, self._told = _array(torch.cat([led[-1], led[-1] @ ask], 1)), _array(led @ tell)
            self._out, self._norm = _array(model.out.weight.T), _array(model.norm.weight)
            self._up, self._up_bias = _array(model.up.weight.T), _array(model.up.bias)
            self._head, self._last = _array(model.head.weight[0]), _array(model.last.weight[0])

    def of(self, windows: Windows) -> Array:
        """Float32 [M]."""
        first, codes = 1, []
        for name, column in self.shape.whole.items():
            begin = first + column.symbols * np.arange(column.places, dtype=np.int32)
            codes.append(column.codes(windows.rows[name]) + begin)
            first += column.symbols * column.places
        numbers = self.shape.numbers(windows.rows)
        rows = np.concatenate(codes, 1) if codes else np.zeros((len(numbers), 0), np.int32)
        encoded = _encode(rows, numbers, self._table, self._numbers, self._bias, self._project)
        index, led = np.ascontiguousarray(windows.index, np.int64), led_there(windows.actions)
        weights = self._asked, self._told, self._out, self._norm, self._up, self._up_bias, self._head, self._last
        scores: Array = _score(index, led, encoded, *weights)
        return scores


def _array(value: torch.Tensor) -> Array:
    return np.ascontiguousarray(value.detach().numpy(), np.float32)


@compiled
def _encode(
    rows: NDArray[np.int32], numbers: Array, table: Array, of_numbers: Array, bias: Array, project: Array
) -> Array:
    """Of each observation its token and its query, key and value, [R, 4 * width], without action and place."""
    hidden, width = project.shape
    found, x = np.zeros((len(rows), width), np.float32), np.empty(hidden, np.float32)
    for r in range(len(rows)):
        x[:] = bias
        for p in range(rows.shape[1]):
            row = rows[r, p]
            for j in range(hidden):
                x[j] += table[row, j]
        for d in range(numbers.shape[1]):
            for j in range(hidden):
                x[j] += numbers[r, d] * of_numbers[d, j]
        for i in range(hidden):
            if x[i] > 0:
                for j in range(width):
                    found[r, j] += x[i] * project[i, j]
    return found


@compiled
def _score(
    index: NDArray[np.int64],
    led: NDArray[np.int64],
    encoded: Array,
    asked: Array,
    told: Array,
    out: Array,
    norm: Array,
    up: Array,
    up_bias: Array,
    head: Array,
    last: Array,
) -> Array:
    """Scores [M]. asked: token and query of each action that led to the last place, [1 + A, 2 * width]; told: key and
    value of each that led to each place, [K, 1 + A, 2 * width]. The rest are weights."""
    (m, window), width, wide = index.shape, len(norm), len(up_bias)
    lanes, scale = np.int64(HEADS), np.float32(1 / math.sqrt(width / HEADS))
    scores, x, seen = np.empty(m, np.float32), np.empty(2 * width, np.float32), np.empty(width, np.float32)
    weight, inner, sums = np.empty((window, lanes), np.float32), np.empty(wide, np.float32), np.empty(lanes, np.float32)
    for s in range(m):
        at, action = index[s, window - 1], led[s, window - 1]
        for j in range(2 * width):
            x[j] = encoded[at, j] + asked[action, j]
        # How much each head looks at each place.
        for k in range(window):
            weight[k, :] = 0
            at, action = index[s, k], led[s, k]
            for begin in range(0, width, lanes):
                for h in range(lanes):
                    j = begin + h
                    weight[k, h] += x[width + j] * (encoded[at, 2 * width + j] + told[k, action, j])
        for h in range(lanes):
            most = weight[:, h].max()
            total = np.float32(0)
            for k in range(window):
                weight[k, h] = math.exp((weight[k, h] - most) * scale)
                total += weight[k, h]
            for k in range(window):
                weight[k, h] /= total
        seen[:] = 0
        for k in range(window):
            at, action = index[s, k], led[s, k]
            for begin in range(0, width, lanes):
                for h in range(lanes):
                    j = begin + h
                    seen[j] += weight[k, h] * (encoded[at, 3 * width + j] + told[k, action, width + j])
        for i in range(width):
            for j in range(width):
                x[j] += seen[i] * out[i, j]
        # The perceptron, of a token of mean 0 and spread 1. Sums run in lanes: one long one would wait for itself.
        sums[:] = 0
        for begin in range(0, width, lanes):
            for h in range(lanes):
                sums[h] += x[begin + h]
        mean = sums.sum() / np.float32(width)
        sums[:] = 0
        for begin in range(0, width, lanes):
            for h in range(lanes):
                sums[h] += (x[begin + h] - mean) * (x[begin + h] - mean)
        spread = np.float32(math.sqrt(sums.sum() / np.float32(width) + LEAST))
        inner[:] = up_bias
        for i in range(width):
            normed = (x[i] - mean) / spread * norm[i]
            for j in range(wide):
                inner[j] += normed * up[i, j]
        sums[:] = 0
        for begin in range(0, width, lanes):
            for h in range(lanes):
                sums[h] += head[begin + h] * x[begin + h]
        for begin in range(0, wide, lanes):
            for h in range(lanes):
                sums[h] += last[begin + h] * max(inner[begin + h], np.float32(0))
        scores[s] = sums.sum()
    return scores
