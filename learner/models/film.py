"""FiLM network: a symbolic view and a sentence (Perez et al. 2018; BabyAI 1.0's policy in small).

    sentence, own cell -> context [hidden]
    view [B, W, H, 3]  -> one embedding per cell (object + colour + state) -> modulated by the context, twice
                       -> all cells side by side, and the context -> Linear, twice -> features [B, hidden]

The own cell is the one where the agent stands, in the middle of the view's last row, as Minigrid draws it: it shows
what the agent carries, and with that a sentence of two parts means another object ("pick up the ball, then go to the
box").

What becomes of a cell depends on its symbol and on the context alone, and a batch of views has few such pairs: each is
computed once, and the cells are looked up. The limit is the product of [B, H*W*C] with the layer after them, about 0.4
MFLOP a step forward and 0.8 backward.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from envs.api import EnvSpec
from learner.models.policy import Observations, PolicyConfig

SYMBOLS = (16, 8, 4)  # room for every object, colour and state code of a grid world
CODES = 16 * 8 * 4
CHANNELS = 32
CELLS, NUMBERS = "all cells", "all numbers"  # keys of what is not text among the inputs; no field is named so


class Network(nn.Module):
    """Features [B, hidden] of observations with grids, categories and texts."""

    def __init__(self, config: PolicyConfig, spec: EnvSpec) -> None:
        super().__init__()
        self.grids = [n for n, f in spec.fields.items() if f.kind == "grid"]
        self.texts = [n for n, f in spec.fields.items() if f.kind == "text"]
        self.categories = {n: f.size for n, f in spec.fields.items() if f.kind == "category"}
        self.vectors = {n: f.shape[0] for n, f in spec.fields.items() if f.kind == "vector"}
        self.hidden = self.width = config.hidden
        cells = sum(spec.fields[n].shape[0] * spec.fields[n].shape[1] for n in self.grids) * CHANNELS
        if cells:
            self.symbols = nn.ParameterList(torch.randn(size, CHANNELS) for size in SYMBOLS)
            self.context = nn.Linear(config.hidden * len(self.texts) + CHANNELS, config.hidden)
            self.film = nn.Linear(config.hidden, 4 * CHANNELS)  # scale and shift of both modulations
            self.mix = nn.Linear(CHANNELS, CHANNELS)
            width, height, _ = spec.fields[self.grids[0]].shape
            self.own = width // 2 * height + height - 1
        rest = sum(self.categories.values()) + sum(self.vectors.values())
        rest += config.hidden * (1 if cells else len(self.texts))
        out = nn.Linear(cells + rest, config.hidden)
        # The first layer in two, so that the cells, which are most of its input, need not be copied beside the rest.
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
        sentence = [codes.index_select(0, obs[name]) for name in self.texts]
        numbers = [obs[NUMBERS]] if NUMBERS in obs else []
        if not self.grids:
            features = nn.functional.linear(torch.cat(sentence + numbers, -1), self.out_rest, self.out_bias)
        else:
            context, row = self._contexts(obs, codes, sentence)
            rest = torch.cat([context.index_select(0, row), *numbers], -1)
            features = torch.addmm(self.out_bias, rest, self.out_rest.T)
            features = torch.addmm(features, self._cells(obs[CELLS], context, row), self.out_cells.T)
        features = torch.relu(self.last(torch.relu(features)))
        return features, features

    def _contexts(self, obs: Observations, codes: Tensor, sentence: list[Tensor]) -> tuple[Tensor, Tensor]:
        """The distinct contexts of a batch [K, hidden], and for each of B its row."""
        own = obs[CELLS][:, self.own]
        said = obs[self.texts[0]] if len(self.texts) == 1 else torch.arange(len(own)) if self.texts else own * 0
        found, row = distinct(said * CODES + own, int(said.max()) * CODES + CODES)
        parts = [self._embed(found % CODES)]
        if len(self.texts) == 1:
            parts.append(codes.index_select(0, found // CODES))
        else:
            parts += [part.index_select(0, found // CODES) for part in sentence]
        context: Tensor = torch.relu(self.context(torch.cat(parts, -1)))
        return context, row

    def _cells(self, symbols: Tensor, context: Tensor, row: Tensor) -> Tensor:
        """[B, cells * C]."""
        pairs, place = distinct(row[:, None] * CODES + symbols, len(context) * CODES)
        table = self._modulate(pairs % CODES, pairs // CODES, context)
        return table.index_select(0, place.flatten()).view(len(symbols), symbols.shape[1] * CHANNELS)

    def _embed(self, symbol: Tensor) -> Tensor:
        """Symbols [R] -> [R, C]."""
        kinds = symbol // (SYMBOLS[1] * SYMBOLS[2]), symbol // SYMBOLS[2] % SYMBOLS[1], symbol % SYMBOLS[2]
        objects, colours, states = (table.index_select(0, k) for table, k in zip(self.symbols, kinds, strict=True))
        embedded: Tensor = objects + colours + states
        return embedded

    def _modulate(self, symbol: Tensor, row: Tensor, context: Tensor) -> Tensor:
        """Pairs of a symbol [R] and a row [R] of `context` [K, hidden] -> [R, C]."""
        scale, shift, scale_again, shift_again = self.film(context).index_select(0, row).chunk(4, -1)
        cells = torch.relu(torch.addcmul(shift, self._embed(symbol), 1 + scale))
        return torch.relu(torch.addcmul(shift_again, self.mix(cells), 1 + scale_again))


def _symbols(grid: Tensor) -> Tensor:
    """uint8 [..., H, W, 3] -> int64 [..., H * W] in [0, CODES); ValueError beyond."""
    objects, colours, states = grid.long().unbind(-1)
    symbols = ((objects * SYMBOLS[1] + colours) * SYMBOLS[2] + states).flatten(-2)
    if symbols.numel() and int(symbols.max()) >= CODES:
        raise ValueError(f"a grid holds codes beyond {SYMBOLS}, which is what the film network has room for")
    return symbols


def distinct(keys: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The distinct among integers in [0, size), ascending, and for each of `keys` its place among them."""
    numbers = keys.numpy()
    present = np.zeros(size, np.bool_)
    present[numbers] = True
    found = np.flatnonzero(present)
    place = np.empty(size, np.int64)
    place[found] = np.arange(len(found))
    return torch.from_numpy(found), torch.from_numpy(place[numbers])
