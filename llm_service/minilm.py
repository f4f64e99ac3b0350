"""MiniLM, the sentence encoder that ships as a package, in plain PyTorch.

    texts ──tokens──> words + places [B, T, 384] ──6 x attention, wide layer──> hidden states ──mean──> unit vectors

A library's general model takes seconds to import and build, in every process that embeds; this reads the same two files
in a tenth of a second. The network is BERT's encoder (Devlin et al. 2018, arXiv 1810.04805), normalised after each sum,
with the weights of all-MiniLM-L6-v2 (Wang et al. 2020, arXiv 2002.10957, tuned for sentences).

The limit is memory: however short a text is, 42 MB of weights are read for it, 8 ms on a slow core.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional

HEADS = 12
EPSILON = 1e-12  # of the normalisation
LONGEST = 256
"""Tokens of a text; further ones are cut off."""


class MiniLM:
    """The frozen encoder.

    Args:
        folder: `model.safetensors` and `tokenizer.json`.

    Attributes:
        words: the embedding of each word of the vocabulary, [30522, 384].
    """

    def __init__(self, folder: Path, device: str = "cpu") -> None:
        self._tokens = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokens.enable_truncation(LONGEST)
        self._tokens.no_padding()
        weights = load_file(folder / "model.safetensors", device)
        named = "embeddings."
        self.words = weights[f"{named}word_embeddings.weight"]
        # Every text is the first of the pairs that BERT knows.
        own = weights[f"{named}token_type_embeddings.weight"][0]
        self._places = weights[f"{named}position_embeddings.weight"] + own
        self._norm = _norm(weights, named)
        depth = sum(name.endswith("intermediate.dense.bias") for name in weights)
        self._layers = [_Layer(weights, f"encoder.layer.{i}.") for i in range(depth)]

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Texts -> float32 [N, 384], unit length."""
        tokens = [each.ids for each in self._tokens.encode_batch(list(texts))]
        lengths = torch.tensor([len(each) for each in tokens], device=self.words.device)
        ids = nn.utils.rnn.pad_sequence([torch.tensor(each) for each in tokens], batch_first=True)
        there = None
        if len(texts) > 1:
            there = torch.arange(ids.shape[1], device=self.words.device) < lengths[:, None]
        with torch.no_grad():
            hidden = self.read(self.words[ids.to(self.words.device)], there)
            total = (hidden if there is None else hidden * there[..., None]).sum(1)
            mean = total / lengths[:, None]
            vectors: NDArray[np.float32] = (mean / mean.norm(dim=1, keepdim=True)).cpu().numpy()
        return vectors

    def read(self, words: Tensor, there: Tensor | None = None) -> Tensor:
        """Hidden states [B, T, 384] of words, or of mixes of words, in their order.

        Args:
            words: float32 [B, T, 384], T <= 512.
            there: bool [B, T], false where a shorter row has no word; None: all are there.
        """
        with torch.autocast(words.device.type, enabled=False):  # whatever the caller is doing
            x = functional.layer_norm(words + self._places[: words.shape[1]], words.shape[-1:], *self._norm, EPSILON)
            seen = None if there is None else there[:, None, None]
            for layer in self._layers:
                x = layer(x, seen)
        return x


class _Layer:
    """Attention of each word to all, then two linear layers on each; both are added, and the sum is normalised."""

    def __init__(self, weights: dict[str, Tensor], name: str) -> None:
        asked = [_linear(weights, f"{name}attention.self.{part}.") for part in ("query", "key", "value")]
        self._asked = tuple(torch.cat(parts) for parts in zip(*asked, strict=True))
        self._told = _linear(weights, f"{name}attention.output.dense.")
        self._first_norm = _norm(weights, f"{name}attention.output.")
        self._wide = _linear(weights, f"{name}intermediate.dense.")
        self._narrow = _linear(weights, f"{name}output.dense.")
        self._second_norm = _norm(weights, f"{name}output.")

    def __call__(self, x: Tensor, seen: Tensor | None) -> Tensor:
        rows, length, width = x.shape
        asked = functional.linear(x, *self._asked).view(rows, length, 3, HEADS, width // HEADS)
        query, key, value = asked.permute(2, 0, 3, 1, 4)  # each [B, heads, T, width / heads]
        told = functional.scaled_dot_product_attention(query, key, value, seen).transpose(1, 2).reshape(x.shape)
        x = functional.layer_norm(x + functional.linear(told, *self._told), x.shape[-1:], *self._first_norm, EPSILON)
        wide = functional.gelu(functional.linear(x, *self._wide))
        return functional.layer_norm(
            x + functional.linear(wide, *self._narrow), x.shape[-1:], *self._second_norm, EPSILON
        )


def _linear(weights: dict[str, Tensor], name: str) -> tuple[Tensor, Tensor]:
    return weights[f"{name}weight"], weights[f"{name}bias"]


def _norm(weights: dict[str, Tensor], name: str) -> tuple[Tensor, Tensor]:
    return _linear(weights, f"{name}LayerNorm.")
