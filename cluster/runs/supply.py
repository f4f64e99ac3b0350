"""Whether every stage of a run will have what it works with: weights and episodes, of stages before it or of others.

What a stage takes and makes its engine says. Stages of behaviours look for theirs by name, when they run.
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
"""How names in an actor's state begin: its world with what stands around it, its count, what its policy remembers."""
MADE_BY = {"weights": "train", "episodes": "collect"}  # a stage of other runs that makes it


def uses_a_policy(config: Config) -> bool:
    """Whether any selected stage learns one, or plays it."""
    return learns(config) or plays_a_policy(config)


def plays_a_policy(config: Config) -> bool:
    """Whether any selected stage needs weights."""
    return any(stage.player == "policy" for stage in selected(config))


def make_model(config: Config) -> None:
    """Make the policy's tiny language model, where it is one, before roles start: they may not take minutes to."""
    if config.policy.network == LANGUAGE_MODEL and uses_a_policy(config):
        place(config.policy.lm.folder)


def initial_weights(config: Config) -> Weights | None:
    """Weights that `from` names, checked against the policy; None if it names none, or no policy is needed."""
    if not uses_a_policy(config) or given_store(config):
        return None
    return weights_at(config, "from", config.from_)


def given_store(config: Config) -> Path | None:
    """The store of episodes that `from` names; None if it names none, or weights.

    Raises:
        RunError: no selected stage needs one, or it is not whole.
    """
    path = configuration.artifact(config, "from", config.from_)
    if path is None or not (path / ABOUT).exists() or any(engine(s.kind).by_name for s in every_stage(config)):
        return None
    stages = selected(config)
    if not any(engine(stage.kind).takes(stage) == "episodes" for stage in stages):
        raise RunError(f"from: {config.from_} is a store of episodes, and no stage of this run is fitted to one")
    others = [stage.name for stage in stages if engine(stage.kind).makes != "episodes"]
    if len(others) < len(stages):
        raise RunError(
            f"from: {config.from_} is a store of episodes: leave the collecting out by stages=[{','.join(others)}]"
        )
    assert_done(config.from_, path)
    return path


def store_of(config: Config, folder: RunFolder) -> Path:
    """The store that a fit stage learns from: what `from` names, else this run's own; checked against the policy.

    Raises:
        RunError, StoreError: there is none, it is damaged, or the policy cannot be fitted to it.
    """
    own = (path.parent for path in (folder.path / "stages").glob("*/manifest.json") if (path.parent / ABOUT).exists())
    store = given_store(config) or next(own, None)
    if store is None:
        raise RunError(f"there are no episodes to learn from: {_advice(config, 'episodes')}")
    _assert_suits(config, store)
    return store


def assert_supplied(config: Config, initial: Weights | None) -> None:
    """Raise `RunError` or `StoreError` if a selected stage would lack what it works with.

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
    """A checkpoint continues only with the policy, the envs and the replay that it was made with.

    Raises:
        RunError: it was made with others, or by code whose actors kept what stands beside their worlds elsewhere.
    """
    assert_fits(config, found.arrays["model"], str(found.path))
    if not trains(config) or found.record["counters"]["env_steps"] >= config.learner.env_steps:
        return  # nobody goes on from it
    for name, value in found.arrays.get("actors", {}).items():
        kept = name.partition("/")[2]
        if not kept.startswith(ACTOR_STATE):
            raise RunError(
                f"run {folder.name!r} was begun by older code, whose actors kept {kept} where this code does not look: "
                f"finish it with commit {configuration.commit_of(folder.path)}"
            )
        if name.endswith("/env.episode") and len(value) != config.actors.envs:
            raise RunError(f"the checkpoint is of actors.envs={len(value)}: it cannot go on with {config.actors.envs}")
    _assert_paid_alike(config, folder, found)
    setup = learner_setup(config, config.spec, folder.replay)
    algorithm(setup.learner.algorithm).assert_restorable(setup, found)


def _assert_paid_alike(config: Config, folder: RunFolder, found: Checkpoint) -> None:
    """What stands beside the worlds and must stay what it was is in the state of every actor, as `identity`."""
    wanted = wrappers.identities(wrappers.chosen(config))
    actors = found.arrays.get("actors", {})
    for actor in {name.partition("/")[0] for name in actors}:
        for name in wrappers.names():
            kept = actors.get(f"{actor}/env.{name}.identity")
            if not np.array_equal(() if kept is None else kept, wanted.get(name, ())):
                raise RunError(
                    f"run {folder.name!r} was trained with another {name} than method.{name} and files that it names, "
                    "learner.discount and seed say now: put these back, or begin a new run"
                )


def _assert_suits(config: Config, path: Path) -> None:
    spec = config.spec
    assert_suits(EpisodeStore(path), fields_of(config.policy, spec), spec, config.method.part(FitConfig))


def _advice(config: Config, artifact: Artifact) -> str:
    """What to do where it is missing."""
    chosen = selected(config)
    makers = (s.name for s in every_stage(config) if engine(s.kind).makes == artifact and s not in chosen)
    own = next(makers, "")
    return f"run the {own} stage too, or set from=run:NAME/{own}" if own else f"set from=run:NAME/{MADE_BY[artifact]}"
