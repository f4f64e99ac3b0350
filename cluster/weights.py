"""Weights of a run's own and of others: found, read and checked against the policy that shall have them."""

from __future__ import annotations

import safetensors.numpy

from cluster import config as configuration
from cluster.config import Config
from cluster.folder import RunError, RunFolder
from cluster.learners import learner_setup
from learner import checkpoint as checkpoints
from learner.checkpoint import Checkpoint, CheckpointError
from learner.group import Weights, assert_restorable, build_policy, set_weights


def read_checkpoint(folder: RunFolder) -> Checkpoint | None:
    """The newest good checkpoint of a run, None if it has none yet."""
    try:
        return checkpoints.latest(folder.checkpoints)
    except CheckpointError as error:
        raise RunError(f"cannot resume {folder.name!r}: {error}") from None


def trained(folder: RunFolder) -> Weights | None:
    """Weights of this run's finished train stage."""
    files = [path.parent / "weights.safetensors" for path in (folder.path / "stages").glob("*/manifest.json")]
    trained = [file for file in files if file.exists()]  # a method has one stage that trains at most
    return safetensors.numpy.load_file(trained[0]) if trained else None


def initial_weights(config: Config) -> Weights | None:
    """Weights that `from` names, checked against the policy; None if it names none."""
    return _others(config, "from", config.from_)


def guide_weights(config: Config) -> Weights | None:
    """Weights that `dqn.guide` names, checked against the policy; None if it names none."""
    return _others(config, "dqn.guide", config.dqn.guide)


def _others(config: Config, key: str, name: str) -> Weights | None:
    path = configuration.artifact(config, key, name)
    if path is None:
        return None
    file = path / "weights.safetensors" if path.is_dir() else path
    if not file.exists():
        raise RunError(f"{key}: {path} holds no weights.safetensors; name a finished train stage, as in run:NAME/train")
    try:
        weights = safetensors.numpy.load_file(file)
    except Exception as error:  # the library raises its own kinds for every way a file can be damaged
        raise RunError(f"{key}: {file} is damaged: {error}") from None
    assert_fits(config, weights, f"{key}: {file}")
    return weights


def assert_resumable(config: Config, folder: RunFolder, found: Checkpoint) -> None:
    """A checkpoint continues only with the policy, the envs and the replay that it was made with."""
    assert_fits(config, found.arrays["model"], str(found.path))
    for name, value in found.arrays["actors"].items():
        if name.endswith("/env.episode") and len(value) != config.actors.envs:
            raise RunError(f"the checkpoint is of actors.envs={len(value)}: it cannot go on with {config.actors.envs}")
    if found.record["counters"]["env_steps"] < config.learner.env_steps:  # it will learn
        assert_restorable(learner_setup(config, configuration.seen(config), folder.replay), found)


def assert_fits(config: Config, weights: Weights, source: str) -> None:
    """Raise `RunError` if the policy of `config` cannot have these weights, which `source` says whence they are."""
    policy = build_policy(config.policy, configuration.seen(config), config.seed)
    try:
        set_weights(policy, weights)
    except ValueError as error:
        raise RunError(f"{source}: {error}; use the policy and env settings it was trained with") from None
