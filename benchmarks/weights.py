"""weights: gigabytes of weights from a learner to who acts, and to the disk.

A network of random weights (`--quick`: a small one), on the processor, with the roles and the Ray of a local run.

    sync          a new version from the learner's process to an actor's, 3 GB: seconds until the actor has it
    checkpoint    weights and Adam's moments, 3 GB: seconds for which learning stands still

    fixed_store   the same sync through an object store of 1 GB, as large as small networks need it: what does not fit,
                  Ray keeps on the disk
    waiting       the same checkpoint, but learning waits until it is complete

The actor's weights must be the learner's, and the checkpoint those at which it was asked for, although an update
changes them while it is written. How long that update takes is in the row's note.

Limit: memory. A version is copied twice, from the learner into the store and from there into the actor's network.
"""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from actors.rollout import RolloutActor
from actors.setup import ActorSetup
from benchmarks.measure import Case, DifferentOutputs, Options, Report, compare
from cluster.config.tree import Config, compose
from cluster.roles.learners import learner_setup
from cluster.roles.object_store import GB, object_store
from learner import checkpoint
from learner.group import Learner, build_policy, get_weights, payload_size, set_weights

CASES = ("sync", "checkpoint")
QUICK_ROUNDS = 1
WIDTHS = {"sync": 13_700, "checkpoint": 8_000}
"""Of the network's layers: 3 GB of weights; 1 GB, with Adam's moments 3."""
QUICK_WIDTH = 2_500
VERSIONS = 3
"""Syncs of a round; the first fills memory and is not counted."""
PATIENCE_S = 600.0


def config_of(width: int) -> Config:
    """A network of this width, and updates of a few steps."""
    words = ["env=toy/Line", "actors.n=1", "actors.envs=2", "actors.steps=4", "learner.minibatch=8"]
    return compose([*words, "learner.ppo.epochs=1", "evaluate.every=0", f"policy.hidden={width}"])


class Giver:
    """A role that has weights as a learner does, without an optimiser's."""

    def __init__(self, config: Config) -> None:
        self.policy = build_policy(config.policy, config.spec, 0)

    def ready(self) -> Any:
        """The next version."""
        for value in self.policy.payload().values():
            value.add_(1e-3)
        return get_weights(self.policy)

    def sums(self) -> list[float]:
        """The sum of each array, to see whether two networks are the same."""
        return [float(value.double().sum()) for value in self.policy.payload().values()]


class Taker(Giver):
    """A role that takes them as an actor does."""

    def take(self, weights: Any) -> None:
        set_weights(self.policy, weights)


class Sync:
    """Both sides start a Ray of their own, with another object store."""

    def __init__(self, width: int) -> None:
        self.config = config_of(width)
        self.size = payload_size(self.config.policy, self.config.spec)

    def play_ours(self) -> float:
        """Seconds, the median of a few versions."""
        return self._play(object_store(self.config))

    def play_fixed_store(self) -> float:
        return self._play(GB)

    def _play(self, store: int) -> float:
        from cluster.roles.local import Local

        folder = Path(tempfile.mkdtemp(prefix="cairn-"))
        backend = Local(2, folder / "token", dashboard=False, store=store)
        try:
            giver, taker = backend.start("giver", Giver, self.config), backend.start("taker", Taker, self.config)

            def call(role: Any, method: str, *args: Any) -> Any:
                return backend.result(backend.submit(role, method, *args), timeout=PATIENCE_S)

            call(giver, "sums")
            call(taker, "sums")
            took = []
            for _ in range(VERSIONS):
                begun = time.perf_counter()
                given = backend.submit(giver, "ready")
                call(taker, "take", given.parts[0])
                took.append(time.perf_counter() - begun)
                del given
            if call(giver, "sums") != call(taker, "sums"):
                raise DifferentOutputs("the actor's weights are not the learner's")
            return float(np.median(took[1:]))
        finally:
            backend.shutdown()
            shutil.rmtree(folder, ignore_errors=True)


class Checkpoint:
    """Both sides save the same learner, which then learns."""

    def __init__(self, width: int) -> None:
        config = config_of(width)
        self.learner = Learner(learner_setup(config, config.spec, Path()))
        small = config_of(8)  # who plays makes no difference to how long an update takes
        env = small.env.id, small.env.options, small.spec
        actor = RolloutActor(ActorSetup(*env, small.actors, small.policy, small.seed, True), 0)
        self.chunk = actor.rollout(get_weights(build_policy(small.policy, small.spec, 0)), 0)[1]
        self.version, self.updates = 0, dict[str, list[float]](beside=[], alone=[])
        self.size = 3 * payload_size(config.policy, config.spec)
        self._learn("alone")

    def _learn(self, when: str) -> None:
        begun = time.perf_counter()
        self.learner.update(0, 0, self.chunk)
        self.updates[when].append(time.perf_counter() - begun)

    def play_ours(self) -> float:
        """Seconds until the next update can begin; it runs while the checkpoint is written."""
        return self._play("save_beside", "beside")

    def play_waiting(self) -> float:
        return self._play("save", "alone")

    def _play(self, method: str, when: str) -> float:
        self.version += 1
        expected = self._sums(get_weights(self.learner.policy))
        with tempfile.TemporaryDirectory(prefix="cairn-", dir=".") as folder:
            record = {"counters": {"version": self.version}}
            begun = time.perf_counter()
            getattr(self.learner, method)(Path(folder), self.version, {}, record, 1)
            took = time.perf_counter() - begun
            self._learn(when)
            self.learner.saved()
            found = checkpoint.latest(Path(folder))
            if found is None or self._sums(found.arrays["model"]) != expected:
                raise DifferentOutputs("the checkpoint does not have the weights at which it was asked for")
        return took

    def _sums(self, weights: Any) -> list[float]:
        return [float(weights[name].sum(dtype=np.float64)) for name in sorted(weights)]


def run(options: Options) -> Report:
    report = Report()
    for name, match, peer in (("sync", Sync, "fixed_store"), ("checkpoint", Checkpoint, "waiting")):
        if not options.wants(name):
            continue
        made = match(QUICK_WIDTH if options.quick else WIDTHS[name])
        note = {peer: f"{made.size / 1e9:.1f} GB"}
        case = Case("weights", name, "wall", frozenset([peer]), lower_is_better=True, notes=note)
        found = compare(case, made.play_ours, {peer: getattr(made, f"play_{peer}")}, options)
        if isinstance(made, Checkpoint):
            beside, alone = (float(np.median(made.updates[when][-options.rounds :])) for when in ("beside", "alone"))
            text = f"; an update takes {beside:.2f} s while it is written, else {alone:.2f}"
            found.rows = [dataclasses.replace(row, note=row.note + text) for row in found.rows]
        report.add(found)
    return report
