"""A language model made ready to be trained: weights as asked for, no dropout, adapters in place.

folder ──> config, tokenizer ──> weights: all | embeddings | none ──> all trained | low-rank adapters | frozen
"""

# mypy: allow-untyped-calls
# Transformers says that it is typed; some of its functions are not.

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from llm_service import tiny
from llm_service.backends.transformers.folder import check, class_for, encodes, read
from llm_service.embedding import EmbedderMissing, minilm_folder
from llm_service.errors import UsageError
from llm_service.scoring.tokens import Boundary

KEY = "policy.lm.folder"
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json", "vocab.txt", "tiktoken.model")
"""Files of which a tokenizer has one at least."""
LOCAL: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}


def place(name: str) -> Path:
    """The folder that a name stands for; a tiny model is made if it is not there yet.

    Raises:
        UsageError: the package of MiniLM is not installed.
    """
    if name == "minilm":
        try:
            return Path(minilm_folder())
        except EmbedderMissing as missing:
            raise UsageError(f"{KEY}=minilm: {missing}") from None
    return tiny.folder(name) if name in tiny.NAMES else Path(name)


def shape_of(name: str) -> Path:
    """A folder with the same layers and the same tokenizer, there in seconds."""
    return place("tiny-t5" if name == "tiny-t5-reader" else name)


def in_half(lm: Any) -> bool:
    """Whether the model of a `LanguageModelConfig` computes in bfloat16 here."""
    on_gpu = lm.device == "cuda" or (lm.device == "auto" and torch.cuda.is_available())
    return lm.precision == "bfloat16" or (lm.precision == "auto" and on_gpu)


def load(lm: Any, seed: int) -> tuple[Any, Any]:
    """The model of a `LanguageModelConfig`, whose trained parameters require gradients, and its tokenizer.

    Raises:
        UsageError: the folder is no model, lacks its tokenizer, or has no layers of the names for adapters.
    """
    folder = place(lm.folder)
    whole = lm.tune == "all" or not in_half(lm)
    dtype = "float32" if whole else "bfloat16"  # what is trained stays in float32: small steps would be rounded away
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model, tokenizer = read(folder, dtype, lm.device, KEY, weights=lm.pretrained == "all", noise=False)
        if lm.pretrained == "embeddings":
            trained, _ = read(folder, dtype, lm.device, KEY)
            with torch.no_grad():
                model.get_input_embeddings().weight.copy_(trained.get_input_embeddings().weight)
        prepare(model, lm)
    if lm.checkpointing:  # the library does it in training mode only, in which nothing else differs: dropout is 0
        model.activation_checkpointing_enable()
        model.config.use_cache = False
    return model, tokenizer


def prepare(model: Any, lm: Any) -> None:
    """Choose what is trained: all, nothing, or low-rank adapters in float32, which are put into the model's layers.

    Raises:
        UsageError: peft is not installed, or the model has no such layers.
    """
    if lm.tune == "all":
        return
    model.requires_grad_(False)
    if lm.tune == "none":
        return
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError:
        raise UsageError("policy.lm.tune=lora needs peft: pip install peft==0.21.2") from None
    from transformers.pytorch_utils import Conv1D

    kinds = (torch.nn.Linear, Conv1D)
    layers = sorted({name.rpartition(".")[2] for name, m in model.named_modules() if isinstance(m, kinds)})
    kind, there = model.config.model_type, ", ".join(layers)
    for name in lm.lora_targets:
        if name not in layers:
            raise UsageError(f"policy.lm.lora_targets: {kind} has no layers {name}: choose from {there}")
    targets = list(lm.lora_targets) or None
    try:
        inject_adapter_in_model(LoraConfig(r=lm.lora_rank, lora_alpha=lm.lora_alpha, target_modules=targets), model)
    except ValueError as error:
        raise UsageError(
            f"policy.lm.lora_targets: which layers of {kind} usually get adapters is not known: choose from {there}"
        ) from error
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            parameter.data = parameter.data.float()


def skeleton(lm: Any) -> Any:
    """The model without numbers: layers, adapters, and which parameters are trained. `inspect` comes first.

    Raises:
        UsageError: it has no layers of the names for adapters.
    """
    from transformers import AutoConfig

    shape = AutoConfig.from_pretrained(shape_of(lm.folder), **LOCAL)
    with torch.device("meta"):
        model = class_for(shape).from_config(shape)
        if encodes(shape):
            model.pooler = None
        prepare(model, lm)
    return model


def inspect(lm: Any) -> Boundary:
    """See whether the folder holds a model for `lm.head`, as far as can be seen without its weights; its tokenizer.

    Raises:
        UsageError: as `load`; or the head is not for such a model.
    """
    folder = shape_of(lm.folder)
    check(folder, "auto", KEY)  # where the GPUs are that `cuda` asks for is seen when roles are placed
    if not any((folder / name).is_file() for name in TOKENIZERS):  # of some families the library would make up one
        raise UsageError(f"{KEY}: {folder} has no tokenizer that can be read: there is none of {', '.join(TOKENIZERS)}")
    from transformers import AutoConfig, AutoTokenizer

    try:
        shape = AutoConfig.from_pretrained(folder, **LOCAL)
        tokenizer = AutoTokenizer.from_pretrained(folder, **LOCAL)
    except (ValueError, KeyError, OSError, ImportError, RuntimeError) as error:
        line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UsageError(f"{KEY}: {folder} has no tokenizer that can be read: {line}") from None
    encoder = encodes(shape)
    if lm.head != "actions" and encoder != (lm.head == "similarity"):
        kind = f"is an encoder ({shape.model_type}), which writes no words" if encoder else "is not an encoder"
        other = "similarity" if encoder else "scores"
        raise UsageError(f"policy.lm.head={lm.head}: {folder} {kind}: use head={other}, or head=actions")
    return Boundary(tokenizer, bool(shape.is_encoder_decoder), encoder)
