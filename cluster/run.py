"""Start, resume or evaluate a run on this machine. Errors are reported before anything is written.

configuration, run folder ──> checks ──> Controller.run()
"""

from __future__ import annotations

import sys
from pathlib import Path

from cluster.config import limits
from cluster.config import tree as configuration
from cluster.config.tree import Config
from cluster.metrics import sinks
from cluster.roles import placement
from cluster.roles.language import check_language_model
from cluster.roles.object_store import assert_room
from cluster.runs.controller import Controller, stages_left
from cluster.runs.folder import RunError, RunFolder, manifest
from cluster.runs.supply import assert_resumable, assert_supplied, initial_weights, plays_a_policy
from cluster.runs.weights import assert_fits, assert_model, guide_weights, read_checkpoint, trained
from cluster.stages import engine
from cluster.topology import asks_a_language_model, learns
from envs import registry
from learner.group import Weights
from learner.methods import Stage, every_stage, selected
from learner.potentials import NONE, ShapingConfig
from learner.search import emitters
from learner.search.config import SearchConfig


def assert_installed(config: Config) -> None:
    """Raise `RunError`, with what to do, if something is not installed that environment, sinks or emitter need."""
    emitter = emitters.missing(config.method.part(SearchConfig).emitter)
    lacks = (registry.missing(config.env.id, **config.env.options), *map(sinks.missing, config.run.sinks), emitter)
    if missing := next(filter(None, lacks), ""):
        raise RunError(missing)


def run(config: Config) -> int:
    """Run a new experiment. Returns the exit code: 0 done, 3 stopped on request and resumable.

    Raises:
        UsageError: nothing was started or written; or the run ended and can be resumed, with its own exit code.
    """
    assert_installed(config)
    limits.assert_fits(config)
    placement.assert_placed(config)
    assert_model(config)
    assert_room(config)
    initial = initial_weights(config)
    guide_weights(config)  # a wrong name is reported before anything is written
    assert_supplied(config, initial)
    if asks_a_language_model(config):
        check_language_model(config)
    about = manifest(["python", "launch.py", *sys.argv[1:]])
    files = {"config.yaml": configuration.as_yaml(config), "manifest.json": about}
    folder = RunFolder.create(Path(config.run.folder) / config.run.name, files)
    return Controller(config, folder, None, initial).run()


def resume(path: Path, words: list[str], allow_change: bool) -> int:
    """Continue a run with every counter intact. Returns the exit code.

    Raises:
        UsageError: the run is done, no checkpoint is usable, or a changed key makes it another experiment.
    """
    before = configuration.load(path / "config.yaml")
    config = configuration.update(before, words)
    changed = [key for key, _, _ in configuration.difference(before, config) if configuration.alters_meaning(key)]
    if changed and not allow_change:
        raise RunError(
            f"{', '.join(changed)} would make {path.name!r} another experiment; add --allow-change if you want that"
        )
    folder = RunFolder(path)
    assert_installed(config)
    placement.assert_placed(config)
    assert_model(config)
    assert_room(config)
    found = read_checkpoint(folder)
    limits.assert_fits(config, kinds={stage.kind for stage in stages_left(selected(config), config, folder, found)})
    if found is not None and (learns(config) or plays_a_policy(config)):
        assert_resumable(config, folder, found)
    elif plays_a_policy(config) and not (learns(config) or config.from_) and trained(folder) is None:
        raise RunError(f"run {path.name!r} has no checkpoint and would not train: leave the stages unchanged")
    return Controller(config, folder, found, initial_weights(config) if found is None else None).run()


def evaluate(path: Path, words: list[str]) -> int:
    """Evaluate a run again, with other settings if given. Returns the exit code.

    The result goes into `stages/<kind>-<n>`. The first selected stage that can be repeated does the evaluation.
    """
    before = configuration.load(path / "config.yaml")
    if before.method.part(ShapingConfig).potential != NONE:  # only training paid rewards, and their source may be gone
        words = [f"method.shaping.potential={NONE}", *words]
    config = configuration.update(before, words)
    folder = RunFolder(path)
    assert_installed(config)
    able = [stage for stage in (*selected(config), *every_stage(config)) if engine(stage.kind).again]
    if not able:
        raise RunError(f"run {path.name!r} has no stage that can be repeated: see its report")
    kind, player = able[0].kind, able[0].player
    limits.assert_fits(config, kinds={kind})
    placement.assert_placed(config)
    weights: Weights | None = None
    if player == "policy":
        found = read_checkpoint(folder)
        weights = trained(folder) or (found.arrays["model"] if found else initial_weights(config))
        if weights is None:
            raise RunError(f"run {path.name!r} has no weights yet: no checkpoint was written")
        assert_fits(config, weights, str(path))
    # Never the bare name: that is the run's own last stage, which it may not have reached yet.
    stage = Stage(folder.claim(kind), kind, player)
    try:
        return Controller(config, folder, None, weights, [stage]).run()
    finally:
        if not any(folder.stage(stage.name).iterdir()):  # it produced nothing
            folder.stage(stage.name).rmdir()
