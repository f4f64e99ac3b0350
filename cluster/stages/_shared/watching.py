"""What is true of a training now, between two rows of metrics: what its dashboard and alerts go by.

    a train stage ── updated(), saving() ──> Watch.now(crew, ready, ...) ──> Metrics.show ──> Prometheus

Times are told as points in time and not as ages, so that an age goes on growing if the controller stands still.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from cluster.config.tree import Config
from cluster.roles.learners import Ready
from cluster.roles.supervisor import Crew
from learner.algorithms import algorithm


class Watch:
    """Remembers when things happened. Until they first do, its own beginning stands for them."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._updated = self._saved = time.time()
        self._save_s = 0.0

    def updated(self) -> None:
        """An update of the learner came back."""
        self._updated = time.time()

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Around the writing of a checkpoint."""
        began = time.monotonic()
        yield
        self._saved, self._save_s = time.time(), time.monotonic() - began

    def now(self, crew: Crew, ready: Sequence[Ready], env_steps: int, restarts: int, ending: bool) -> dict[str, float]:
        """Numbers by the keys of `cluster.metrics.table.CONTROLLER`.

        Args:
            crew: the actors.
            ready: chunks that wait.
            env_steps: learned from.
            restarts: of actors, since the run began.
            ending: nothing further will begin.
        """
        config, clock = self._config, time.monotonic()
        found = {
            "actors": config.actors.n,
            "actors_alive": crew.alive,
            "actors_quarantined": len(crew.quarantined),
            "restarts": restarts,
            "progress": env_steps / config.learner.env_steps,
            "chunks_ready": len(ready),
            "chunk_age": max((clock - chunk.since for chunk in ready), default=0.0),
            "training": not ending,
            "last_update": self._updated,
            "checkpoint_time": self._saved,
            "checkpoint_period": config.run.checkpoint_every_s,
            "checkpoint_save": self._save_s,
        }
        lag = algorithm(config.learner.algorithm).max_lag(config)
        if lag is not None:  # others learn from chunks of any age
            found["lag_limit"] = lag
        return {key: float(value) for key, value in found.items()}
