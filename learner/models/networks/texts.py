"""Texts, pictures and numbers side by side: the input of a language-guided agent in an environment with pictures.

    every text field   -> code of the text; of a set of texts, the sum of their codes. Codes of MiniLM are its
                          embeddings, so that each field has one projection of 384 numbers
    `pixels` fields    -> three convolutions (Mnih et al. 2015): 32 of 8x8, 64 of 4x4, 64 of 3x3, steps 4, 2, 1
    categories one-hot, vectors, grids divided by 10
    all side by side   -> Linear -> ReLU -> features [B, hidden]

The last Linear is a sum over fields, and a text's part in it is computed once for each text that the field names in the
batch, not once for each observation; `of_texts` returns these parts, so that callers can cache them. With pictures, the
limit is the convolutions, some 14 MFLOP forward for 84 x 84 x 3; without, the text encoder and the heads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from envs.api import EnvSpec, Field
from learner.models.config import PolicyConfig
from learner.models.policy import Observations
from learner.models.rows import Appearing, sum_rows
from learner.models.text_encoder import code_width

NUMBERS = "all numbers"  # the inputs' key of everything but texts; no field has this name
LEAST_SIDE = 36  # pixels: below, nothing is left after the convolutions


class Network(nn.Module):
    """Features [B, hidden] of any observation."""

    def __init__(self, config: PolicyConfig, spec: EnvSpec) -> None:
        super().__init__()
        named: dict[str, list[str]] = {}
        for name, field in spec.fields.items():
            named.setdefault(field.kind, []).append(name)
        self.texts, self.pictures = named.pop("text", []), named.pop("pixels", [])
        self.numbers = {name: spec.fields[name] for names in named.values() for name in names}
        self.width, code = config.hidden, code_width(config)
        # Lists: a dictionary of modules refuses fields that are called like its own methods, such as "items".
        encoders = [self.encoder(config, spec.fields[name].shape) for name in self.pictures]
        self.of_picture = nn.ModuleList(encoder for encoder, _ in encoders)
        rest = sum(size(field) for field in self.numbers.values()) + sum(features for _, features in encoders)
        out = nn.Linear(code * len(self.texts) + rest, config.hidden)
        parts = torch.split(out.weight, [code] * len(self.texts) + [rest], 1)
        self.out = nn.ParameterList(part.clone() for part in parts)  # one for each text field, and for the rest
        self.out_bias = out.bias

    @staticmethod
    def encoder(config: PolicyConfig, shape: tuple[int, ...]) -> tuple[nn.Module, int]:
        """What encodes pictures [B, C, H, W] of `shape` (H, W, C) as [B, features], and the number of features."""
        return convolutions(shape), _left(*shape[:2])

    def inputs(self, obs: Observations) -> dict[str, Tensor]:
        """Numbers as float32 [..., size]; texts and pictures (uint8: a quarter of the memory) as they are."""
        found = {name: obs[name] for name in (*self.texts, *self.pictures)}
        return found | {name: flat(obs[name], field) for name, field in self.numbers.items()}

    def forward(self, obs: Observations, codes: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs [B, ...] (texts as row indices into `codes` [U, width of a code]) -> features [B, hidden]."""
        if codes.device.type == "cpu":
            sizes, chosen, places = list[int](), list[Tensor](), dict[str, Tensor]()
            for name in self.texts:
                used, rows = Appearing(len(codes))(obs[name].numpy())
                places[name] = torch.from_numpy(rows + sum(sizes))
                chosen.append(codes[torch.from_numpy(used)])
                sizes.append(len(used))
            return self.combine({**obs, **places}, self.of_texts(torch.cat(chosen) if chosen else codes, sizes))
        total = self.of_rest(obs)
        for out, name in zip(self.out, self.texts, strict=False):  # the last is of the rest
            if obs[name].dim() > 1:  # a set [B, K]
                total = total + linear(codes[obs[name]].sum(1), out)
            else:  # of all codes: to find those that are named, the host would have to wait
                total = total + linear(codes, out).index_select(0, obs[name])
        features = torch.relu(total)
        return features, features

    def of_texts(self, codes: Tensor, sizes: Sequence[int]) -> Tensor:
        """The part of each text [U, hidden] by its code [U, C]: sizes[0] of the first text field, and so on."""
        by_field = torch.split(codes, list(sizes))
        parts = [linear(each, out) for each, out in zip(by_field, self.out, strict=False)]
        return torch.cat(parts) if parts else codes.new_zeros(0, self.width)

    def combine(self, obs: Observations, texts: Tensor) -> tuple[Tensor, Tensor]:
        """`forward`, with texts as row indices into their parts [U, hidden], which are summed."""
        total = self.of_rest(obs)
        if self.texts:
            named = torch.cat([obs[name].reshape(len(obs[name]), -1) for name in self.texts], 1)
            total = total + sum_rows(texts, named)
        features = torch.relu(total)
        return features, features

    def of_rest(self, obs: Observations) -> Tensor:
        """The part of all that is not text, and the bias: [B, hidden], or [hidden] if there are only texts."""
        rest = [obs[name] for name in self.numbers]
        for of, name in zip(self.of_picture, self.pictures, strict=True):
            # A view of rows of channels, which convolutions compute fastest; in the type of their weights.
            rest.append(of(obs[name].permute(0, 3, 1, 2).to(self.out[-1].dtype).div_(255)))
        return self.out_bias + linear(torch.cat(rest, -1), self.out[-1]) if rest else self.out_bias


def convolutions(shape: tuple[int, ...]) -> nn.Module:
    """Pictures [B, C, H, W] of `shape` (H, W, C) -> [B, features]; ValueError if they are too small."""
    if min(shape[:2]) < LEAST_SIDE:
        raise ValueError(f"the texts network needs pictures of {LEAST_SIDE} pixels a side, got {shape[0]} x {shape[1]}")
    layers = [nn.Conv2d(shape[2], 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3, 1)]
    return nn.Sequential(*layers, nn.ReLU(), nn.Flatten())


def _left(*sides: int) -> int:
    """Features that the convolutions leave of a picture with these sides."""
    return 64 * math.prod((((side - 8) // 4 + 1 - 4) // 2 + 1) - 2 for side in sides)


def size(field: Field) -> int:
    """Numbers that `flat` makes of one value of a field."""
    return field.size if field.kind == "category" else math.prod(field.shape)


def flat(value: Tensor, field: Field) -> Tensor:
    """Values [..., *shape] of a field that is neither text nor picture -> float32 [..., size]."""
    if field.kind == "category":
        return nn.functional.one_hot(value, field.size).float()
    numbers = value.flatten(-len(field.shape)).float()
    return numbers / 10.0 if field.kind == "grid" else numbers


def side_by_side(obs: Observations, texts: Sequence[str], numbers: Mapping[str, Field]) -> dict[str, Tensor]:
    """Texts as they are, and all `numbers`, if there are any, as one input `NUMBERS`, float32 [..., width]."""
    found = {name: obs[name] for name in texts}
    if numbers:
        parts = [flat(obs[name], field) for name, field in numbers.items()]
        found[NUMBERS] = parts[0] if len(parts) == 1 else torch.cat(parts, -1)
    return found
