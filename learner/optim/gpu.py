"""What a GPU and its driver say of themselves. Elsewhere there is nothing to say, and nothing is asked.

How busy a GPU is, only the driver's own library knows (NVML, https://docs.nvidia.com/deploy/nvml-api). It is there
wherever a driver is, so it is called directly: no package is needed for two numbers.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import torch

LIBRARY = "libnvidia-ml.so.1"
VERSION_BYTES = 80
"""Room for a driver's version, as NVML says."""


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))  # percent


def readings(where: torch.device) -> dict[str, float]:
    """Of a GPU, by name; empty on any other device.

    `gpu/memory`: share in [0, 1] of its memory that is taken, by whatever process.
    `gpu/use`: share in [0, 1] of the driver's last sampling period, a second at most, in which it computed anything;
    missing where the driver does not say, as on a part of a GPU (MIG).
    """
    if where.type != "cuda":
        return {}
    free, total = torch.cuda.mem_get_info(where)
    found, used = {"gpu/memory": 1 - free / total}, use(where)
    return found if used is None else found | {"gpu/use": used}


def use(where: torch.device) -> float | None:
    """`gpu/use` of `readings`; None if the driver does not say."""
    library = _library()
    if library is None:
        return None
    name = f"GPU-{torch.cuda.get_device_properties(where).uuid}"  # indices of NVML and of PyTorch differ
    handle, found = ctypes.c_void_p(), _Utilization()
    if library.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(handle)):
        return None
    if library.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(found)):
        return None
    return float(found.gpu) / 100


def driver() -> str | None:
    """The version of NVIDIA's driver; None if there is none."""
    library, version = _library(), ctypes.create_string_buffer(VERSION_BYTES)
    if library is None or library.nvmlSystemGetDriverVersion(version, VERSION_BYTES):
        return None
    return version.value.decode()


@cache
def _library() -> Any:
    """NVML, ready to be asked; None if there is no driver."""
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError:
        return None
    return None if library.nvmlInit_v2() else library
