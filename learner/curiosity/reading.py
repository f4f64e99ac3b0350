"""An observation's features: the input of the networks that evaluate it.

    pictures      -> random convolutions          texts -> MiniLM vectors, or random codes of their words
    categories one-hot, vectors, grids            for a set of texts, the mean
    all side by side -> normalised by the mean and deviation so far, clipped to [-5, 5]

Nothing here is trained: with the policy's own features, a state would become new again whenever the policy changes. The
limit is the convolutions, and the embedding of new texts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from envs.api import Field, Observation
from learner.models.networks.texts import LEAST_SIDE, convolutions
from learner.models.text_encoder import LearnedText
from learner.optim.collective import Group
from learner.optim.device import send
from llm_service.embedding import MINILM_WIDTH, embed_one

CUT = 5.0  # deviations (Burda et al. 2019, section 2.4)
TEXT_WIDTH = 128  # features of a text that is read by its words
BLOCK = 256  # pictures that are computed together

Texts = Callable[[NDArray[Any]], list[str]]


class Moments(nn.Module):
    """Mean and variance of each of `width` features over all observations so far, on all ranks; float64 [width]."""

    count: Tensor
    mean: Tensor
    square: Tensor

    def __init__(self, width: int, group: Group) -> None:
        super().__init__()
        self.group = group
        self.register_buffer("count", torch.zeros(1, dtype=torch.float64))  # a rank's share of the count
        self.register_buffer("mean", torch.zeros(width, dtype=torch.float64))
        self.register_buffer("square", torch.zeros(width, dtype=torch.float64))  # mean of the squares

    def update(self, x: Tensor) -> None:
        """Add features [M, width]; every rank must add some."""
        x = x.double()  # before squaring: the variance of a feature that hardly varies is a small difference
        message = torch.cat([x.new_full((1,), len(x)), x.sum(0), x.square().sum(0)])
        self.group.average(message)
        n, total, squares = torch.split(message, [1, len(self.mean), len(self.mean)])
        self.count += n
        self.mean += (total - n * self.mean) / self.count
        self.square += (squares - n * self.square) / self.count

    @property
    def deviation(self) -> Tensor:
        """Standard deviation [width]."""
        return (self.square - self.mean.square()).clamp(min=0).sqrt()


class Reader(nn.Module):
    """Features [M, width] of the `fields` of observations.

    Args:
        fields: the fields to read.
        words: the vocabulary, if texts are read by their words; None: by MiniLM.
    """

    def __init__(self, fields: Mapping[str, Field], words: Sequence[str] | None, group: Group) -> None:
        super().__init__()
        self.fields = dict(fields)
        self.pictures = [n for n, f in fields.items() if f.kind == "pixels" and min(f.shape[:2]) >= LEAST_SIDE]
        self.of_picture = nn.ModuleList(convolutions(fields[name].shape) for name in self.pictures)
        self.text = None if words is None else LearnedText(words, TEXT_WIDTH)
        self.requires_grad_(False)
        self.width = sum(self._width(name) for name in fields)
        self.moments = Moments(self.width, group)

    @torch.no_grad()
    def read(self, obs: Observation, texts: Texts) -> Tensor:
        """Observations [M, ...], whose text fields hold names of `texts` -> float32 [M, width], sent in one copy."""
        columns: dict[tuple[str, bool], Any] = {}
        for name, field in self.fields.items():
            columns[name, True] = obs[name]
            if field.kind == "text":
                named, row = np.unique(obs[name], return_inverse=True)
                columns |= {(name, True): row.reshape(obs[name].shape), (name, False): self._prepared(texts(named))}
        there = send(columns, self.moments.mean.device)
        return torch.cat([self._numbers(name, there[name, True], there.get((name, False))) for name in self.fields], -1)

    def scale(self, numbers: Tensor) -> Tensor:
        """[M, width] -> float32 [M, width] in [-5, 5], by the moments so far."""
        mean, deviation = self.moments.mean.float(), self.moments.deviation.float()
        return ((numbers - mean) / (deviation + 1e-8)).clamp(-CUT, CUT)

    def _numbers(self, name: str, value: Tensor, prepared: Tensor | None) -> Tensor:
        """Features of one field [M, ...]; text fields hold rows of the prepared texts."""
        field = self.fields[name]
        if prepared is not None:
            codes: Tensor = (prepared if self.text is None else self.text(prepared))[value]
            return codes.mean(1) if field.shape else codes
        if name in self.pictures:
            of = self.of_picture[self.pictures.index(name)]
            blocks = torch.split(value, BLOCK)
            return torch.cat([of(block.permute(0, 3, 1, 2).float() / 255) for block in blocks])
        if field.kind == "category":
            return nn.functional.one_hot(value.long(), field.size).float()
        return value.flatten(1).float()

    def _prepared(self, texts: Sequence[str]) -> Tensor:
        """Texts [U] as their words' tokens or as MiniLM embeddings, [U, ...]."""
        if self.text is None:
            return torch.from_numpy(np.stack([embed_one(text) for text in texts]))
        return self.text.prepare(texts)

    def _width(self, name: str) -> int:
        field = self.fields[name]
        if field.kind == "text":
            return MINILM_WIDTH if self.text is None else TEXT_WIDTH
        if name in self.pictures:
            height, width, colours = field.shape
            return int(self.of_picture[self.pictures.index(name)](torch.zeros(1, colours, height, width)).shape[1])
        return field.size if field.kind == "category" else math.prod(field.shape)
