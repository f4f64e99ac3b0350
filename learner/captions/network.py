"""The network that captions pictures: of states, which facts hold; of two states in turn, which event was between.

    picture ── cells of 7 x 7 pixels, each by the same layers ──┬─ what is in it ──> what is anywhere
        ┌─ codes of all cells ── two layers ──> facts of two values, and where to look ──┐
        └────────────────────── mean of the cells, by where to look ────────────────────┴──> facts of more values
    code of a state: those of all cells, and what was looked at
    codes after, and their difference from those before ── two layers ──> event

What may be anywhere is recognised cell by cell, so that it has to be seen in a few places only to be known in all. What
is held and felt depends on where it is shown. What is faced is in one of the cells; in which, the picture tells.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from learner.captions.about import CaptionerShape

CELL = 7
"""Pixels of a side of a cell: what Crafter draws a tile or an item in."""
CODE = 16
"""Numbers that a cell is described by, where its place matters."""


class Predicted(NamedTuple):
    """What is predicted of n states."""

    things: Tensor  # [n, A + 1, cells], logits of what is in each cell, the last of nothing
    two: Tensor  # [n, T], logits of the other facts of two values
    more: list[Tensor]  # [n, size] each, logits of the facts of more values
    codes: Tensor  # [n, C], of the state, for `event_logits`


class CaptionNetwork(nn.Module):
    """Logits of facts and events."""

    def __init__(self, shape: CaptionerShape) -> None:
        super().__init__()
        facts = [*enumerate(shape.kinds)]
        self._anywhere = [column for column, fact in facts if fact.anywhere]
        self._two = [column for column, fact in facts if fact.size == 2 and not fact.anywhere]
        self._more = [column for column, fact in facts if fact.size > 2]
        sizes = [shape.kinds[column].size for column in self._more]
        self._cells, every = shape.cells, (shape.side // CELL) ** 2
        self.cells = nn.Sequential(
            nn.Conv2d(3, shape.width, CELL, stride=CELL), nn.ReLU(), nn.Conv2d(shape.width, shape.width, 1), nn.ReLU()
        )
        self.things = nn.Conv2d(shape.width, len(self._anywhere) + 1, 1)
        self.code = nn.Sequential(nn.Conv2d(shape.width, CODE, 1), nn.ReLU(), nn.Flatten())
        self.places = nn.Sequential(
            nn.Linear(every * CODE, shape.hidden),
            nn.ReLU(),
            nn.Linear(shape.hidden, len(self._two) + every * len(self._more)),
        )
        self.looked = nn.ModuleList(nn.Linear(shape.width, size) for size in sizes)
        codes = every * CODE + shape.width * len(self._more)
        self.changes = nn.Sequential(
            nn.Linear(2 * codes, shape.hidden), nn.ReLU(), nn.Linear(shape.hidden, len(shape.events) + 1)
        )

    def payload(self) -> dict[str, Tensor]:
        """Views of the weights, without gradients."""
        return {name: parameter.detach() for name, parameter in self.named_parameters()}

    def forward(self, pictures: Tensor) -> Predicted:
        """Of pictures, uint8 [n, side, side, 3]."""
        cells = self.cells(pictures.permute(0, 3, 1, 2).float() / 255 - 0.5)
        codes = self.code(cells)
        two, *where = self.places(codes).split([len(self._two), *(cells[0, 0].numel() for _ in self._more)], 1)
        flat = cells.flatten(2)
        looked = [(flat @ place.softmax(1)[..., None])[..., 0] for place in where]
        more = [layer(seen) for layer, seen in zip(self.looked, looked, strict=True)]
        return Predicted(self.things(cells).flatten(2)[..., : self._cells], two, more, torch.cat([codes, *looked], 1))

    def event_logits(self, before: Tensor, after: Tensor) -> Tensor:
        """[n, E + 1] of the codes of two states in turn; the last is that nothing was done."""
        logits: Tensor = self.changes(torch.cat([after, after - before], 1))
        return logits

    def facts(self, said: Predicted) -> NDArray[np.int64]:
        """The most probable facts [n, F]."""
        found = np.empty((len(said.two), len(self._anywhere) + len(self._two) + len(self._more)), np.int64)
        each = said.things.argmax(1).numpy()
        for thing, column in enumerate(self._anywhere):
            found[:, column] = (each == thing).any(1)
        found[:, self._two] = (said.two > 0).numpy()
        for column, logits in zip(self._more, said.more, strict=True):
            found[:, column] = logits.argmax(1).numpy()
        return found

    def loss(self, said: Predicted, cells: Tensor, facts: Tensor) -> Tensor:
        """Cross-entropy in nats, [], mean over states, of all that is in cells [n, cells], and of the facts [n, F] that
        are not anywhere."""
        placed = cross_entropy(said.things, cells) * self._cells
        flags = binary_cross_entropy_with_logits(said.two, facts[:, self._two].float()) * len(self._two)
        more = zip(self._more, said.more, strict=True)
        return placed + flags + sum(cross_entropy(logits, facts[:, column]) for column, logits in more)
