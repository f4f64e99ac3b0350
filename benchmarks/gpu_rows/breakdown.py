"""Where the time of work on a GPU goes: what the GPU computes, and what its host waits for.

    profiler ──> kernels (begin, end, name) ──> time in which any runs; time of each kind
             └─> calls of the driver ─────────> time spent waiting, time spent allocating memory

The profiler slows down the host: shares of the GPU's own time are reliable, its idle time is an upper bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch

from benchmarks.gpu_rows.chip import seconds

KINDS = {
    "attention": ("fmha", "flash", "attention"),
    "products": ("gemm", "gemv", "cutlass", "nvjet", "xmma", "splitk"),
    "optimiser": ("adam", "multi_tensor"),
    "copies": ("memcpy", "memset", "copy"),
}
"""Parts of the names of kernels, in lower case; the first kind that fits is a kernel's."""
WAITS = ("cudastreamsynchronize", "cudaeventsynchronize")  # the timer itself calls cudaDeviceSynchronize
ALLOCATES = ("cudamalloc", "cudafree", "cudahostalloc", "cumemcreate", "cumemmap", "cumemunmap")


class Event(NamedTuple):
    """Something that ran from `begin` to `end`, microseconds: a kernel, or a call on the host."""

    name: str
    begin: float
    end: float
    kernel: bool


def described(events: Iterable[Event], wall: float) -> str:
    """What ran in `wall` microseconds, as text."""
    found = [event._replace(name=event.name.lower()) for event in events]
    kernels = sorted((event for event in found if event.kernel), key=lambda event: event.begin)
    busy, until = 0.0, -1.0
    of_kind = dict.fromkeys((*KINDS, "rest"), 0.0)
    for kernel in kernels:  # several may run at once
        busy += max(0.0, kernel.end - max(kernel.begin, until))
        until = max(until, kernel.end)
        fits = (kind for kind, parts in KINDS.items() if any(part in kernel.name for part in parts))
        of_kind[next(fits, "rest")] += kernel.end - kernel.begin
    kinds = ", ".join(f"{kind} {took / 1000:.0f}" for kind, took in of_kind.items() if took)
    calls = [event for event in found if not event.kernel]
    waited = sum(event.end - event.begin for event in calls if event.name.startswith(WAITS))
    allocated = [event.end - event.begin for event in calls if event.name.startswith(ALLOCATES)]
    return (
        f"profiled: of {wall / 1000:.0f} ms the GPU works {busy / 1000:.0f} ({kinds or 'nothing'}) in {len(kernels):,} "
        f"kernels; the host waits {waited / 1000:.0f} ms, and allocates memory {len(allocated)} times in "
        f"{sum(allocated) / 1000:.0f} ms"
    )


def breakdown(device: torch.device, work: Callable[[], object]) -> str:
    """Do some work once more, and describe where its time went, or why that is not known: the row is measured."""
    took: list[float] = []
    try:
        with torch.profiler.profile() as profiler:
            took.append(seconds(device, work))
    except RuntimeError as error:
        return f"not profiled: {error}"
    events = [
        Event(event.name, event.time_range.start, event.time_range.end, event.device_type.name == "CUDA")
        for event in profiler.events() or ()
        if not event.is_user_annotation
    ]
    return described(events, took[0] * 1e6)
