"""Weights from a learner to a reader on the same machine, through a flat buffer that both see.

    the learner's parameters ── publish ──> buffer of even or of odd versions ── take ──> the reader's parameters

On a GPU the buffer is memory of that GPU, which another process opens by a handle (CUDA IPC), so that nothing passes
the host; on a CPU it is shared memory. Nothing is allocated or serialised when weights change. Of two versions one can
be read while the next is written: a third has to wait until every reader has taken the first. Buffers reach a reader as
arguments of its process, or by any queue of `torch.multiprocessing`; version numbers travel as the caller likes.

The limit is memory's speed: each side reads and writes every weight once.
"""

# mypy: allow-untyped-calls
# PyTorch says that it is typed; some of its methods are not.

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from learner.models.weights import Weighted


@dataclass(frozen=True)
class Handover:
    """Two buffers [P] of one type, for models with P weights in the same order."""

    buffers: tuple[Tensor, Tensor]

    @staticmethod
    def of(model: Weighted, dtype: torch.dtype = torch.float32) -> Handover:
        """Room for the weights of a model, where they are, in the type that readers compute in."""
        values = list(model.payload().values())
        size, device = sum(value.numel() for value in values), values[0].device
        made = [torch.empty(size, dtype=dtype, device=device) for _ in range(2)]
        first, second = (buffer.share_memory_() for buffer in made)  # on a GPU it is already
        return Handover((first, second))

    def publish(self, model: Weighted, version: int) -> None:
        """Write a model's weights; when this returns, a reader may take them.

        Raises:
            ValueError: it has more or fewer weights.
        """
        for part, value in self._parts(model, version):
            part.copy_(value)
        self._settle()

    def take(self, model: Weighted, version: int) -> None:
        """Give a model the weights that were published last with this version; when it returns, they are there.

        Raises:
            ValueError: it has more or fewer weights.
        """
        for part, value in self._parts(model, version):
            value.copy_(part)
        self._settle()

    def _parts(self, model: Weighted, version: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Each tensor of a model and its place in the buffer, in the same shape."""
        buffer, values = self.buffers[version % 2], list(model.payload().values())
        sizes = [value.numel() for value in values]
        if sum(sizes) != len(buffer):
            raise ValueError(f"a model of {sum(sizes):,} weights does not fit a handover of {len(buffer):,}")
        for part, value in zip(torch.split(buffer, sizes), values, strict=True):
            yield part.view(value.shape), value

    def _settle(self) -> None:
        """Wait for the GPU: the other process does not see its queue."""
        if self.buffers[0].is_cuda:
            torch.cuda.synchronize(self.buffers[0].device)
