"""The store of what is lived while a stage trains (`method.tee`), as its controller sees it.

    begin: made, or gone on with, without what is played again ──> actors write shards ──> end: closed

An actor's chunks are learned from in their order, so that its count in the books says which of them were.
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
"""Of every actor after the last of its chunks that counts."""


def about(config: Config) -> dict[str, Any]:
    """What a store says of its episodes: the world, who learned, and of what configuration that is."""
    meant = {key: value for key, value in flatten(config.model_dump()).items() if alters_meaning(key)}
    digested = hashlib.sha256(json.dumps(meant, sort_keys=True).encode()).hexdigest()
    method = config.method.model_dump()["name"]
    return {"env": config.env.id, "method": method, "seed": config.seed, "config_sha256": digested}


def begin(run: Run, stage: Path, states: States) -> None:
    """Make the store of a stage in this folder, with all fields that its world shows a player; or go on
    with it.

    Nobody may be playing. A store keeps what it says of the configuration that it was begun with.

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
    elif EpisodeWriter.join(place, attempt, ()).layout != layout:
        raise StoreError(f"{place} holds other fields than {spec.id} now shows: put env back, or begin a new run")
    run.folder.forget(place / CLOSED)
    forget_unlearned(place, _played(states), attempt)


def end(folder: RunFolder, stage: Path, states: States) -> tuple[dict[str, int], str]:
    """Nobody plays any more: remove what nobody learned from, and close the store. Returns what it holds, and its hash.

    Raises:
        Superseded: a newer attempt has begun.
    """
    place = stage / EPISODES
    entries = forget_unlearned(place, _played(states), folder.attempt).values()
    close(place, folder.attempt)
    return {f"teed_{key}": sum(entry[key] for entry in entries) for key in ("episodes", "steps")}, digest(place)


def _played(states: States) -> dict[int, int]:
    return {actor: int(state["sequence"]) for actor, state in states.items()}
