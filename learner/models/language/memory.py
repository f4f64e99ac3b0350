"""How much memory a policy takes that is a language model: by its shape, and by what of it is trained.

                       all trained        adapters trained      only asked
    weights            4                  2                     4, or 2 where none is trained       bytes each
    their copies       2                  0                     2, while it computes
    gradient           4 for each weight that is trained
    Adam's moments     8 for each weight that is trained
    activations        what blocks keep of each token for the backward pass; with checkpointing their borders only, and
                       all of one block

That is for bfloat16; in float32 weights take 4, there are no copies, and activations take twice as much. Activations
are those of one micro-batch: fewer tokens at a time take less memory, and more time.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

Tune = Literal["all", "lora", "none"]
MOST, LEAST = 32_768, 1024
"""Tokens of a micro-batch: more do not make a GPU faster, and fewer leave it idle."""


class Shape(NamedTuple):
    """Of a transformer, as far as memory goes by it. Prompts pass `layers` blocks: of T5, the encoder's."""

    parameters: int
    layers: int
    width: int  # of a token between blocks
    inner: int  # of all heads together
    perceptron: int  # of the wide layer
    gated: bool = True


KNOWN = {
    "flan-t5-small": Shape(76_961_152, 8, 512, 384, 1024),
    "flan-t5-base": Shape(247_577_856, 12, 768, 768, 2048),
    "flan-t5-large": Shape(783_150_080, 24, 1024, 1024, 2816),
    "flan-t5-xl": Shape(2_849_757_184, 24, 2048, 2048, 5120),
    "flan-t5-xxl": Shape(11_135_332_352, 24, 4096, 4096, 10_240),
    "Llama-3.2-1B": Shape(1_235_814_400, 16, 2048, 2048, 8192),
    "Llama-3.1-8B": Shape(8_030_261_248, 32, 4096, 4096, 14_336),
}
"""Models of well-known shapes."""


class Need(NamedTuple):
    """Bytes."""

    weights: int
    gradients: int
    moments: int
    activations: int

    @property
    def total(self) -> int:
        return sum(self)


def shape_of(model: Any) -> Shape:
    """The shape of a model as transformers builds it, with or without numbers."""
    config, parameters = model.config.get_text_config(), sum(p.numel() for p in model.parameters())
    if config.is_encoder_decoder:
        inner = config.num_heads * config.d_kv
        return Shape(parameters, config.num_layers, config.d_model, inner, config.d_ff, config.is_gated_act)
    width = config.hidden_size
    wide = getattr(config, "intermediate_size", None) or getattr(config, "n_inner", None) or 4 * width
    gated = any(name.endswith("gate_proj") for name, _ in model.named_modules())
    return Shape(parameters, config.num_hidden_layers, width, width, wide, gated)


def need(
    shape: Shape,
    tune: Tune = "all",
    half: bool = True,
    tokens: int = 8192,
    checkpointing: bool = False,
    adapters: int = 0,
) -> Need:
    """What a learner takes.

    Args:
        shape: of the model.
        tune: what is trained.
        half: it computes in bfloat16.
        tokens: of a micro-batch.
        checkpointing: blocks are computed again for the backward pass.
        adapters: weights of low-rank adapters, which are float32.
    """
    trained = {"all": shape.parameters, "lora": adapters, "none": 0}[tune]
    each = (6 if tune == "all" else 2) if half else 4  # float32 and a copy to compute with; or one of the two
    weights = shape.parameters * each + 4 * adapters
    return Need(weights, 4 * trained, 8 * trained, tokens * kept(shape, half, checkpointing))


def kept(shape: Shape, half: bool, checkpointing: bool) -> int:
    """Bytes that are kept of a token for the backward pass."""
    wide = 4 if shape.gated else 2  # of a gate both factors, what the activation makes of one, and their product
    block = 4 * shape.width + 4 * shape.inner + wide * shape.perceptron
    numbers = shape.layers * shape.width + block if checkpointing else shape.layers * block
    return numbers * (2 if half else 4)


def at_once(shape: Shape, free: int, half: bool, checkpointing: bool) -> int:
    """Tokens of a micro-batch for which `free` bytes do: half of them for what is kept, the rest for what comes and
    goes beside it, logits and gradients of single layers above all."""
    return max(LEAST, min(MOST, free // 2 // kept(shape, half, checkpointing)))


def budget(model: Any, half: bool, checkpointing: bool) -> int | None:
    """Tokens of a micro-batch that a model's GPU has memory for, when gradients and moments of its weights are still to
    come. None on a CPU, where not memory but its cache decides."""
    if model.device.type != "cuda":
        return None
    import torch

    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    free = torch.cuda.mem_get_info(model.device)[0] - 12 * trained
    return at_once(shape_of(model), free, half, checkpointing)


def largest(memory: int, tune: Tune, adapters_share: float = 0.01) -> str | None:
    """The largest of the known models that can be trained in so many bytes, with checkpointing; None if none can."""
    fits = [
        (shape.parameters, name)
        for name, shape in KNOWN.items()
        if need(shape, tune, True, LEAST * 4, True, round(adapters_share * shape.parameters)).total <= 0.9 * memory
    ]
    return max(fits)[1] if fits else None
