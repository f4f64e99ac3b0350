"""TensorBoard: event files in the run's folder, `tensorboard/`."""

from __future__ import annotations

from typing import Any

from cluster.metrics.sinks import Followed, Sink, numbers


def make(run: Followed) -> Sink:
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(run.folder / "tensorboard"))

    def write(row: dict[str, Any]) -> None:
        if found := numbers(row):
            for key, value in found.items():
                writer.add_scalar(key, value, row["env_steps"])
            writer.flush()

    return write
