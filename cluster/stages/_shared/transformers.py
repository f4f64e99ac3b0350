"""Transformers of histories that one stage passes to another: their weights, checked against the configuration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import safetensors.numpy

from cluster.config.overrides import flatten
from cluster.runs.folder import RunError
from cluster.runs.stage import Run
from envs.api import EnvSpec
from learner.context.config import ARMS, ENCODER, RetrieveConfig, SequenceConfig
from learner.files import sha256
from learner.models.sequence.history_transformer import HistoryTransformer
from learner.models.weights import Weights
from llm_service.embedding import EmbedderMissing, minilm_folder

if TYPE_CHECKING:
    from cluster.config.tree import Config

WEIGHTS = "weights.safetensors"


def fitted_with(config: Config) -> dict[str, str]:
    """Settings that weights do not contain, and that must not change when a policy acts with these weights, by name."""
    method: Any = config.method
    arm, retrieve = ARMS[method.arm], method.retrieve
    looks, searches = arm.looks != "nowhere" and not arm.whole, arm.looks == "nearest"
    frozen = searches and retrieve.frozen
    read = {
        "arm": True,
        "retrieve.encoder": searches,
        "sequence.attention": True,
        "sequence.band": not arm.alone and arm.episodes == 1,
        "sequence.reward_scale": frozen,
        "retrieve.past": looks,
        "retrieve.future": looks,
        "retrieve.pool": searches,
        "retrieve.told": frozen,
        "retrieve.projection": frozen,
        "retrieve.beta": retrieve.encoder == "hopfield" and searches,
    }
    values = flatten(method.model_dump())
    return {f"method.{name}": str(values[name]) for name, counts in read.items() if counts}


def weights_of(path: Path, config: SequenceConfig, spec: EnvSpec) -> Weights:
    """Weights of a transformer of histories in an environment.

    Raises:
        RunError: they belong to another model.
    """
    weights: Weights = safetensors.numpy.load_file(path)
    try:
        here = config.model_copy(update={"device": "cpu"})  # whatever has a GPU, the controller has none
        HistoryTransformer.of(here, spec, weights)
    except ValueError as reason:
        raise RunError(f"{path}: {reason}; use the method.sequence and env that it was fitted with") from None
    return weights


def encoder_of(given: Run, sequence: SequenceConfig, retrieve: RetrieveConfig, spec: EnvSpec) -> tuple[Weights, str]:
    """The encoder that makes keys in a run: weights and their hash; for a frozen encoder no weights, and its name.

    Raises:
        RunError: weights are missing, or of another configuration; the language model is not installed.
    """
    if not retrieve.frozen:
        path = given.artifact(ENCODER) / WEIGHTS
        return weights_of(path, sequence.encoding, spec), sha256(path)
    if retrieve.encoder == "hopfield":
        try:
            minilm_folder()
        except EmbedderMissing as missing:
            raise RunError(f"method.retrieve.encoder=hopfield: {missing}") from None
    return {}, retrieve.encoder
