"""A device, its timing, and the sizes of the work measured on it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable

import torch

from benchmarks.gpu_rows.large_t5 import Shape
from benchmarks.measure import PeerFailed
from learner.models import flops
from learner.models.sequence.behaviour_config import BehaviourConfig

APART = 3e-2
"""Relative tolerance of losses and scores: both sides compute in bfloat16, each in its own order."""
SEQUENCE = BehaviourConfig(width=1024, layers=12, heads=16, dropout=0.0, precision="bfloat16")
LARGE = Shape()


@dataclasses.dataclass(frozen=True)
class Size:
    """Sizes of the work. The defaults are for a GPU; tests use smaller ones."""

    sequence: BehaviourConfig = SEQUENCE
    episodes: int = 384
    batch: int = 128
    longest: tuple[int, int] = (48, 768)
    tokens: int = 65_536
    steps: int = 4  # gradient steps of sequences in a row
    model: Shape = LARGE
    learned: int = 256
    acted: int = 1024
    square: int = 8192
    batches: tuple[int, ...] = (8192, 16_384, 32_768)


def seconds(device: torch.device, work: Callable[[], object]) -> float:
    """Wall time of some work in seconds, the GPU's part included."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    begun = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - begun


class Chip:
    """A device, its peak operations a second, and the rate that matrix products reach on it."""

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
        """Operations a second of square matrix products."""
        return times * 2 * len(self.square) ** 3 / seconds(self.device, lambda: self._product(times))

    def matmul(self) -> float:
        """That rate as a share of the peak."""
        return self.reached() / self.peak

    def memory(self) -> str:
        """Peak memory since the last call, as text."""
        if self.device.type != "cuda":
            return "memory not measured"
        most = torch.cuda.max_memory_allocated(self.device) / 2**30
        torch.cuda.reset_peak_memory_stats(self.device)
        return f"{most:.1f} GiB"


def fastest(sizes: Iterable[int], took: Callable[[int], float]) -> int:
    """The size that takes the least time on its second try. Sizes that run out of memory are left out.

    Raises:
        PeerFailed: all sizes run out of memory.
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
