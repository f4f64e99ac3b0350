"""A device, its timing, and the sizes of the work measured on it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable

import torch

from benchmarks.gpu_rows.large_t5 import Shape
from benchmarks.measure import PeerFailed
from learner.models import flops
from learner.models.sequence.behaviour_transformer import BehaviourConfig

APART = 3e-2
"""How far losses and scores may be apart, as a share: both sides compute in bfloat16, each in its own order."""
SEQUENCE = BehaviourConfig(width=1024, layers=12, heads=16, dropout=0.0, precision="bfloat16")
LARGE = Shape()


@dataclasses.dataclass(frozen=True)
class Size:
    """How much is computed. The default is for a GPU; tests have a smaller one."""

    sequence: BehaviourConfig = SEQUENCE
    episodes: int = 384
    batch: int = 128
    longest: tuple[int, int] = (48, 768)
    tokens: int = 65_536
    model: Shape = LARGE
    learned: int = 256
    acted: int = 1024
    square: int = 8192
    batches: tuple[int, ...] = (8192, 16_384, 32_768)


def seconds(device: torch.device, work: Callable[[], object]) -> float:
    """Wall time of some work, the GPU's share of it included."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    begun = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - begun


class Chip:
    """A device, the most that it could do, and what products of matrices reach there."""

    def __init__(self, device: torch.device, square: int) -> None:
        self.device = device
        self.name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
        self.square = torch.randn(square, square, device=device, dtype=torch.bfloat16)
        self._product()
        self.peak = flops.peak(self.name) or self.reached()

    def _product(self, times: int = 10) -> None:
        for _ in range(times):
            self.square @ self.square

    def reached(self, times: int = 10) -> float:
        """Operations a second of square products."""
        return times * 2 * len(self.square) ** 3 / seconds(self.device, lambda: self._product(times))

    def matmul(self) -> float:
        """The same as a share of the peak."""
        return self.reached() / self.peak

    def memory(self) -> str:
        """What was the most since it was asked last."""
        if self.device.type != "cuda":
            return "memory not measured"
        most = torch.cuda.max_memory_allocated(self.device) / 2**30
        torch.cuda.reset_peak_memory_stats(self.device)
        return f"{most:.1f} GiB"


def fastest(sizes: Iterable[int], took: Callable[[int], float]) -> int:
    """The size that takes least time after a first try. One for which memory is short does not count.

    Raises:
        PeerFailed: memory is short for all of them.
    """
    found: dict[int, float] = {}
    for size in sizes:
        try:
            took(size)
            found[size] = took(size)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
    if not found:
        raise PeerFailed("memory is short for every batch size")
    return min(found, key=lambda size: found[size])
