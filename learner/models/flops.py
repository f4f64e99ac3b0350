"""How many operations a model's training needs, and how many a GPU could do in that time.

Model FLOP utilisation (Chowdhery et al. 2022, arXiv 2204.02311, appendix B) is the share of a chip's peak that a
model's own arithmetic takes, whatever else is computed: padding, the optimiser and what is computed again count for
nothing.

    a token forward                       2 a weight of every matrix that it passes
    a query forward, for each key seen    4 a layer and unit of width: its score, and its part of the sum
    forward and backward                  three times that; twice if only adapters learn
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import nn

from llm_service.backends.transformers.folder import encodes
from llm_service.scoring.computed import Computed

PEAK = {
    "A100": 312e12,
    "H100 PCIe": 756e12,
    "H100 NVL": 835e12,
    "H100": 989e12,
    "H200": 989e12,
    "GH200": 989e12,
    "B200": 2250e12,
    "L40S": 362e12,
    "L4": 121e12,
    "RTX 4090": 165e12,
}
"""Dense bfloat16 operations a second with sums in float32, by a part of the device's name, as their maker says. Where
several fit, the longest counts."""


def peak(name: str) -> float | None:
    """Operations a second that a device of this name could do; None if it is not known."""
    fitting = [known for known in PEAK if known in name]
    return PEAK[max(fitting, key=len)] if fitting else None


def weights(*modules: nn.Module) -> int:
    """Weights of the matrices in modules: of all layers that multiply, none of the tables that tokens are looked up
    in."""
    layers = (layer for module in modules for layer in module.modules() if not isinstance(layer, nn.Embedding))
    own = (parameter for layer in layers for parameter in layer.parameters(recurse=False))
    return sum(parameter.numel() for parameter in own if parameter.ndim == 2)


def attention(queries_and_keys: Iterable[tuple[int, int]], layers: int, width: int) -> int:
    """Operations of attention forward: for each sequence its queries and the keys that each of them sees."""
    return 4 * layers * width * sum(queries * keys for queries, keys in queries_and_keys)


def language(model: Any, computed: Computed) -> int:
    """Operations forward of a language model, as transformers builds it, for what a scorer has computed with it.

    Of a T5 the encoder counts for the tokens of prompts, decoder and head for the nodes of candidates.
    """
    config = model.config.get_text_config()
    if encodes(config):
        products = computed.told * weights(model)
        return 2 * products + attention_of(config) * computed.told_pairs
    head = model.get_output_embeddings()
    if config.is_encoder_decoder:
        encoder, decoder = model.encoder.block, model.decoder.block
        products = computed.told * weights(encoder) + computed.nodes * weights(decoder, head)
        width: int = encoder[0].layer[0].SelfAttention.inner_dim
        seen = len(encoder) * computed.told_pairs + len(decoder) * computed.node_pairs
        return 2 * products + 4 * width * seen
    passed = computed.tokens - computed.prompts  # the root of a tree is its prompt's last token
    products = passed * (weights(model) - weights(head)) + computed.nodes * weights(head)
    return 2 * products + attention_of(config) * (computed.told_pairs // 2 + computed.node_pairs)


def attention_of(config: Any) -> int:
    """Operations of all layers for one query and key that it sees."""
    heads: int = config.num_attention_heads
    width: int = heads * (getattr(config, "head_dim", None) or config.hidden_size // heads)
    return 4 * width * int(config.num_hidden_layers)
