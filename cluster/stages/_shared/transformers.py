"""Transformers of histories that stages of a run hand on: their weights, checked against the configuration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import safetensors.numpy

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
    """Words of a configuration that weights do not tell, and that who acts by them must not change, by name."""
    method: Any = config.method
    sequence, retrieve, arm = method.sequence, method.retrieve, ARMS[method.arm]
    words = {"method.arm": method.arm, "method.sequence.attention": sequence.attention}
    if not arm.alone and arm.episodes == 1:
        words["method.sequence.band"] = sequence.band
    if arm.looks == "nearest" and retrieve.frozen:
        words["method.sequence.reward_scale"] = sequence.reward_scale
    of: tuple[str, ...] = ("past", "future") if arm.looks != "nowhere" and not arm.whole else ()
    of += ("encoder", "pool") if arm.looks == "nearest" else ()
    of += ("told", "projection") if arm.looks == "nearest" and retrieve.frozen else ()
    return {name: str(value) for name, value in words.items()} | {
        f"method.retrieve.{name}": str(getattr(retrieve, name)) for name in of
    }


def weights_of(path: Path, config: SequenceConfig, spec: EnvSpec) -> Weights:
    """Weights of a transformer of histories in a world.

    Raises:
        RunError: they are of another one.
    """
    weights: Weights = safetensors.numpy.load_file(path)
    try:
        HistoryTransformer.of(config, spec, weights)
    except ValueError as reason:
        raise RunError(f"{path}: {reason}; use the method.sequence and env that it was fitted with") from None
    return weights


def encoder_of(given: Run, sequence: SequenceConfig, retrieve: RetrieveConfig, spec: EnvSpec) -> tuple[Weights, str]:
    """What makes keys in a run: weights and their hash; of an encoder that is frozen none, and its name.

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
