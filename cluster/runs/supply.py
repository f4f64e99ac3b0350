"""Checks that every stage of a run will have its inputs: weights and episodes, from earlier stages or other runs.

A stage's engine declares what it takes and makes. Stages on behaviours find their inputs by name when they run.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from actors import wrappers
from cluster.config import tree as configuration
from cluster.config.tree import Config
from cluster.roles.learners import learner_setup
from cluster.runs.folder import RunError, RunFolder, assert_done
from cluster.runs.stage import Artifact
from cluster.runs.weights import assert_fits, weights_at
from cluster.stages import engine
from cluster.topology import learns
from learner.algorithms import algorithm
from learner.checkpoint import Checkpoint
from learner.fit import assert_suits
from learner.group import Weights
from learner.methods import every_stage, selected, trains
from learner.models.config import LANGUAGE_MODEL, fields_of
from learner.models.language.language_model import place
from learner.parts import FitConfig
from learner.store.episodes import ABOUT, EpisodeStore

ACTOR_STATE = ("env.", "sequence", "memory")
"""Prefixes of names in an actor's state: its environment with wrappers, its counters, its policy's memory."""
MADE_BY = {"weights": "train", "episodes": "collect"}  # a stage of other runs that makes each


def uses_a_policy(config: Config) -> bool:
    """Whether any selected stage trains a policy, or plays one."""
    return learns(config) or plays_a_policy(config)


def plays_a_policy(config: Config) -> bool:
    """Whether any selected stage needs weights."""
    return any(stage.player == "policy" for stage in selected(config))


def make_model(config: Config) -> None:
    """Create the policy's tiny language model, if it uses one, before roles start, because that may take minutes."""
    if config.policy.network == LANGUAGE_MODEL and uses_a_policy(config):
        place(config.policy.lm.folder)


def initial_weights(config: Config) -> Weights | None:
    """The weights that `from` names, checked against the policy; None if it names none, or no policy is needed."""
    if not uses_a_policy(config) or given_store(config):
        return None
    return weights_at(config, "from", config.from_)


def given_store(config: Config) -> Path | None:
    """The store of episodes that `from` names; None if it names none, or weights.

    Raises:
        RunError: no selected stage needs a store, or it is incomplete.
    """
    path = configuration.artifact(config, "from", config.from_)
    if path is None or not (path / ABOUT).exists() or any(engine(s.kind).by_name for s in every_stage(config)):
        return None
    stages = selected(config)
    if not any(engine(stage.kind).takes(stage) == "episodes" for stage in stages):
        raise RunError(f"from: {config.from_} is a store of episodes, but no stage of this run learns from one")
    others = [stage.name for stage in stages if engine(stage.kind).makes != "episodes"]
    if len(others) < len(stages):
        raise RunError(
            f"from: {config.from_} is a store of episodes: leave out the collect stage with stages=[{','.join(others)}]"
        )
    assert_done(config.from_, path)
    return path


def store_of(config: Config, folder: RunFolder) -> Path:
    """The store that a fit stage learns from: the one that `from` names, otherwise this run's own; checked.

    Raises:
        RunError, StoreError: there is no store, it is damaged, or the policy cannot be fitted to it.
    """
    own = (path.parent for path in (folder.path / "stages").glob("*/manifest.json") if (path.parent / ABOUT).exists())
    store = given_store(config) or next(own, None)
    if store is None:
        raise RunError(f"there are no episodes to learn from: {_advice(config, 'episodes')}")
    _assert_suits(config, store)
    return store


def assert_supplied(config: Config, initial: Weights | None) -> None:
    """Raise `RunError` or `StoreError` if a selected stage would lack an input.

    initial: the weights that `from` names.
    """
    store = given_store(config)
    if store:
        _assert_suits(config, store)
    there: set[Artifact] = {""}
    there |= {"weights"} if initial is not None else set()
    there |= {"episodes"} if store is not None else set()
    for stage in selected(config):
        taken = engine(stage.kind).takes(stage)
        if taken not in there:
            raise RunError(f"stage {stage.name} needs {taken}: {_advice(config, taken)}")
        there.add(engine(stage.kind).makes)


def assert_resumable(config: Config, folder: RunFolder, found: Checkpoint) -> None:
    """Check that a checkpoint is continued with the policy, the envs and the replay that it was made with.

    Raises:
        RunError: it was made with others, or by older code with another layout of actor states.
    """
    assert_fits(config, found.arrays["model"], str(found.path))
    if not trains(config) or found.record["counters"]["env_steps"] >= config.learner.env_steps:
        return  # nothing continues from it
    for name, value in found.arrays.get("actors", {}).items():
        kept = name.partition("/")[2]
        if not kept.startswith(ACTOR_STATE):
            raise RunError(
                f"run {folder.name!r} was started by older code, whose actors kept {kept} elsewhere: "
                f"continue it with commit {configuration.commit_of(folder.path)}"
            )
        if name.endswith("/env.episode") and len(value) != config.actors.envs:
            raise RunError(f"the checkpoint has actors.envs={len(value)}: it cannot continue with {config.actors.envs}")
    _assert_paid_alike(config, folder, found)
    setup = learner_setup(config, config.spec, folder.replay)
    algorithm(setup.learner.algorithm).assert_restorable(setup, found)


def _assert_paid_alike(config: Config, folder: RunFolder, found: Checkpoint) -> None:
    """Check what must not change between attempts: every actor's state has its hash as `identity`."""
    wanted = wrappers.identities(wrappers.chosen(config))
    actors = found.arrays.get("actors", {})
    for actor in {name.partition("/")[0] for name in actors}:
        for name in wrappers.names():
            kept = actors.get(f"{actor}/env.{name}.identity")
            if not np.array_equal(() if kept is None else kept, wanted.get(name, ())):
                raise RunError(
                    f"run {folder.name!r} was trained with another {name} than method.{name}, its files, "
                    "learner.discount and seed give now: restore these, or start a new run"
                )


def _assert_suits(config: Config, path: Path) -> None:
    spec = config.spec
    assert_suits(EpisodeStore(path), fields_of(config.policy, spec), spec, config.method.part(FitConfig))


def _advice(config: Config, artifact: Artifact) -> str:
    """What to do if an artifact is missing."""
    chosen = selected(config)
    makers = (s.name for s in every_stage(config) if engine(s.kind).makes == artifact and s not in chosen)
    own = next(makers, "")
    return f"run the {own} stage too, or set from=run:NAME/{own}" if own else f"set from=run:NAME/{MADE_BY[artifact]}"
