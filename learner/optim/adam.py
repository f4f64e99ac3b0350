"""The optimiser step: gradients are averaged over the ranks, clipped, then Adam (Kingma & Ba 2015), all on one flat
array.

A step of a small network takes 10 us; the bookkeeping of a general optimiser alone takes 100. The limit is reading and
writing four arrays, 0.5 ns per parameter once they exceed the CPU's cache. On another device, one PyTorch operation
does the same, and the gradient's norm and the check for finite numbers stay there too: no step waits for the device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from envs.compiler import compiled
from learner.optim.collective import Group
from learner.optim.device import read

Array = NDArray[np.float32]

DECAY_MEAN, DECAY_SQUARE = 0.9, 0.999
LEAST, ZERO = np.float32(1e-30), np.float32(0)
"""Moments below it are 0. They move nothing; but those of a parameter without gradient decay until the processor counts
in denormal numbers, which takes twice as long."""
SIXTEEN, ONE, BELOW_HALF, SUMS = np.uint32(16), np.uint32(1), np.uint32(0x7FFF), 64
TO_MEAN, TO_SQUARE, EPSILON = np.float32(1 - DECAY_MEAN), np.float32(1 - DECAY_SQUARE), np.float32(1e-5)


class Adam:
    """Moves `parameters` [P], in place, against gradients [P]. `state` and `restore` save and load its moments.

    copies: what computes in place of the parameters, in parts; those in bfloat16 are written at each step, on the
        processor. Their gradients come in the same parts and types.
    """

    betas: Sequence[float] = (DECAY_MEAN, DECAY_SQUARE)
    epsilon: ClassVar[float] = float(EPSILON)  # added to the root of a mean square gradient

    def __init__(self, parameters: Tensor, copies: Sequence[Tensor] = ()) -> None:
        self.parameters = parameters
        self._copies = [bits(each.detach().view(-1)) if each.dtype == torch.bfloat16 else None for each in copies]
        self.mean, self.square = torch.zeros_like(parameters), torch.zeros_like(parameters)
        self.steps = 0
        self._sizes, self._parts = list[int](), list[tuple[Array, ...]]()  # of the last gradients
        self._taken = torch.zeros((), device=parameters.device)  # `steps`, kept on another device

    @property
    def on_host(self) -> bool:
        return self.parameters.device.type == "cpu"

    def step(self, gradients: Sequence[Tensor], rate: float, factor: float = 1.0) -> None:
        """One step of size `rate` against `factor` times the gradient [P], which comes in parts, in order; on the
        processor."""
        self.steps += 1
        scale = rate / (1 - DECAY_MEAN**self.steps)
        root = 1 / math.sqrt(1 - DECAY_SQUARE**self.steps)
        sizes = [len(gradient) for gradient in gradients]
        if sizes != self._sizes:
            whole = (each.numpy() for each in (self.parameters, self.mean, self.square))
            parts = (np.split(each, np.cumsum(sizes)[:-1]) for each in whole)
            self._sizes, self._parts = sizes, [*zip(*parts, strict=True)]
        numbers = np.float32(factor), np.float32(scale), np.float32(root)
        copies = self._copies or [None] * len(gradients)
        for (parameters, mean, square), gradient, written in zip(self._parts, gradients, copies, strict=True):
            if written is None:
                _step(parameters, mean, square, gradient.numpy(), *numbers)
            else:
                _step_halved(parameters, mean, square, bits(gradient), written, *numbers)

    def step_there(self, gradients: Sequence[Tensor], rate: float, divisor: Tensor, skipped: Tensor) -> None:
        """`step` on any device, where numbers about the gradient are tensors: it is divided by `divisor` [], in place,
        and nothing changes where `skipped` [] is 1 and not 0."""
        sizes, mean_decay, square_decay = [len(gradient) for gradient in gradients], *self.betas
        self._taken += 1
        parameters, mean, square = (
            list(torch.split(each, sizes)) for each in (self.parameters, self.mean, self.square)
        )
        torch._fused_adam_(
            parameters,
            list(gradients),
            mean,
            square,
            [],
            [self._taken] * len(sizes),
            lr=rate,
            beta1=mean_decay,
            beta2=square_decay,
            weight_decay=0.0,
            eps=self.epsilon,
            amsgrad=False,
            maximize=False,
            grad_scale=divisor,
            found_inf=skipped,
        )
        self._taken -= skipped

    def state(self) -> dict[str, NDArray[Any]]:
        """The state needed to continue: `mean` [P], `square` [P], `steps`."""
        moments = {"mean": self.mean, "square": self.square}
        steps = self.steps if self.on_host else int(read(self._taken))
        return {name: read(each).copy() for name, each in moments.items()} | {"steps": np.array(steps)}

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Continue from `state`; ValueError if it belongs to other parameters."""
        if set(state) != {"mean", "square", "steps"} or state["mean"].shape != self.mean.shape:
            raise ValueError("the optimiser's state does not fit this policy")
        self.mean.copy_(torch.from_numpy(np.array(state["mean"])))
        self.square.copy_(torch.from_numpy(np.array(state["square"])))
        self.steps = int(state["steps"])
        self._taken.fill_(self.steps)


class DecayingAdam(Adam):
    """Adam with given decay rates. It changes parameters by array operations, on the CPU too."""

    epsilon = 1e-8

    def __init__(self, parameters: Tensor, betas: Sequence[float]) -> None:
        super().__init__(parameters)
        self.betas = betas

    def step(self, gradients: Sequence[Tensor], rate: float, factor: float = 1.0) -> None:
        self.steps += 1
        of_mean, of_square = self.betas
        slope = torch.cat(list(gradients)) * factor
        self.mean.lerp_(slope, 1 - of_mean)
        self.square.lerp_(slope.square_(), 1 - of_square)
        root = (self.square / (1 - of_square**self.steps)).sqrt_().add_(self.epsilon)
        self.parameters.addcdiv_(self.mean, root, value=-rate / (1 - of_mean**self.steps))


def side_by_side(parameters: Sequence[nn.Parameter]) -> tuple[Tensor, Tensor]:
    """Move parameters into one flat tensor [P], of which each is a view from then on, and likewise their gradients."""
    values = torch.cat([p.detach().flatten() for p in parameters])
    gradients = torch.zeros_like(values)
    sizes = [p.numel() for p in parameters]
    parts = zip(parameters, torch.split(values, sizes), torch.split(gradients, sizes), strict=True)
    for parameter, value, gradient in parts:
        parameter.data, parameter.grad = value.view_as(parameter), gradient.view_as(parameter)
    return values, gradients


def optimiser_step(adam: Adam, gradients: Sequence[Tensor], group: Group, clip: float, rate: float) -> tuple[Any, Any]:
    """One step of size `rate` against a rank's gradients. Returns their norm over all ranks, and whether the step was
    taken: a float and a bool, or tensors [] if the parameters are on a device other than the CPU.

    gradients: of all parameters in their order, [P] together. They are read in place: gathering or clearing them would
        cost as much as a third of Adam. With several ranks, a single float32 array becomes the average.
    clip: the largest norm. Gradients beyond it are shortened, those that are not finite are skipped.
    """
    if group.size > 1 and len(gradients) == 1 and gradients[0].dtype == torch.float32:
        group.average(gradients[0])  # in place: a copy would take as much memory as the weights
    elif group.size > 1:
        whole = torch.cat([gradient.flatten().float() for gradient in gradients])
        group.average(whole)
        parts = torch.split(whole, [gradient.numel() for gradient in gradients])
        gradients = [part.to(gradient.dtype) for part, gradient in zip(parts, gradients, strict=True)]
    flat = [gradient.ravel() for gradient in gradients]
    if not adam.on_host:
        length = torch.nn.utils.get_total_norm(flat)
        finite = length.isfinite()
        adam.step_there(flat, rate, ((length + 1e-6) / clip).clamp(min=1.0), (~finite).float())
        return length, finite
    norm = math.sqrt(sum(_square(part) for part in flat))
    usable = math.isfinite(norm)  # equal on all ranks, since the gradients are
    if usable:
        adam.step(flat, rate, min(1.0, clip / (norm + 1e-6)))
    return norm, usable


def _square(gradient: Tensor) -> float:
    """The squares' sum, in float32."""
    return _square_halved(bits(gradient)) if gradient.dtype == torch.bfloat16 else float(torch.dot(gradient, gradient))


def bits(halved: Tensor) -> NDArray[np.uint16]:
    """bfloat16 numbers [N] as compiled loops read them: the upper half of a float32."""
    return halved.view(torch.uint16).numpy()


@compiled
def _wide(half: np.uint16) -> np.float32:
    """A bfloat16 number, by its bits."""
    wide: np.float32 = np.uint32(np.uint32(half) << SIXTEEN).view(np.float32)
    return wide


@compiled
def _square_halved(gradient: NDArray[np.uint16]) -> float:
    # So many sums side by side: one alone waits for each addition.
    sums, ends = np.zeros(SUMS, np.float32), len(gradient) // SUMS * SUMS
    for first in range(0, ends, SUMS):
        for k in range(SUMS):
            sums[k] += _wide(gradient[first + k]) ** 2
    total = float(sums.sum())
    for i in range(ends, len(gradient)):
        total += float(_wide(gradient[i])) ** 2
    return total


@compiled
def _step_halved(
    parameters: Array,
    mean: Array,
    square: Array,
    gradient: NDArray[np.uint16],
    copy: NDArray[np.uint16],
    factor: np.float32,
    scale: np.float32,
    root: np.float32,
) -> None:
    """`_step` where gradient and what computes are bfloat16: each number is read and written here alone."""
    for i in range(len(parameters)):
        slope = _wide(gradient[i]) * factor
        average = mean[i] + TO_MEAN * (slope - mean[i])
        spread = square[i] + TO_SQUARE * (slope * slope - square[i])
        moved = np.float32(parameters[i] - scale * average / (math.sqrt(spread) * root + EPSILON))
        parameters[i] = moved
        near = moved.view(np.uint32)
        copy[i] = (near + BELOW_HALF + ((near >> SIXTEEN) & ONE)) >> SIXTEEN  # rounded to the nearest, ties to even
        mean[i] = average if abs(average) > LEAST else ZERO
        square[i] = spread if spread > LEAST else ZERO


@compiled
def _step(
    parameters: Array,
    mean: Array,
    square: Array,
    gradient: Array,
    factor: np.float32,
    scale: np.float32,
    root: np.float32,
) -> None:
    """`scale` and `root` correct the moments' bias from starting at 0."""
    for i in range(len(parameters)):
        slope = gradient[i] * factor
        average = mean[i] + TO_MEAN * (slope - mean[i])
        spread = square[i] + TO_SQUARE * (slope * slope - square[i])
        parameters[i] -= scale * average / (math.sqrt(spread) * root + EPSILON)
        # Written last: otherwise it would be read again, and the whole step would take almost twice as long.
        mean[i] = average if abs(average) > LEAST else ZERO
        square[i] = spread if spread > LEAST else ZERO
