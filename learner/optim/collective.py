"""Averages over the ranks of the learner group; with one rank, nothing happens and torch.distributed is not started.

    rank 0: store on 127.0.0.1 <── the ranks tell where they listen ──> pairs of gloo, NCCL, on `lo`

All ranks are on one machine, and nothing that torch opens asks who calls: so all of it is on loopback. torch alone
would open the store on all interfaces, whatever the address, and the pairs on that of the machine's name.
"""

from __future__ import annotations

import datetime
import os
import socket
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import torch

TIMEOUT = datetime.timedelta(seconds=300)
"""How long any collective may take before it is an error."""


def free_address() -> str:
    """`tcp://127.0.0.1:port` at which rank 0 of a group can be met by the others."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{probe.getsockname()[1]}"


class Group:
    """One rank's view of its group.

    Args:
        rank, size: which of how many.
        address: `tcp://host:port` on loopback where the ranks meet; needed when size > 1. Every rank blocks here until
            all have come.

    Raises:
        ValueError: the address is not on loopback.
        OSError: rank 0 cannot have the port.
    """

    def __init__(self, rank: int = 0, size: int = 1, address: str | None = None) -> None:
        self.rank, self.size = rank, size
        if size > 1:
            backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
            assert address is not None, "ranks need a place to meet"
            store = _store(address, rank, size)
            os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
            torch.distributed.init_process_group(backend, timeout=TIMEOUT, world_size=size, rank=rank, store=store)

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


def _store(address: str, rank: int, size: int) -> Any:
    """Where the ranks tell each other how they are reached. Rank 0 keeps it, on a socket that is bound to `address`."""
    place = urlsplit(address)
    assert place.hostname is not None
    assert place.port is not None
    if not ip_address(place.hostname).is_loopback:
        raise ValueError(f"ranks meet on loopback, not on {place.hostname}")
    listener = socket.create_server((place.hostname, place.port)).detach() if rank == 0 else None
    store: Any = torch.distributed.TCPStore  # type: ignore[attr-defined] # public, but torch does not say so
    return store(place.hostname, place.port, size, rank == 0, TIMEOUT, master_listen_fd=listener)
