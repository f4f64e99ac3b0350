"""The device that a learner computes on, and the only two ways between it and the host.

    arrays on the host ── send: one pinned buffer, one copy ──> device ── read: the host waits ──> NumPy
                                                                 └────── fetch: the same for many, in one copy

A GPU runs behind the host: operations are queued, and the host prepares the next ones meanwhile. Whatever asks for a
number (`float(x)`, `x.cpu()`, `torch.unique`) waits until the queue is empty, and an update of a small network then
takes several times as long. So learners ask by `read` alone, and at the end of an update. Tests run every update on
PyTorch's `meta` device, whose tensors have no numbers, and any question but `read` raises there.

A network on the processor uses machine code of its own beside PyTorch; on any other device it is array operations.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Key = TypeVar("Key")
HOST = torch.device("cpu")
ALIGNED = 64
"""Bytes: where in a buffer an array may begin. Every type needs a multiple of its own size."""


def device(name: str, key: str = "learner.device", ranks: int = 1) -> torch.device:
    """The device that a configuration names; `auto` is a GPU if there is one, for several ranks if each sees its own.

    A run shows each rank the GPU that it was given (`cluster/roles/placement.py`). Ranks that see more may mean the
    same one, which NCCL refuses: they learn on the processor unless told `cuda`. A small network in small minibatches
    may learn faster on the processor, too: `cpu` says so.

    Raises:
        ValueError: it names a GPU and there is none.
    """
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"{key}=cuda: PyTorch finds no GPU here: set it to auto or cpu, or start where there is one")
    if name == "auto":
        shown = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        own = ranks == 1 or (shown != "" and "," not in shown)
        name = "cuda" if own and torch.cuda.is_available() else "cpu"
    return torch.device(name)


def settle(where: torch.device, exact: bool) -> None:
    """Say how a GPU is to compute, in this process, before it computes anything.

    float32 is whole float32 everywhere: TF32 keeps 10 of its 23 bits, and who can do with fewer has bfloat16.

    exact: equal inputs give equal bits; an operation that cannot raises RuntimeError.
    """
    if where.type != "cuda":
        return
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    if exact:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when the first product is made
        torch.use_deterministic_algorithms(True)


def send(columns: Mapping[Key, Tensor | NDArray[Any]], where: torch.device) -> dict[Key, Tensor]:
    """Tensors of the host on a device, in one copy that the host does not wait for; on the processor, as they are."""
    tensors = {key: torch.as_tensor(column) for key, column in columns.items()}
    if where.type == "cpu":
        return tensors
    begin, size = _places(tensors)
    packed = torch.empty(size, dtype=torch.uint8, pin_memory=where.type == "cuda")
    for key, column in tensors.items():
        _part(packed, begin[key], column).copy_(column)
    there = packed.to(where, non_blocking=True)
    return {key: _part(there, begin[key], column) for key, column in tensors.items()}


def fetch(columns: Mapping[Key, Tensor]) -> dict[Key, NDArray[Any]]:
    """Copies of tensors on the host: views of one buffer, which comes from a device in one copy. The host waits."""
    begin, size = _places(columns)
    wheres = {column.device for column in columns.values()}
    where = wheres.pop() if len(wheres) == 1 else HOST
    packed = torch.empty(size, dtype=torch.uint8, device=where)
    for key, column in columns.items():
        _part(packed, begin[key], column).copy_(column)
    if where.type == "cuda":  # from memory that is not pinned, a copy takes several times as long
        here = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        packed = here.copy_(packed)
    return {key: read(_part(packed, begin[key], column)) for key, column in columns.items()}


def _places(columns: Mapping[Key, Tensor]) -> tuple[dict[Key, int], int]:
    """Where in a buffer each tensor begins, and how large that is, in bytes."""
    begin, size = dict[Key, int](), 0
    for key, column in columns.items():
        begin[key] = size
        size += -(-column.nbytes // ALIGNED) * ALIGNED
    return begin, size


def _part(buffer: Tensor, begin: int, like: Tensor) -> Tensor:
    """The bytes from `begin` on as a tensor like another one."""
    return buffer[begin : begin + like.nbytes].view(like.dtype).view(like.shape)


def read(x: Tensor) -> NDArray[Any]:
    """The numbers of a tensor, without its gradient. The only place where a learner waits for its device."""
    x = x.detach()
    return (torch.zeros_like(x, device="cpu") if x.is_meta else x.cpu()).numpy()


def read_mean(rows: list[Any]) -> NDArray[np.float64]:
    """The mean, float64 [K], of rows of numbers [K], which are tensors if they are on a device."""
    if isinstance(rows[0], Tensor):
        rows = list(read(torch.stack(rows)).astype(np.float64))
    mean: NDArray[np.float64] = np.mean(rows, 0)
    return mean
