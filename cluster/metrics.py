"""Where numbers go: metrics.jsonl always; TensorBoard and Prometheus when asked.

Names follow what people of the field search for: charts/*, losses/*, policy/*, time/*.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from learner.checkpoint import replace_file

GAUGES = {
    "cairn_env_steps": ("env_steps", "Env steps learned from."),
    "cairn_version": ("version", "Policy version, one a learner update."),
    "cairn_episodes": ("episodes", "Finished training episodes."),
    "cairn_steps_per_second": ("charts/SPS", "Env steps learned from per second of wall time, since the last row."),
    "cairn_success_rate": ("charts/success_rate", "Share of the latest training episodes that were solved, 0 to 1."),
    "cairn_episodic_return": ("charts/episodic_return", "Mean undiscounted return of the latest training episodes."),
    "cairn_policy_lag": ("policy/lag_mean", "Versions between the policy that acted and the one that learned, mean."),
    "cairn_actors_alive": ("actors_alive", "Rollout actors that work."),
    "cairn_actor_restarts": ("restarts", "Restarts of actors since the run began."),
    "cairn_dropped_chunks": ("dropped_chunks", "Chunks that were too old to learn from."),
}
"""Prometheus name (exported as ray_<name>) -> (key of a metrics row, what it means)."""

Sink = Callable[[dict[str, Any]], None]


class Metrics:
    """Appends rows to metrics.jsonl and hands them to the sinks.

    Args:
        path: metrics.jsonl.
        after: the policy version that a resumed run continues from, see `rewind`. None keeps all rows.
    """

    def __init__(self, path: Path, after: int | None = None) -> None:
        self._path = path
        self._file = open(path, "ab")  # noqa: SIM115 - open as long as the run
        self.sinks: list[Sink] = []
        if after is not None:
            self.rewind(after)

    def rewind(self, after: int) -> None:
        """Drop rows of versions beyond `after`, which will be learned, and written, again."""
        self._file.close()
        rows = self._path.read_bytes().splitlines(keepends=True)
        whole = (row for row in rows if row.endswith(b"\n"))  # a crash may have cut the last one
        replace_file(self._path, b"".join(row for row in whole if json.loads(row)["version"] <= after))
        self._file = open(self._path, "ab")  # noqa: SIM115

    def write(self, row: dict[str, Any]) -> None:
        """Append one row; it is on disk, whole, when this returns."""
        clean = {key: round(value, 6) if isinstance(value, float) else value for key, value in row.items()}
        self._file.write(json.dumps(clean).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        for sink in self.sinks:
            sink(row)

    def close(self) -> None:
        self._file.close()


def tensorboard(folder: Path) -> Sink:
    """A sink that writes TensorBoard event files."""
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(folder))

    def write(row: dict[str, Any]) -> None:
        for key, value in row.items():
            if ("/" in key or row["kind"] == "evaluate") and isinstance(value, int | float):
                writer.add_scalar(key if "/" in key else f"evaluate/{key}", value, row["env_steps"])
        writer.flush()

    return write


def prometheus(run: str) -> Sink:
    """A sink that exports `GAUGES` through Ray's metrics agent, with the run's name as the only label."""
    from ray.util.metrics import Gauge

    gauges = {key: Gauge(name, description=text, tag_keys=("run",)) for name, (key, text) in GAUGES.items()}

    def write(row: dict[str, Any]) -> None:
        if row["kind"] != "train":
            return
        for key, gauge in gauges.items():
            if key in row:
                gauge.set(float(row[key]), tags={"run": run})

    return write
