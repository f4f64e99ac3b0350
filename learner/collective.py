"""Averages over the ranks of the learner group; with one rank, nothing happens and torch.distributed is not started."""

from __future__ import annotations

import datetime
import socket
from collections.abc import Sequence

import torch


def free_address() -> str:
    """`tcp://host:port` at which rank 0 of a group can be met, on this machine's own address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{probe.getsockname()[1]}"


class Group:
    """One rank's view of its group.

    Args:
        rank, size: which of how many.
        address: where the ranks meet; needed when size > 1. Every rank blocks here until all have come.
        timeout_s: how long any collective may take before it is an error.
    """

    def __init__(self, rank: int = 0, size: int = 1, address: str | None = None, timeout_s: float = 300.0) -> None:
        self.rank, self.size = rank, size
        if size > 1:
            backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
            timeout = datetime.timedelta(seconds=timeout_s)
            torch.distributed.init_process_group(backend, address, timeout, size, rank)

    def mean(self, numbers: Sequence[float]) -> list[float]:
        """Element-wise mean of `numbers` over the ranks."""
        if self.size == 1:
            return list(numbers)
        values = torch.tensor(numbers, dtype=torch.float64)
        torch.distributed.all_reduce(values)
        return (values / self.size).tolist()

    def minimum(self, number: int) -> int:
        """The smallest `number` of any rank."""
        if self.size == 1:
            return number
        value = torch.tensor(number)
        torch.distributed.all_reduce(value, torch.distributed.ReduceOp.MIN)
        return int(value)

    def average(self, values: torch.Tensor) -> None:
        """Replace `values` by their mean over the ranks, in one message."""
        if self.size > 1:
            torch.distributed.all_reduce(values)
            values /= self.size
