"""A trained language-model policy as a Hugging Face folder that other programs can load, and back.

    policy ── write ──> config, weights, tokenizer; of adapters: PEFT's files ──> transformers, PEFT
                   └──> heads.safetensors, policy.json                        ──> read ──> weights of a policy

The heads (value, and the logits of `head=actions`) belong to no library, so they are a file of their own.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import safetensors.numpy

from envs.api import EnvSpec
from learner.files import write_arrays, write_file
from learner.models.config import PolicyConfig
from learner.models.language.language_model import LOCAL, place
from learner.models.language.llm_policy import LanguagePolicy, parts_without_numbers
from learner.models.weights import Weights, assert_same_shapes, get_weights
from llm_service.backends.transformers.folder import class_for, encodes
from llm_service.errors import UsageError

ABOUT, HEADS, ADAPTERS = "policy.json", "heads.safetensors", "adapter_model.safetensors"
FORMAT = 1
BODY = "model."
"""Prefix of the language model's own weights; other names are the heads'."""


def write(policy: LanguagePolicy, config: PolicyConfig, folder: Path) -> None:
    """Write a policy on the CPU, in float32, into an empty folder.

    Raises:
        OSError: the disk refuses it.
    """
    weights = get_weights(policy)
    write_arrays(folder / HEADS, {name: value for name, value in weights.items() if not name.startswith(BODY)})
    assert policy.scorer.boundary is not None
    policy.scorer.boundary.tokenizer.save_pretrained(folder)
    if config.lm.tune == "lora":
        _write_adapters(policy, config, {n: v for n, v in weights.items() if n.startswith(BODY)}, folder)
    else:
        policy.model.save_pretrained(folder)
    about = {"format": FORMAT, "actions": list(policy.prompter.names), "policy": config.model_dump(mode="json")}
    write_file(folder / ABOUT, json.dumps(about, indent=1).encode())


def _write_adapters(policy: LanguagePolicy, config: PolicyConfig, weights: Weights, folder: Path) -> None:
    from peft import LoraConfig

    layers = sorted({name.partition(".lora_")[0].rpartition(".")[2] for name in weights})
    shape = policy.model.config
    task = "SEQ_2_SEQ_LM" if shape.is_encoder_decoder else "FEATURE_EXTRACTION" if encodes(shape) else "CAUSAL_LM"
    LoraConfig(
        r=config.lm.lora_rank,
        lora_alpha=config.lm.lora_alpha,  # type: ignore[arg-type] # PEFT takes any number
        target_modules=layers,
        base_model_name_or_path=str(place(config.lm.folder)),
        task_type=task,
        inference_mode=True,
    ).save_pretrained(str(folder))
    write_arrays(folder / ADAPTERS, {_in_peft(name): value for name, value in weights.items()})


def _in_peft(name: str) -> str:
    """PEFT's name of an adapter's weight."""
    return "base_model.model." + name.removeprefix(BODY).replace(".default.", ".")


def read(folder: Path, config: PolicyConfig, spec: EnvSpec) -> Weights:
    """The weights of a policy of this configuration, from what `write` wrote.

    Raises:
        UsageError: the folder is incomplete or damaged.
        ValueError: it is of another policy.
    """
    try:
        tune = json.loads((folder / ABOUT).read_bytes())["policy"]["lm"]["tune"]
        if tune != config.lm.tune:
            raise ValueError(f"it was trained with policy.lm.tune={tune}, and this policy has tune={config.lm.tune}")
        own = parts_without_numbers(config, spec).payload()
        found: Weights = safetensors.numpy.load_file(folder / HEADS)
        if tune == "lora":
            kept = safetensors.numpy.load_file(folder / ADAPTERS)
            found |= {name: kept[_in_peft(name)] for name in own if _in_peft(name) in kept}
        elif tune == "all":
            found |= _body(folder)
    except (OSError, KeyError, TypeError, json.JSONDecodeError, safetensors.SafetensorError) as error:
        raise UsageError(f"{folder} is not a complete export of a policy: {error}; export the run again") from None
    assert_same_shapes(own, found)
    return found


def _body(folder: Path) -> Weights:
    from transformers import AutoConfig

    shape = AutoConfig.from_pretrained(folder, **LOCAL)
    model = class_for(shape).from_pretrained(folder, dtype="float32", use_safetensors=True, **LOCAL)
    if encodes(shape):
        model.pooler = None  # it is not in the folder
    return {BODY + name: np.array(value.detach().numpy()) for name, value in model.named_parameters()}
