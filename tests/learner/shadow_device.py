"""A device that is not the processor and has numbers: `meta` tensors, each with a shadow on the processor.

    operation on `meta` ──> PyTorch's own, which has shapes and no numbers, and refuses what would wait for a device
                       └──> the same on the shadows, by the processor's kernels

Code asks a tensor where it is, and goes the way of a GPU. What it then computes can be compared with what it computes
on the processor, on a machine without a GPU. A GPU's own kernels and pinned memory are not seen. PyTorch has no
autocast for `meta`, so `HalfPrecision` follows its rules for a GPU.
"""

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

from learner.optim.device import HOST

META = torch.device("meta")
MOVES = {torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default}


class ShadowDevice(TorchDispatchMode):
    """The device, while this mode is on. Shadows belong to storages: views share the numbers, also those by `.data`.

    It raises where tensors of two devices meet, numbers [] of the host aside.

    Attributes:
        sent: number of copies to it.
        busy: it raises where the host would wait for a copy to it, as it does for models when they are loaded.
    """

    def __init__(self):
        super().__init__()
        self.sent, self.busy = 0, False
        self._shadows = {}  # by the address of a storage: a reference that keeps nothing alive, and numbers
        self._many = 100

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        devices = {x.device.type for x in tensors if x.ndim or func in MOVES}
        if func not in MOVES:
            assert len(devices) < 2, f"{func} is asked about tensors on {devices}"
        elif "cpu" in devices and torch.device(kwargs.get("device") or args[0].device) == META:
            waits = not (kwargs.get("non_blocking") or args[2:] == (True,))
            assert not (self.busy and waits), "the host waits for this copy: use learner.optim.device.send"
            self.sent += 1
        asked = func is torch.ops.aten.zeros_like.default and args[0].is_meta and kwargs.get("device") == HOST
        if asked:  # by `learner.optim.device.read`, the only way to the numbers
            return self.numbers(args[0]).clone()
        found = func(*args, **kwargs)
        if not any(x.is_meta for x in tree_leaves((args, kwargs, found)) if isinstance(x, torch.Tensor)):
            return found
        near = tree_map_only(torch.Tensor, self.numbers, (args, kwargs))
        options = {key: HOST if key == "device" else value for key, value in near[1].items()}
        computed = func(*near[0], **options)
        return tree_map(self._remembered, found, computed)

    def numbers(self, x):
        """A tensor on the processor that shares the numbers of `x`; itself if it is there."""
        if not x.is_meta:
            return x
        storage = x.untyped_storage()
        known = self._shadows.get(storage._cdata)
        # A list as an index is such a copy, for which the host waits.
        if known is None or known[0].expired():
            raise AssertionError("a tensor came to this device by no operation")
        empty = torch.empty(0, dtype=x.dtype)
        return empty.set_(known[1].untyped_storage(), x.storage_offset(), x.size(), x.stride())

    def _remembered(self, there, here):
        """An output on the device, whose numbers are those of `here`."""
        if not isinstance(there, torch.Tensor) or not there.is_meta:
            return there
        if there.shape != here.shape:  # notes of an operation for its gradient, which differ by device
            there = torch.empty_like(here, device=META)
        storage = there.untyped_storage()
        known = self._shadows.get(storage._cdata)
        if known is None or known[0].expired():  # otherwise a view, or written in place: so was its shadow
            shadow = torch.zeros(storage.nbytes(), dtype=torch.uint8)
            self._shadows[storage._cdata] = StorageWeakRef(storage), shadow
            if len(self._shadows) > self._many:
                self._shadows = {key: known for key, known in self._shadows.items() if not known[0].expired()}
                self._many = 2 * len(self._shadows) + 100
            self.numbers(there).copy_(here)
        return there


HALF = {"linear", "matmul", "__matmul__", "__rmatmul__", "mm", "bmm", "addmm", "baddbmm", "mv", "conv2d", "gru_cell"}
WHOLE = {"softmax", "log_softmax", "logsumexp", "exp", "log", "log1p", "pow", "__pow__", "rsqrt", "reciprocal"}
WHOLE |= {"sum", "prod", "cumsum", "norm", "layer_norm", "smooth_l1_loss", "mse_loss", "cross_entropy", "nll_loss"}
WIDEST = {"addcmul", "addcdiv", "cat", "stack", "index_put", "scatter_add", "dot"}
FLOATS = (torch.float32, torch.bfloat16)


class HalfPrecision(TorchFunctionMode):
    """Autocast to bfloat16 by PyTorch's lists for CUDA, as far as networks here need them. Weights are not copied: what
    an operation gets is converted, which its gradient passes back through.

    Attributes:
        products: number of operations in bfloat16.
    """

    products = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name, kwargs = getattr(func, "__name__", ""), kwargs or {}
        found = {x.dtype for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor) and x.dtype in FLOATS}
        kind = torch.bfloat16 if name in HALF else torch.float32 if name in WHOLE or len(found) > 1 else None
        self.products += name in HALF
        if kind is not None and name in HALF | WHOLE | WIDEST:
            args, kwargs = tree_map_only(torch.Tensor, lambda x: x.to(kind) if x.dtype in FLOATS else x, (args, kwargs))
        return func(*args, **kwargs)


def moved(module):
    """A module of the processor on the device. `Module.to` would give tied weights a tensor each, as to no GPU."""
    there = {}
    for part in module.modules():
        for name, own in part._parameters.items():
            if own is not None:
                if id(own) not in there:
                    there[id(own)] = torch.nn.Parameter(own.detach().to(META), own.requires_grad)
                part._parameters[name] = there[id(own)]
        for name, own in part._buffers.items():
            part._buffers[name] = None if own is None else own.to(META)
    return module
