"""From a window of observations and actions to one score: a transformer of one layer that is asked at the last place.

    a grid's symbols ──> embedding ──> weights of their cell ──┐
    categories ──> embedding ──────────────────────────────────┼─ + ──> ReLU ──> Linear ──┐
    vectors, of mean 0 and spread 1 ──> Linear ────────────────┘                          v
    action that led there ──> embedding ─────────────────────────────────────────────── + ──> token [K, width]
    place in the window ──> embedding ──────────────────────────────────────────────────^
    tokens ──> attention of the last one to all ──> perceptron ──> score

After Kim et al. 2023 (Preference Transformer, arXiv 2303.00957), with three differences: what the last action has led
to is a token, as it is for who told the preference; the score is that of the last place, in fitting and in use; places
are counted in the window, not from the episode's start. All tokens lie in the past of the last one, so that attention
needs no mask.

What a symbol in a cell adds is a row of a table, however it was made: to judge is to add up rows
(`segment_scores.py`). Cells share what symbols mean, and weights that grow with column and row; each has its own, too.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

from envs.api import Observation
from envs.config import Part
from learner.optim.device import HOST, send
from learner.windows import Windows

HEADS = 8
"""Of attention. Number i of a token belongs to head i % HEADS."""
SYMBOL = 32
"""Numbers of a symbol."""
OWN = 0.3
"""How far a cell's own weights count beside those that all share: less, for pairs are few."""
MOST_ROWS = 131_072
"""Of a field's table, which has one for each symbol in each place: 64 MB with tokens of 64 numbers."""
FARTHEST = 5.0
"""Standard deviations beyond which a vector's number counts as that far."""
Rows = NDArray[np.int32]


class Column(Part):
    """A field of observations, as the model reads it."""

    kind: Literal["grid", "category", "vector"]
    """As the world's `Field`."""
    shape: tuple[int, ...] = ()
    """Of one entry."""
    sizes: tuple[int, ...] = ()
    """Of whole numbers: how many are known in each channel, from 0 on. All others are one more, which is unknown."""
    mean: tuple[float, ...] = ()
    """Of vectors."""
    spread: tuple[float, ...] = ()
    """Of vectors: the standard deviation, 1 where it is 0."""

    @property
    def symbols(self) -> int:
        """Distinct entries of a place: all combinations of channels, with the unknown."""
        return math.prod(size + 1 for size in self.sizes)

    @property
    def places(self) -> int:
        """Places where one of them stands."""
        return {"grid": math.prod(self.shape[:2]), "category": 1, "vector": 0}[self.kind]

    def codes(self, values: NDArray[np.integer]) -> Rows:
        """Which of them stands where, int32 [R, places], of values [R, *shape] of a grid or a category."""
        channels = values.reshape(len(values), self.places, len(self.sizes))
        code = np.zeros(channels.shape[:2], np.int32)
        for channel, size in enumerate(self.sizes):
            value = channels[..., channel]
            known = value < size if value.dtype.kind == "u" else (value >= 0) & (value < size)
            code = code * np.int32(size + 1) + np.where(known, value, np.int32(size)).astype(np.int32)
        return code


class SegmentShape(Part):
    """What a model of segments is built of."""

    window: int
    """K observations."""
    actions: int
    """How many the world has."""
    columns: dict[str, Column]
    """Fields that are read, by name."""
    width: int = 64
    """Numbers of a token, a multiple of `HEADS`."""

    @property
    def whole(self) -> dict[str, Column]:
        """Fields of whole numbers."""
        return {name: column for name, column in self.columns.items() if column.kind != "vector"}

    def numbers(self, obs: Observation) -> NDArray[np.float32]:
        """All vectors side by side, float32 [R, D], of mean 0 and spread 1 in what the model was fitted to."""
        rows = len(next(iter(obs.values())))
        parts = [np.zeros((rows, 0), np.float32)]
        for name, column in self.columns.items():
            if column.kind == "vector":
                found = (obs[name] - np.array(column.mean, np.float32)) / np.array(column.spread, np.float32)
                parts.append(np.clip(found, -FARTHEST, FARTHEST))
        return np.concatenate(parts, 1)


class SegmentTransformer(nn.Module):
    """Scores of segments, with gradients. Weights are drawn from torch's generator."""

    def __init__(self, shape: SegmentShape) -> None:
        super().__init__()
        self.shape, width, hidden = shape, shape.width, 2 * shape.width
        self.embeddings, self.cells = nn.ParameterDict(), nn.ParameterDict()
        for name, column in shape.whole.items():
            for channel, size in enumerate(column.sizes):
                drawn = torch.randn(size + 1, SYMBOL)
                drawn[size] = 0  # no gradient reaches what is unknown: it says nothing
                self.embeddings[f"{name}:{channel}"] = nn.Parameter(drawn)
            self.register_buffer(f"basis:{name}", basis(column), persistent=False)
            drawn = torch.randn(3 + column.places, SYMBOL * hidden)
            self.cells[name] = nn.Parameter(drawn / math.sqrt(SYMBOL * column.places))
        numbers = sum(len(column.mean) for column in shape.columns.values())
        self.numbers = nn.Parameter(torch.randn(numbers, hidden) / math.sqrt(max(1, numbers)))
        self.bias = nn.Parameter(torch.zeros(hidden))
        self.observed = nn.Linear(hidden, width, bias=False)
        self.actions = nn.Parameter(0.3 * torch.randn(1 + shape.actions, width))  # the first: none yet
        self.places = nn.Parameter(0.3 * torch.randn(shape.window, width))
        self.query, self.key, self.value, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.norm, self.up = nn.LayerNorm(width, bias=False), nn.Linear(width, 2 * width)
        self.head, self.last = nn.Linear(width, 1, bias=False), nn.Linear(2 * width, 1, bias=False)

    def payload(self) -> dict[str, Tensor]:
        """Views of all weights, without gradients."""
        return {name: value.detach() for name, value in self.named_parameters()}

    def table(self, name: str, symbols: Tensor) -> Tensor:
        """What each of `symbols` [S] adds in each cell of a field, [places * S, hidden]."""
        column, features, rest = (
            self.shape.columns[name],
            torch.zeros(len(symbols), SYMBOL, device=symbols.device),
            symbols,
        )
        for channel in reversed(range(len(column.sizes))):
            size = column.sizes[channel] + 1
            features, rest = features + self.embeddings[f"{name}:{channel}"][rest % size], rest // size
        weights = (self.get_buffer(f"basis:{name}") @ self.cells[name]).view(column.places, SYMBOL, -1)
        return torch.matmul(torch.relu(features), weights).flatten(0, 1)

    def forward(self, encoded: Encoded, index: Tensor) -> Tensor:
        """Scores [B] of the segments `index` [B]."""
        rows = index[:, None] * self.shape.window + torch.arange(self.shape.window, device=index.device)
        x = self.bias + encoded.numbers[rows.flatten()] @ self.numbers
        for name, (places, symbols) in encoded.places.items():
            x = x + embedding_bag(places[rows.flatten()], self.table(name, symbols), mode="sum")
        x = self.observed(torch.relu(x)).view(*rows.shape, -1) + self.actions[encoded.actions[index]] + self.places
        query = self._split(self.query(x[:, -1:]))
        keys, values = self._split(self.key(x)), self._split(self.value(x))  # [B, K, numbers of a head, heads]
        score = (query * keys).sum(2, keepdim=True) * (self.shape.width / HEADS) ** -0.5
        seen = (score.softmax(1) * values).sum(1).flatten(1)
        x = x[:, -1] + self.out(seen)
        scores: Tensor = self.head(x) + self.last(torch.relu(self.up(self.norm(x))))
        return scores[:, 0]

    def _split(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], -1, HEADS)


class Encoded:
    """All windows of some data, as `SegmentTransformer` reads them: symbols that do not occur are left out.

    places: for each field of whole numbers, rows [M * K, places] of its table for the `symbols` [S] that occur.
    numbers: float32 [M * K, D]; actions: int64 [M, K], 0 where there was none yet.
    device: where all of it is.
    """

    def __init__(self, shape: SegmentShape, windows: Windows, device: torch.device = HOST) -> None:
        self.device = device
        self.places: dict[str, tuple[Tensor, Tensor]] = {}
        for name, column in shape.whole.items():
            symbols, row = np.unique(column.codes(windows.rows[name]), return_inverse=True)
            row = row.reshape(-1, column.places) + len(symbols) * np.arange(column.places)
            sent = send({0: row[windows.index.ravel()], 1: symbols.astype(np.int64)}, device)
            self.places[name] = sent[0], sent[1]
        numbers = shape.numbers(windows.rows)[windows.index.ravel()]
        self.numbers, self.actions = send({0: numbers, 1: led_there(windows.actions)}, device).values()


def led_there(actions: NDArray[np.int64]) -> NDArray[np.int64]:
    """The action that led to each of K observations, [M, K] of [M, K - 1]: 0 where there was none or the window does
    not say, action a as a + 1."""
    return np.concatenate([np.zeros((len(actions), 1), np.int64), actions + 1], 1)


def basis(column: Column) -> Tensor:
    """What the weights of each place are made of, [places, 3 + places]: one, column, row in [-1, 1], and its own."""
    width, height = column.shape[:2] if column.kind == "grid" else (1, 1)
    across, down = (torch.linspace(-1, 1, n) if n > 1 else torch.zeros(1) for n in (width, height))
    along = torch.cartesian_prod(across, down).view(-1, 2)
    return torch.cat([torch.ones(len(along), 1), along, OWN * torch.eye(len(along))], 1)
