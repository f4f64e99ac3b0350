"""Weights of this run and of others: found, read and checked against the policy that will use them."""

from __future__ import annotations

import safetensors.numpy

from cluster.config import tree as configuration
from cluster.config.tree import Config
from cluster.runs.folder import RunError, RunFolder
from learner import checkpoint as checkpoints
from learner.checkpoint import Checkpoint, CheckpointError
from learner.group import Weights, assert_of_shape
from learner.models.config import LANGUAGE_MODEL, PolicyConfig, with_head_of
from learner.models.language import exported
from learner.models.language.llm_policy import check_model
from learner.parts import GuideConfig


def assert_model(config: Config) -> None:
    """Raise `UsageError` if the policy is a language model that is missing, or cannot act in this environment."""
    if config.policy.network == LANGUAGE_MODEL:
        try:
            check_model(config.policy, config.spec)
        except ValueError as error:
            raise RunError(str(error)) from None


def read_checkpoint(folder: RunFolder) -> Checkpoint | None:
    """The newest usable checkpoint of a run, None if it has none yet."""
    try:
        return checkpoints.latest(folder.checkpoints)
    except CheckpointError as error:
        raise RunError(f"cannot resume {folder.name!r}: {error}") from None


def trained(folder: RunFolder) -> Weights | None:
    """Weights of this run's finished train or fit stage."""
    files = [path.parent / "weights.safetensors" for path in (folder.path / "stages").glob("*/manifest.json")]
    trained = [file for file in files if file.exists()]  # at most one stage of a method with a policy learns
    return safetensors.numpy.load_file(trained[0]) if trained else None


def guide_weights(config: Config) -> Weights | None:
    """Weights that `method.guide.policy` names, checked against the policy; None if it names none."""
    return weights_at(config, "method.guide.policy", config.method.part(GuideConfig).policy, any_head=True)


def weights_at(config: Config, key: str, name: str, any_head: bool = False) -> Weights | None:
    """The weights that the value `name` of `key` names, checked against the policy, whose head may differ with
    `any_head`; None if it names none.

    Raises:
        RunError: they are missing, damaged, or another policy's.
    """
    path = configuration.artifact(config, key, name)
    if path is None:
        return None
    if (path / exported.ABOUT).exists():
        try:
            return exported.read(path, config.policy, config.spec)
        except ValueError as error:
            raise RunError(f"{key}: {path}: {error}; use the policy and env settings it was trained with") from None
    file = path / "weights.safetensors" if path.is_dir() else path
    if not file.exists():
        raise RunError(f"{key}: {path} holds no weights.safetensors; name a finished train stage, as in run:NAME/train")
    try:
        weights = safetensors.numpy.load_file(file)
    except Exception as error:  # the library raises its own exceptions for every way a file can be damaged
        raise RunError(f"{key}: {file} is damaged: {error}") from None
    assert_fits(config, weights, f"{key}: {file}", with_head_of(config.policy, weights) if any_head else None)
    return weights


def assert_fits(config: Config, weights: Weights, source: str, policy: PolicyConfig | None = None) -> None:
    """Raise `RunError` if `policy`, or that of `config`, cannot have these weights, which come from `source`."""
    try:
        assert_of_shape(policy or config.policy, config.spec, weights)
    except ValueError as error:
        raise RunError(f"{source}: {error}; use the policy and env settings it was trained with") from None
