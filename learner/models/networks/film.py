"""FiLM network with grounded symbols: a symbolic view and a sentence (after Perez et al. 2018 and BabyAI 1.0).

    sentence           -> a vector for every object and every colour: what they mean in this sentence
    sentence, own cell -> context [hidden]
    view [B, W, H, 3]  -> per cell: embedding of (object, colour, state) + the sentence's vectors of both
                          -> ReLU -> Linear -> scaled and shifted by the context -> ReLU
                       -> all cells side by side, and the context -> Linear, twice -> features [B, hidden]

One sum and a threshold can express "this cell is the red ball to pick up first", for every colour and noun alike; FiLM
alone needs a channel for each pair of them. The own cell is the agent's cell, in the middle of the view's last row, as
Minigrid draws it: it shows what the agent carries, which decides the object that a sentence of two parts currently
means.

A cell's features depend only on its symbol and the context, and a batch of views has few such pairs: each pair is
computed once, and the cells are looked up; on a GPU each cell is computed. The limit is the product of [B, H*W*C] with
the next layer, about 0.4 MFLOP per step forward and 0.8 backward.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from envs.api import EnvSpec
from learner.models.config import PolicyConfig
from learner.models.networks.texts import NUMBERS
from learner.models.policy import Observations

OBJECTS, COLOURS, STATES = 16, 8, 4  # room for the codes of a grid world
CODES = OBJECTS * COLOURS * STATES
WIDE, CHANNELS = 64, 32  # numbers of a cell before and after its first layer
CELLS = "all cells"  # like `NUMBERS`: the key of the grids


class Network(nn.Module):
    """Features [B, hidden] of observations with grids, categories and texts."""

    def __init__(self, config: PolicyConfig, spec: EnvSpec) -> None:
        super().__init__()
        self.grids = [n for n, f in spec.fields.items() if f.kind == "grid"]
        self.texts = [n for n, f in spec.fields.items() if f.kind == "text"]
        self.categories = {n: f.size for n, f in spec.fields.items() if f.kind == "category"}
        self.vectors = {n: f.shape[0] for n, f in spec.fields.items() if f.kind == "vector"}
        self.hidden = self.width = config.hidden
        said = config.hidden * max(1, len(self.texts))
        cells = sum(spec.fields[n].shape[0] * spec.fields[n].shape[1] for n in self.grids) * CHANNELS
        rest = sum(self.categories.values()) + sum(self.vectors.values())
        if cells:
            self.symbols = nn.ParameterList(torch.randn(size, WIDE) for size in (OBJECTS, COLOURS, STATES))
            self.meaning = nn.Linear(said, (OBJECTS + COLOURS) * WIDE)
            self.context = nn.Linear(said + WIDE, config.hidden)
            self.mix = nn.Linear(WIDE, CHANNELS)
            self.film = nn.Linear(config.hidden, 2 * CHANNELS)
            width, height, _ = spec.fields[self.grids[0]].shape
            self.own = width // 2 * height + height - 1
            rest += config.hidden
        else:
            rest += config.hidden * len(self.texts)
        out = nn.Linear(cells + rest, config.hidden)
        # The layer after the cells in two, so that they, most of its input, need not be copied beside the rest.
        self.out_cells, self.out_rest = (
            nn.Parameter(part.clone()) for part in torch.split(out.weight, [cells, rest], 1)
        )
        self.out_bias = out.bias
        self.last = nn.Linear(config.hidden, config.hidden)

    def inputs(self, obs: Observations) -> dict[str, Tensor]:
        """Grids as int64 symbols [..., cells] in [0, CODES), categories and vectors as float32 [..., width]."""
        found = {name: obs[name] for name in self.texts}
        if self.grids:
            found[CELLS] = torch.cat([_symbols(obs[name]) for name in self.grids], -1)
        numbers = [nn.functional.one_hot(obs[n], size).float() for n, size in self.categories.items()]
        numbers += [obs[n] for n in self.vectors]
        if numbers:
            found[NUMBERS] = torch.cat(numbers, -1)
        return found

    def forward(self, obs: Observations, codes: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs [B, ...] (texts as row indices into `codes` [U, hidden]) -> features [B, hidden]."""
        numbers = [obs[NUMBERS]] if NUMBERS in obs else []
        if not self.grids:
            sentence = [codes.index_select(0, obs[name]) for name in self.texts]
            features = nn.functional.linear(torch.cat(sentence + numbers, -1), self.out_rest, self.out_bias)
        else:
            symbols = obs[CELLS]
            said, said_row = self._said(obs, codes, len(symbols))
            found, row = deduplicate(said_row * CODES + symbols[:, self.own], len(said) * CODES)
            said_row = found // CODES
            heard = torch.cat([said.index_select(0, said_row), self._embed(found % CODES)], -1)
            context = torch.relu(self.context(heard))  # [K, hidden], the distinct contexts of the batch
            pairs, place = deduplicate(row[:, None] * CODES + symbols, len(context) * CODES)
            table = self._cells(pairs % CODES, pairs // CODES, context, self.meaning(said), said_row)
            cells = table.index_select(0, place.flatten()).view(len(symbols), -1)  # [B, cells * C]
            rest = torch.cat([context.index_select(0, row), *numbers], -1)
            features = torch.addmm(torch.addmm(self.out_bias, rest, self.out_rest.T), cells, self.out_cells.T)
        features = torch.relu(self.last(torch.relu(features)))
        return features, features

    def _said(self, obs: Observations, codes: Tensor, batch: int) -> tuple[Tensor, Tensor]:
        """The distinct sentences [U, hidden * texts], and the row of each of B."""
        if len(self.texts) == 1:
            return codes, obs[self.texts[0]]
        if self.texts:
            said = torch.cat([codes.index_select(0, obs[name]) for name in self.texts], -1)
            return said, torch.arange(batch, device=codes.device)
        nothing = torch.zeros(batch, dtype=torch.int64, device=codes.device)
        return torch.zeros(1, self.hidden, device=codes.device), nothing

    def _cells(self, symbol: Tensor, row: Tensor, context: Tensor, meaning: Tensor, said_row: Tensor) -> Tensor:
        """Pairs of a symbol [R] and a row [R] of `context` [K, hidden] -> [R, C].

        meaning: [U, (OBJECTS + COLOURS) * WIDE]; said_row: [K], which of its rows a context was made from.
        """
        words = meaning.view(-1, WIDE)
        first = said_row.index_select(0, row) * (OBJECTS + COLOURS)
        noun = words.index_select(0, first + symbol // (COLOURS * STATES))
        colour = words.index_select(0, first + OBJECTS + symbol // STATES % COLOURS)
        scale, shift = self.film(context).index_select(0, row).chunk(2, -1)
        cells = torch.relu(self._embed(symbol) + noun + colour)
        return torch.relu(torch.addcmul(shift, self.mix(cells), 1 + scale))

    def _embed(self, symbol: Tensor) -> Tensor:
        """Symbols [R] -> [R, WIDE]."""
        kinds = symbol // (COLOURS * STATES), symbol // STATES % COLOURS, symbol % STATES
        objects, colours, states = (table.index_select(0, k) for table, k in zip(self.symbols, kinds, strict=True))
        embedded: Tensor = objects + colours + states
        return embedded


def _symbols(grid: Tensor) -> Tensor:
    """uint8 [..., H, W, 3] -> int64 [..., H * W] in [0, CODES); ValueError beyond."""
    objects, colours, states = grid.long().unbind(-1)
    symbols = ((objects * COLOURS + colours) * STATES + states).flatten(-2)
    room = torch.tensor([OBJECTS, COLOURS, STATES], dtype=torch.uint8)
    if bool((grid >= room).any()):  # each on its own: a colour too many would pass for the next object
        raise ValueError(
            f"a grid holds codes beyond {(OBJECTS, COLOURS, STATES)}, which is what the film network has room for"
        )
    return symbols


def deduplicate(keys: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The distinct integers in [0, size) among `keys`, ascending, and for each key its place among them.

    On a device other than the CPU, all integers: the host would have to wait for their number, and computing all is
    faster.
    """
    if keys.device.type != "cpu":
        return keys.flatten(), torch.arange(keys.numel(), device=keys.device).view(keys.shape)
    numbers = keys.numpy()
    present = np.zeros(size, np.bool_)
    present[numbers] = True
    found = np.flatnonzero(present)
    place = np.empty(size, np.int64)
    place[found] = np.arange(len(found))
    return torch.from_numpy(found), torch.from_numpy(place[numbers])
