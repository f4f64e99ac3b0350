"""Training the transformer of texts, targets and histories: ours, and nanoGPT's loop on sequences sorted by length."""

from __future__ import annotations

from pathlib import Path

import numpy as np

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
        self.rows = np.zeros(0, np.int64)
        self.tokens, self.operations, self.loss, self.together, self.note = 0, 0, 0.0, 0, ""
        self.play_ours()  # one-time work is not timed
        self.together = fastest([8, 16, 32, 64], lambda n: seconds(chip.device, lambda: self._peer(n, trial)))
        self.play_peer()

    def play_ours(self) -> float:
        """The share of the peak."""
        rows = self.ours.batch(self.ours.step)
        data = self.ours.data
        self.rows = rows[np.argsort(data.steps[rows])]
        own = lengths([data.read(rows)], self.ours.model.tokens_per_step)
        blocks = self.ours.model.decoder.blocks
        width, seen = self.ours.model.config.width, ((n, (n + 1) // 2) for n in own)
        self.tokens = sum(own)
        once = 2 * self.tokens * flops.weights(*blocks) + flops.attention(seen, len(blocks), width)
        self.operations = 3 * once
        found: list[list[float]] = []
        took = seconds(self.chip.device, lambda: found.extend(self.ours.fit(1)))
        self.loss = found[0][0]
        share = self.operations / took / self.chip.peak
        self.note = (
            f"{self.tokens / took:,.0f} tokens a second, {self.chip.memory()}; the peer takes {self.together} at once"
        )
        return share

    def play_peer(self) -> float:
        """
        Raises:
            DifferentOutputs: its loss differs from ours.
        """
        losses: list[float] = []
        took = seconds(self.chip.device, lambda: losses.append(self._peer(self.together, self.peer)))
        if not abs(self.loss - losses[0]) <= APART * abs(losses[0]):
            raise DifferentOutputs(f"loss of a step: ours is {self.loss}, the peer's {losses[0]}")
        return self.operations / took / self.chip.peak

    def _peer(self, together: int, peer: Padded) -> float:
        parts = [self.rows[begin : begin + together] for begin in range(0, len(self.rows), together)]
        return peer.learn([self.ours.data.read(part) for part in parts])
