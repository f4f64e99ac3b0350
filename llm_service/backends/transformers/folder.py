"""A model on disk in Hugging Face's layout: read without a network, and named by its content."""

# mypy: allow-untyped-calls
# Transformers claims to be typed; some of its functions are not.

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from llm_service.errors import UsageError

ENCODERS = ("bert", "distilbert", "electra", "modernbert", "mpnet", "nomic_bert", "roberta", "xlm-roberta")
"""Kinds of models that read texts and write none."""
SAMPLES = 256
"""Number of blocks of each weights file that the fingerprint reads."""
BLOCK = 4096
ADAPTERS = "adapter_config.json"


def fingerprint(folder: Path) -> str:
    """12 hexadecimal digits of everything that a model's answers depend on: configuration, tokenizer and weights.

    JSON and template files are read completely. For each weights file, the hash covers the size, the header (names,
    types, shapes) and evenly spread blocks, at most 1 MB: training changes nearly all numbers, so changes are detected
    quickly.
    """
    hasher = hashlib.blake2b(digest_size=6)
    for path in sorted(
        p for p in folder.iterdir() if p.suffix in (".json", ".jinja", ".model", ".txt", ".safetensors")
    ):
        size = path.stat().st_size
        hasher.update(f"{path.name}:{size};".encode())
        with open(path, "rb") as file:
            if path.suffix != ".safetensors":
                hasher.update(file.read())
                continue
            head = int.from_bytes(file.read(8), "little")
            hasher.update(file.read(min(head, size)))
            for at in np.linspace(0, max(0, size - BLOCK), SAMPLES).astype(int).tolist():
                file.seek(at)
                hasher.update(file.read(BLOCK))
    return hasher.hexdigest()


def base(folder: Path, key: str = "llm.folder") -> Path:
    """The folder of the model itself: the same one, or of a folder with low-rank adapters, the one that they name.

    Raises:
        UsageError: the adapters cannot be used.
    """
    about = folder / ADAPTERS
    if (folder / "config.json").is_file() or not about.is_file():
        return folder
    if not (folder / "adapter_model.safetensors").is_file():
        raise UsageError(f"{key}: {folder} has no adapter_model.safetensors: only *.safetensors is supported")
    try:
        told = json.loads(about.read_text(encoding="utf-8"))
        kind, name = told["peft_type"], Path(told["base_model_name_or_path"])
    except (ValueError, KeyError, TypeError):
        raise UsageError(f"{key}: {about} does not name its base model") from None
    if kind != "LORA" or not name.is_dir():
        raise UsageError(f"{key}: the adapters in {folder} need type LORA and a base model on this machine, not {name}")
    return name


def merged(network: Any, folder: Path, key: str = "llm.folder") -> Any:
    """A model with the adapters of a folder added to its weights. Raises UsageError if they do not fit it."""
    from peft import PeftModel

    kept = network.generation_config
    try:
        network = PeftModel.from_pretrained(network, str(folder)).merge_and_unload().eval()
    except (ValueError, KeyError, TypeError, OSError, RuntimeError) as error:
        raise UsageError(f"{key}: the adapters in {folder} do not fit their model: {_first_line(error)}") from None
    network.generation_config = kept
    return network


def content(weights: Mapping[str, Any]) -> str:
    """12 hexadecimal digits of weights, tensors or arrays: version 3 of one run differs from version 3 of another."""
    hasher = hashlib.blake2b(digest_size=6)
    for name in sorted(weights):
        value = weights[name]
        array = value if isinstance(value, np.ndarray) else value.detach().float().cpu().numpy()  # numpy has no bf16
        hasher.update(f"{name}{array.shape};".encode() + np.ascontiguousarray(array).tobytes())
    return hasher.hexdigest()


def check(folder: Path, device: str, key: str = "llm.folder") -> None:
    """Check that there is a readable model. `key` is the setting that messages name.

    Raises:
        UsageError: names what is missing.
    """
    if not folder.is_dir():
        raise UsageError(f"{key}: there is no folder {folder}")
    if not (folder / "config.json").is_file():
        raise UsageError(f"{key}: {folder} is not a model: it has no config.json")
    if not any(folder.glob("*.safetensors")):
        raise UsageError(f"{key}: {folder} has no weights: only *.safetensors is supported")
    try:
        json.loads((folder / "config.json").read_text(encoding="utf-8"))["model_type"]
    except (ValueError, KeyError, TypeError):
        raise UsageError(f"{key}: {folder}/config.json does not say its model_type") from None

    import torch

    if device == "cuda" and not torch.cuda.is_available():
        place = key.replace("folder", "device")
        raise UsageError(f"{place}: there is no GPU that PyTorch can use: set {place}=cpu")


def encodes(shape: Any) -> bool:
    """Whether a model of this configuration is an encoder alone: it has states of a text, but no next token."""
    return shape.model_type in ENCODERS and not getattr(shape, "is_decoder", False)


def class_for(shape: Any) -> Any:
    """The class of transformers that builds a model of this configuration."""
    from transformers import AutoModel, AutoModelForCausalLM, AutoModelForSeq2SeqLM

    if encodes(shape):
        return AutoModel
    return AutoModelForSeq2SeqLM if shape.is_encoder_decoder else AutoModelForCausalLM


def read(
    folder: Path, dtype: str, device: str, key: str = "llm.folder", *, weights: bool = True, noise: bool = True
) -> tuple[Any, Any]:
    """Model in evaluation mode on its device, and tokenizer.

    Args:
        folder: folder with config.json, tokenizer and weights.
        dtype: float32, bfloat16, or auto for the stored type.
        device: cpu, cuda, or auto for the GPU if there is one.
        key: the setting that messages name.
        weights: false initialises them randomly, from PyTorch's random numbers.
        noise: false sets every dropout rate to 0, also for training.

    Raises:
        UsageError: names what is missing or cannot run.
    """
    check(folder, device, key)
    kind = json.loads((folder / "config.json").read_text(encoding="utf-8"))["model_type"]

    import torch
    from transformers import AutoConfig, AutoTokenizer, GenerationConfig
    from transformers.utils import logging as library_logging

    library_logging.disable_progress_bar()
    local = {"local_files_only": True, "trust_remote_code": False}
    try:
        shape = AutoConfig.from_pretrained(folder, **local)
        if not noise:
            for name, value in shape.to_dict().items():
                if "drop" in name and isinstance(value, float):
                    setattr(shape, name, 0.0)
        auto = class_for(shape)
        if weights:
            network = auto.from_pretrained(folder, config=shape, dtype=dtype, use_safetensors=True, **local).eval()
        else:
            network = auto.from_config(shape, dtype=None if dtype == "auto" else getattr(torch, dtype)).eval()
    except (ValueError, KeyError, OSError, ImportError, RuntimeError) as error:
        raise UsageError(f"{key}: {folder} is a {kind} model that cannot be run here: {_first_line(error)}") from None
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, **local)
    except (ValueError, KeyError, OSError, ImportError, RuntimeError) as error:
        raise UsageError(f"{key}: {folder} has no tokenizer that can be read: {_first_line(error)}") from None
    if encodes(shape):
        network.pooler = None  # nothing reads what it makes of the first token
    else:
        old = network.generation_config  # ignore the publisher's defaults (penalties, sampling): the call decides
        network.generation_config = GenerationConfig(
            eos_token_id=old.eos_token_id if old.eos_token_id is not None else tokenizer.eos_token_id,
            bos_token_id=old.bos_token_id,
            pad_token_id=padding_token(tokenizer),
            decoder_start_token_id=old.decoder_start_token_id,
        )
    on_gpu = device == "cuda" or (device == "auto" and torch.cuda.is_available())
    return network.to("cuda" if on_gpu else "cpu"), tokenizer


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def padding_token(tokenizer: Any) -> int:
    """The token at masked positions: any token will do."""
    return int(tokenizer.pad_token_id or tokenizer.eos_token_id or 0)
