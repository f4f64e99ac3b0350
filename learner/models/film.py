"""FiLM network: a symbolic view and a sentence (Perez et al. 2018; BabyAI 1.0's policy in small).

    view [B, H, W, 3] -> one embedding per cell (object + colour + state) -> modulated by the sentence, twice
                      -> all cells side by side -> Linear -> features [B, hidden]

A cell's embedding is looked up in one table of all (object, colour, state) triples, summed from three small ones, so
that a batch costs one gather. The limit is the product of [B, H*W*C] with the last layer, about 0.4 MFLOP a step.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from envs.api import EnvSpec
from learner.models.policy import Observations, PolicyConfig

SYMBOLS = (16, 8, 4)  # room for every object, colour and state code of a grid world
CHANNELS = 32


class Network(nn.Module):
    """Features [B, hidden] of observations with grids, categories and texts."""

    def __init__(self, config: PolicyConfig, spec: EnvSpec) -> None:
        super().__init__()
        self.grids = [n for n, f in spec.fields.items() if f.kind == "grid"]
        self.texts = [n for n, f in spec.fields.items() if f.kind == "text"]
        self.categories = {n: f.size for n, f in spec.fields.items() if f.kind == "category"}
        self.vectors = {n: f.shape[0] for n, f in spec.fields.items() if f.kind == "vector"}
        cells = sum(spec.fields[n].shape[0] * spec.fields[n].shape[1] for n in self.grids)
        if cells:
            self.symbols = nn.ParameterList(torch.randn(size, CHANNELS) for size in SYMBOLS)
            self.film = nn.ModuleList(
                nn.Linear(config.hidden * max(1, len(self.texts)), 2 * CHANNELS) for _ in range(2)
            )
            self.mix = nn.Linear(CHANNELS, CHANNELS)
        flat = cells * CHANNELS + len(self.texts) * config.hidden + sum(self.categories.values())
        self.out = nn.Linear(flat + sum(self.vectors.values()), config.hidden)
        self.hidden = self.width = config.hidden

    def forward(self, obs: Observations, codes: Tensor) -> tuple[Tensor, Tensor]:
        """obs [B, ...] (texts as row indices into `codes` [U, hidden]) -> features [B, hidden]."""
        sentence = [codes[obs[name]] for name in self.texts]
        parts = list(sentence)
        if self.grids:
            cells = torch.cat([self._embed(obs[name]) for name in self.grids], 1)  # [B, cells, C]
            condition = (
                torch.cat(sentence, -1) if sentence else torch.zeros(len(cells), self.hidden, device=cells.device)
            )
            scale, shift = self.film[0](condition).unsqueeze(1).chunk(2, -1)
            cells = torch.relu(torch.addcmul(shift, cells, 1 + scale))
            scale, shift = self.film[1](condition).unsqueeze(1).chunk(2, -1)
            cells = torch.relu(torch.addcmul(shift, self.mix(cells), 1 + scale))
            parts.append(cells.flatten(1))  # [B, cells * C]
        parts += [nn.functional.one_hot(obs[n], size).float() for n, size in self.categories.items()]
        parts += [obs[n] for n in self.vectors]
        features = torch.relu(self.out(torch.cat(parts, -1)))
        return features, features

    def _embed(self, grid: Tensor) -> Tensor:
        """uint8 [B, H, W, 3] -> [B, H*W, C]."""
        objects, colours, states = self.symbols
        table = objects[:, None, None] + colours[None, :, None] + states[None, None, :]  # [16, 8, 4, C]
        o, c, s = grid.long().unbind(-1)
        return nn.functional.embedding((o * SYMBOLS[1] + c) * SYMBOLS[2] + s, table.flatten(0, 2)).flatten(1, 2)
