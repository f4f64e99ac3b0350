"""The store of training experience (`method.tee`), from the controller's side.

    begin: create, or continue without chunks that are played again ──> actors write shards ──> end: closed

An actor's chunks are learned from in order, so its chunk counter says which of them were.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from actors.wrappers.tee import forget_unlearned
from cluster.config.overrides import flatten
from cluster.config.tree import Config, alters_meaning
from cluster.runs.folder import RunFolder
from cluster.runs.stage import Run
from envs import registry
from learner.store.episodes import ABOUT, EPISODES, EpisodeWriter, Layout, StoreError, close, digest
from learner.store.shards import CLOSED

States = Mapping[int, Mapping[str, Any]]
"""State key of every actor after the last of its chunks that counts."""


def about(config: Config) -> dict[str, Any]:
    """A store's metadata: the environment, the learner, and their configuration."""
    meant = {key: value for key, value in flatten(config.model_dump()).items() if alters_meaning(key)}
    digested = hashlib.sha256(json.dumps(meant, sort_keys=True).encode()).hexdigest()
    method = config.method.model_dump()["name"]
    return {"env": config.env.id, "method": method, "seed": config.seed, "config_sha256": digested}


def begin(run: Run, stage: Path, states: States) -> None:
    """Create a stage's store in this folder, with all fields that a player observes; or continue an existing one.

    No actor may be playing. A store keeps the metadata of the configuration that it was started with.

    Raises:
        StoreError: it is damaged, or of another world or version.
        Superseded: a newer attempt has begun.
    """
    config, place, attempt = run.config, stage / EPISODES, run.folder.attempt
    spec = registry.spec(config.env.id, **config.env.options)
    layout = Layout.of(spec, {name: field for name, field in spec.fields.items() if not field.privileged})
    run.folder.assert_newest()
    assert attempt is not None, "what trains is an attempt at its run"
    if not (place / ABOUT).exists():
        EpisodeWriter(place, layout, about(config), attempt, pieces=True)
    else:
        there = EpisodeWriter.join(place, attempt, ())
        if there.about["env"] != config.env.id:
            raise StoreError(f"{place} holds episodes of {there.about['env']}: restore env.id, or start a new run")
        if there.layout != layout:
            raise StoreError(f"{place} holds other fields than {spec.id} now shows: restore env, or start a new run")
    run.folder.forget(place / CLOSED)
    forget_unlearned(place, _played(states), attempt)


def end(folder: RunFolder, stage: Path, states: States) -> tuple[dict[str, int], str]:
    """After the last actor: delete chunks that were not learned from, and close the store. Returns its counts and hash.

    Raises:
        Superseded: a newer attempt has begun.
    """
    place = stage / EPISODES
    entries = forget_unlearned(place, _played(states), folder.attempt).values()
    close(place, folder.attempt)
    return {f"teed_{key}": sum(entry[key] for entry in entries) for key in ("episodes", "steps")}, digest(place)


def _played(states: States) -> dict[int, int]:
    return {actor: int(state["sequence"]) for actor, state in states.items()}
