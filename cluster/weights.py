"""Weights of a run's own and of others: found, read and checked against the policy that shall have them."""

from __future__ import annotations

from pathlib import Path

import safetensors.numpy

from cluster import config as configuration
from cluster.config import Config
from cluster.folder import RunError, RunFolder
from cluster.learners import learner_setup
from cluster.topology import every_stage, selected, trains
from learner import checkpoint as checkpoints
from learner.checkpoint import Checkpoint, CheckpointError
from learner.fit import assert_suits
from learner.group import Weights, assert_of_shape, assert_restorable
from learner.methods import Stage
from learner.models.config import LANGUAGE_MODEL, fields_of
from learner.models.language_model import place
from learner.models.llm_policy import check_model
from learner.store.episodes import ABOUT, EpisodeStore


def assert_model(config: Config) -> None:
    """Raise `UsageError` if the policy is a language model that is not there, or cannot act in this world."""
    if config.policy.network == LANGUAGE_MODEL:
        try:
            check_model(config.policy, configuration.seen(config))
        except ValueError as error:
            raise RunError(str(error)) from None


def make_model(config: Config) -> None:
    """Make the policy's tiny language model, where it is one, before roles start: they may not take minutes to."""
    used = any(stage.learns or stage.player == "policy" for stage in selected(config))
    if used and config.policy.network == LANGUAGE_MODEL:
        place(config.policy.lm.folder)


def read_checkpoint(folder: RunFolder) -> Checkpoint | None:
    """The newest good checkpoint of a run, None if it has none yet."""
    try:
        return checkpoints.latest(folder.checkpoints)
    except CheckpointError as error:
        raise RunError(f"cannot resume {folder.name!r}: {error}") from None


def trained(folder: RunFolder) -> Weights | None:
    """Weights of this run's finished train or fit stage."""
    files = [path.parent / "weights.safetensors" for path in (folder.path / "stages").glob("*/manifest.json")]
    trained = [file for file in files if file.exists()]  # a method has one stage that learns at most
    return safetensors.numpy.load_file(trained[0]) if trained else None


def initial_weights(config: Config) -> Weights | None:
    """Weights that `from` names, checked against the policy; None if it names none, or no policy is needed."""
    if not any(stage.learns or stage.player == "policy" for stage in selected(config)):
        return None
    return None if given_store(config) else _others(config, "from", config.from_)


def given_store(config: Config) -> Path | None:
    """The store of episodes that `from` names; None if it names none, or weights.

    Raises:
        RunError: no selected stage needs one, or it is not whole.
    """
    path = configuration.artifact(config, "from", config.from_)
    if path is None or not (path / ABOUT).exists() or any(stage.kind == "curate" for stage in every_stage(config)):
        return None
    kinds = [stage.kind for stage in selected(config)]
    if "fit" not in kinds:
        raise RunError(f"from: {config.from_} is a store of episodes, and no stage of this run is fitted to one")
    if "collect" in kinds:
        others = ",".join(stage.name for stage in selected(config) if stage.kind != "collect")
        raise RunError(f"from: {config.from_} is a store of episodes: leave the collecting out by stages=[{others}]")
    if config.from_.startswith("run:") and not (path / "manifest.json").exists():
        raise RunError(f"from: {config.from_} is not finished: resume that run first")
    return path


def store_of(config: Config, folder: RunFolder) -> Path:
    """The store that a fit stage learns from: what `from` names, else this run's own; checked against the policy.

    Raises:
        RunError, StoreError: there is none, it is damaged, or the policy cannot be fitted to it.
    """
    own = (path.parent for path in (folder.path / "stages").glob("*/manifest.json") if (path.parent / ABOUT).exists())
    store = given_store(config) or next(own, None)
    if store is None:
        raise RunError(f"there are no episodes to learn from: {_advice(config, 'collect')}")
    _assert_suits(config, store)
    return store


def assert_supplied(config: Config, initial: Weights | None) -> None:
    """Raise `RunError` or `StoreError` if a selected stage would lack what it works with.

    initial: the weights that `from` names.
    """
    store = given_store(config)
    if store:
        _assert_suits(config, store)
    before: list[Stage] = []
    for stage in selected(config):
        if stage.needs_weights and initial is None and not any(earlier.learns for earlier in before):
            raise RunError(f"stage {stage.name} needs weights: {_advice(config, 'fit', 'train')}")
        if stage.kind == "fit" and store is None and not any(earlier.kind == "collect" for earlier in before):
            raise RunError(f"stage {stage.name} needs episodes: {_advice(config, 'collect')}")
        before.append(stage)


def _assert_suits(config: Config, path: Path) -> None:
    spec = configuration.seen(config)
    assert_suits(EpisodeStore(path), fields_of(config.policy, spec), spec, config.fit)


def _advice(config: Config, *kinds: str) -> str:
    """What to do where the artifact of a stage of these kinds is missing."""
    own = next(
        (stage.name for stage in every_stage(config) if stage.kind in kinds and stage not in selected(config)), ""
    )
    return f"run the {own} stage too, or set from=run:NAME/{own}" if own else f"set from=run:NAME/{kinds[-1]}"


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
    for name, value in found.arrays.get("actors", {}).items():  # none of a fit
        if name.endswith("/env.episode") and len(value) != config.actors.envs:
            raise RunError(f"the checkpoint is of actors.envs={len(value)}: it cannot go on with {config.actors.envs}")
    if trains(config) and found.record["counters"]["env_steps"] < config.learner.env_steps:  # it will learn
        assert_restorable(learner_setup(config, configuration.seen(config), folder.replay), found)


def assert_fits(config: Config, weights: Weights, source: str) -> None:
    """Raise `RunError` if the policy of `config` cannot have these weights, which `source` says whence they are."""
    try:
        assert_of_shape(config.policy, configuration.seen(config), weights)
    except ValueError as error:
        raise RunError(f"{source}: {error}; use the policy and env settings it was trained with") from None
