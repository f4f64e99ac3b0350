"""Supervised learning by gradient steps: one rank, for any model and data.

    rows in an order of their own each epoch ──> batch, dealt to the ranks ──> `learn`: gradients add up
        ──> averaged over ranks, clipped, AdamW

The step size rises linearly over `warmup` steps and falls along half a cosine (Loshchilov & Hutter 2017); weight decay
is decoupled and for matrices only (the same, 2019). What step k learns from is a function of (seed, k) alone, whatever
the number of ranks, so a checkpoint is arrays and a counter.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learner import checkpoint
from learner.models.weights import Weights, get_weights, set_weights
from learner.optim.adam import Adam, optimiser_step, side_by_side
from learner.optim.collective import Group
from learner.optim.device import read, settle


class Supervised(ABC):
    """A role. Methods are called by the controller, one at a time, on all ranks alike.

    Args:
        held_out: bool [N], the rows that are not used for training; not all rows.
        looked_at: number of held-out rows per validation, always the same ones.
        seeds: of the orders of an epoch; the first also selects the rows for validation.
        optimiser: of the concatenated parameters.
        among: bool [N], the rows for training or validation; all rows if None.
        exact: equal inputs give equal bits, on a GPU too.

    Attributes:
        step: gradient steps taken.
    """

    RATE: ClassVar[str]
    """The key to lower if a gradient is not finite."""
    WHAT: ClassVar[str] = "policy"
    """What learns."""

    def __init__(
        self,
        config: Any,  # has `batch`, `weight_decay`, `gradient_clip` and `step_size`
        group: Group,
        model: Any,  # has `parameters` and `payload`; those with gradients are trained
        held_out: NDArray[np.bool_],
        looked_at: int,
        seeds: Sequence[int],
        optimiser: Callable[[Tensor], Adam] = Adam,
        among: NDArray[np.bool_] | None = None,
        exact: bool = False,
    ) -> None:
        self.config, self.group, self.model, self.step = config, group, model, 0
        used = np.ones_like(held_out) if among is None else among
        self.training, validation = np.flatnonzero(~held_out & used), np.flatnonzero(held_out & used)
        self.validation = np.sort(np.random.default_rng(seeds[0]).permutation(validation)[:looked_at])
        self._parts = max(1, round(len(self.training) / config.batch))  # of an epoch; they share its rows evenly
        self._seeds, self._epoch = [*seeds], -1
        parameters = [p for p in model.parameters() if p.requires_grad]
        self._decays = torch.cat([torch.full_like(p.detach().ravel(), p.ndim > 1) for p in parameters])
        self.parameters, self.gradient = side_by_side(parameters)
        settle(self.parameters.device, exact)
        self.adam = optimiser(self.parameters)
        self._writer = checkpoint.Writer()

    def weights(self) -> Weights:
        """Copies of the model's arrays for a checkpoint."""
        return get_weights(self.model)

    def load_weights(self, weights: Weights) -> None:
        """Start from other weights."""
        set_weights(self.model, weights, self.WHAT)

    @abstractmethod
    def learn(self, batch: NDArray[np.int64]) -> tuple[Any, Any]:
        """Add up gradients. Returns this rank's share of loss and accuracy, whose mean over ranks is the batch's:
        floats, or tensors [] if the model is on a device other than the CPU."""

    @abstractmethod
    def validate(self) -> dict[str, float]:
        """Loss and accuracy on held-out rows; empty if there are none."""

    @property
    def nothing(self) -> Any:
        """0, as `number` gives it."""
        return 0.0 if self.adam.on_host else self.gradient.new_zeros(())

    def number(self, x: Tensor) -> Any:
        """A number from the model, without its gradient: read at once on the CPU, otherwise a tensor [] to read
        later."""
        return float(x.detach()) if self.adam.on_host else x.detach().float()

    def batch(self, step: int) -> NDArray[np.int64]:
        """The rows that step 0, 1, ... learns from: each once an epoch."""
        epoch, part = divmod(step, self._parts)
        if epoch != self._epoch:
            self._epoch = epoch
            self._order = np.random.default_rng([*self._seeds, epoch]).permutation(self.training)
        n = len(self._order)
        return self._order[part * n // self._parts : (part + 1) * n // self._parts]

    def fit(self, steps: int) -> list[list[float]]:
        """Take gradient steps. Returns loss, accuracy and gradient norm of each.

        Raises:
            FloatingPointError: a gradient was not finite.
        """
        self._writer.check()
        first, found = self.step, [self._fit_one() for _ in range(steps)]
        if found and not self.adam.on_host:  # read once: no step waits for the device
            found = read(torch.stack([torch.stack([x.detach().float() for x in row]) for row in found])).tolist()
        for number, (*_, skipped) in enumerate(found):
            if skipped:
                raise FloatingPointError(f"the gradient of step {first + number} is not finite: lower {self.RATE}")
        sums = self.group.mean([float(number) for loss, hits, *_ in found for number in (loss, hits)])
        return [[sums[2 * i], sums[2 * i + 1], float(norm)] for i, (_, _, norm, _) in enumerate(found)]

    def save(self, folder: Path, record: dict[str, Any], keep: int, wait: bool = True) -> float:
        """Rank 0 writes a checkpoint with the controller's JSON `record`, whose `version` may count on from other
        stages of the run; then `step` is there, too.

        wait: until it is complete. Otherwise that of a large model is only copied when this returns.

        Returns how long it took to write the last large one, in seconds; 0 before the first.
        """
        if self.group.rank == 0:
            groups = {"model": self.weights(), "optimiser": self.adam.state()}
            self._writer.write(folder, record["counters"]["version"], groups, record, keep, wait)
        return self._writer.seconds

    def restore(self, path: Path) -> None:
        """Continue from a checkpoint.

        Raises:
            CheckpointError: it is damaged.
            ValueError: it belongs to another model.
        """
        found = checkpoint.read(path)
        self.load_weights(found.arrays["model"])
        self.adam.restore(found.arrays["optimiser"])
        self.step = found.record.get("step", found.record["counters"]["version"])

    def _fit_one(self) -> tuple[Any, Any, Any, Any]:
        """Loss, accuracy, gradient norm, and whether it was not finite: as returned by `learn` and `optimiser_step`."""
        config = self.config
        self.gradient.zero_()
        loss, hits = self.learn(self.batch(self.step))
        rate = config.step_size(self.step)
        if config.weight_decay:
            self.parameters.addcmul_(self.parameters, self._decays, value=-rate * config.weight_decay)
        norm, usable = optimiser_step(self.adam, [self.gradient], self.group, config.gradient_clip, rate)
        self.step += 1
        return loss, hits, norm, not usable if self.adam.on_host else ~usable
