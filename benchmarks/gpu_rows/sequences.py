"""Training the transformer of texts, targets and histories: ours, and nanoGPT's loop on sequences sorted by length."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.gpu_rows.chip import APART, Chip, Size, fastest, seconds
from benchmarks.measure import DifferentOutputs
from benchmarks.sequence import Padded, Precision, lengths, record
from learner.behaviours.imitation import SequenceConfig, SequenceFitter
from learner.models import flops


class Sequences:
    """Both sides on the same batches: ours takes the next step, then the peer repeats it."""

    def __init__(self, chip: Chip, size: Size, folder: Path) -> None:
        model = size.sequence.model_copy(update={"device": chip.device.type})
        config = SequenceConfig(
            stride=1, batch=size.batch, tokens=size.tokens, warmup=0, learning_rate=1e-4, steps=10_000, model=model
        )
        setup = record(folder, "half_filled", config, size.episodes, size.longest)
        self.chip, self.ours = chip, SequenceFitter(setup)
        precision: Precision = "bfloat16" if self.ours.model.in_half else "float32"
        self.peer, trial = (Padded(self.ours, precision, by_part=True) for _ in range(2))
        self.steps, self.rows = size.steps, list[NDArray[np.int64]]()
        self.tokens, self.operations, self.losses, self.together, self.note = 0, 0, list[float](), 0, ""
        self.play_ours()  # one-time work is not timed
        self.together = fastest([8, 16, 32, 64], lambda n: seconds(chip.device, lambda: self._peer(n, trial)))
        self.play_peer()

    def work(self) -> Callable[[], object]:
        """Our next gradient steps in a row, as a run takes them; not yet taken."""
        data, blocks = self.ours.data, self.ours.model.decoder.blocks
        self.rows, own = [], list[int]()
        for step in range(self.ours.step, self.ours.step + self.steps):
            rows = self.ours.batch(step)
            self.rows.append(rows[np.argsort(data.steps[rows])])
            own += lengths([data.read(rows)], self.ours.model.tokens_per_step)
        width, seen = self.ours.model.config.width, ((n, (n + 1) // 2) for n in own)
        self.tokens = sum(own)
        once = 2 * self.tokens * flops.weights(*blocks) + flops.attention(seen, len(blocks), width)
        self.operations = 3 * once

        def fit() -> None:
            self.losses = [loss for loss, _, _ in self.ours.fit(self.steps)]

        return fit

    def play_ours(self) -> float:
        """The share of the peak."""
        took = seconds(self.chip.device, self.work())
        share = self.operations / took / self.chip.peak
        self.note = (
            f"{self.tokens / took:,.0f} tokens a second, {self.chip.memory()}; the peer takes {self.together} at once"
        )
        return share

    def play_peer(self) -> float:
        """
        Raises:
            DifferentOutputs: its losses differ from ours.
        """
        losses: list[Tensor] = []
        took = seconds(self.chip.device, lambda: losses.extend(self._peer(self.together, self.peer)))
        for own, theirs in zip(self.losses, map(float, losses), strict=True):
            if not abs(own - theirs) <= APART * abs(theirs):
                raise DifferentOutputs(f"loss of a step: ours is {own}, the peer's {theirs}")
        return self.operations / took / self.chip.peak

    def _peer(self, together: int, peer: Padded) -> list[Tensor]:
        return [
            peer.learn([self.ours.data.read(rows[i : i + together]) for i in range(0, len(rows), together)])
            for rows in self.rows
        ]
