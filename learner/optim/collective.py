"""Averages over the ranks of the learner group; with one rank, nothing happens and torch.distributed is not started.

    rank 0: store on HOST:PORT <── each proves that it knows SECRET ──> pairs of gloo, NCCL, on HOST's network

Ranks on one node meet on its loopback, ranks on several at the address of rank 0's node. torch alone would open the
store on all interfaces, whatever the address, and the pairs on that of the machine's name; here both are on the network
of the address alone. Nothing that torch opens asks who calls. So each group has a secret of its own, and as their first
exchange the ranks prove to each other that they know it: a rank of another run, or of an earlier group at this port, is
refused. What follows is neither encrypted nor signed, so the network between nodes must be trusted.
"""

from __future__ import annotations

import datetime
import hmac
import os
import secrets
import socket
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import torch

TIMEOUT = datetime.timedelta(seconds=300)
"""How long any collective may take before it is an error."""
LOOPBACK = "127.0.0.1"


def free_address(host: str = LOOPBACK) -> str:
    """`tcp://SECRET@host:port` at which rank 0 of a new group, on the machine with the address `host`, can be met.

    The port is free on this machine. If it is taken on another one, rank 0 raises OSError.
    """
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return f"tcp://{secrets.token_hex(16)}@{host}:{probe.getsockname()[1]}"


class Group:
    """One rank's view of its group.

    Args:
        rank, size: which of how many.
        address: of `free_address`, the same for all ranks; needed when size > 1. Every rank blocks here until all have
            come.

    Raises:
        ValueError: the address has no secret.
        OSError: rank 0 cannot have the port.
        PermissionError: another rank does not know the secret.
    """

    def __init__(self, rank: int = 0, size: int = 1, address: str | None = None) -> None:
        self.rank, self.size = rank, size
        if size > 1:
            backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
            assert address is not None, "ranks need a place to meet"
            store = _store(address, rank, size)
            network = _interface(str(urlsplit(address).hostname))
            os.environ |= {"GLOO_SOCKET_IFNAME": network, "NCCL_SOCKET_IFNAME": f"={network}"}  # =: exactly this one
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
    if not place.username:
        raise ValueError(f"the address {place.hostname}:{place.port} has no secret: take one of free_address()")
    listener = socket.create_server((place.hostname, place.port)).detach() if rank == 0 else None
    store: Any = torch.distributed.TCPStore  # type: ignore[attr-defined] # public, but torch does not say so
    made = store(place.hostname, place.port, size, rank == 0, TIMEOUT, master_listen_fd=listener)
    proofs = [hmac.digest(place.username.encode(), f"{one} of {size}".encode(), "sha256").hex() for one in range(size)]
    made.set(f"proof/{rank}", proofs[rank])
    for one, proof in enumerate(proofs):
        if not hmac.compare_digest(made.get(f"proof/{one}"), proof.encode()):
            raise PermissionError(
                f"rank {one} at {place.hostname}:{place.port} does not know this group's secret: "
                "another run meets there, or someone else"
            )
    return made


def _interface(host: str) -> str:
    """The network interface over which this machine reaches `host`, an IP address that may be its own."""
    if ip_address(host).is_loopback:
        return "lo"
    import psutil  # only ranks on several nodes need it

    with socket.socket(type=socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))  # sends nothing
        own: str = probe.getsockname()[0]
    names = [name for name, found in psutil.net_if_addrs().items() if own in [one.address for one in found]]
    return str(names[0])
