"""Supervised learning by gradient steps: one rank of it, whatever learns from whatever.

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
from learner.optim.device import read


class Supervised(ABC):
    """A role. Methods are called by the controller, one at a time, on all ranks alike.

    Args:
        held_out: bool [N], of all rows those that are not learned from; not all of them.
        looked_at: so many of these are validated, always the same ones.
        seeds: of the orders of an epoch; the first is also of the choice of what is looked at.
        optimiser: of the parameters side by side.
        among: bool [N], of all rows those that are learned from or validated; all of them if None.

    Attributes:
        step: gradient steps taken.
    """

    RATE: ClassVar[str]
    """What to lower where a gradient is not finite."""
    WHAT: ClassVar[str] = "policy"
    """What learns."""

    def __init__(
        self,
        config: Any,  # has `batch`, `weight_decay`, `gradient_clip` and `step_size`
        group: Group,
        model: Any,  # has `parameters` and `payload`; what takes gradients is learned
        held_out: NDArray[np.bool_],
        looked_at: int,
        seeds: Sequence[int],
        optimiser: Callable[[Tensor], Adam] = Adam,
        among: NDArray[np.bool_] | None = None,
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
        self.adam = optimiser(self.parameters)

    def weights(self) -> Weights:
        """Copies of what a checkpoint holds of what learns."""
        return get_weights(self.model)

    def load_weights(self, weights: Weights) -> None:
        """Start from other weights."""
        set_weights(self.model, weights, self.WHAT)

    @abstractmethod
    def learn(self, batch: NDArray[np.int64]) -> tuple[Any, Any]:
        """Add up gradients. Returns this rank's share of loss and accuracy, whose mean over ranks is the batch's:
        floats, or tensors [] where the model is on another device than the processor."""

    @abstractmethod
    def validate(self) -> dict[str, float]:
        """Loss and accuracy on what is held out; empty if nothing is."""

    @property
    def nothing(self) -> Any:
        """0, as `number` gives it."""
        return 0.0 if self.adam.on_host else self.gradient.new_zeros(())

    def number(self, x: Tensor) -> Any:
        """A number of the model's, without its gradient: at once on the processor, else a tensor [] to read later."""
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
        first, found = self.step, [self._fit_one() for _ in range(steps)]
        if found and not self.adam.on_host:  # read once: no step waits for the device
            found = read(torch.stack([torch.stack([x.detach().float() for x in row]) for row in found])).tolist()
        for number, (*_, skipped) in enumerate(found):
            if skipped:
                raise FloatingPointError(f"the gradient of step {first + number} is not finite: lower {self.RATE}")
        sums = self.group.mean([float(number) for loss, hits, *_ in found for number in (loss, hits)])
        return [[sums[2 * i], sums[2 * i + 1], float(norm)] for i, (_, _, norm, _) in enumerate(found)]

    def save(self, folder: Path, record: dict[str, Any], keep: int) -> None:
        """Rank 0 writes a checkpoint with the controller's JSON `record`, whose `version` may count on from other
        stages of the run; then `step` is there, too."""
        if self.group.rank == 0:
            groups = {"model": self.weights(), "optimiser": self.adam.state()}
            checkpoint.write(folder, record["counters"]["version"], groups, record, keep)

    def restore(self, path: Path) -> None:
        """Continue from a checkpoint.

        Raises:
            CheckpointError: it is damaged.
            ValueError: it is of something else.
        """
        found = checkpoint.read(path)
        self.load_weights(found.arrays["model"])
        self.adam.restore(found.arrays["optimiser"])
        self.step = found.record.get("step", found.record["counters"]["version"])

    def _fit_one(self) -> tuple[Any, Any, Any, Any]:
        """Loss, accuracy, gradient norm, and if it was not finite: as `learn` and `optimiser_step` give them."""
        config = self.config
        self.gradient.zero_()
        loss, hits = self.learn(self.batch(self.step))
        rate = config.step_size(self.step)
        if config.weight_decay:
            self.parameters.addcmul_(self.parameters, self._decays, value=-rate * config.weight_decay)
        norm, usable = optimiser_step(self.adam, [self.gradient], self.group, config.gradient_clip, rate)
        self.step += 1
        return loss, hits, norm, not usable if self.adam.on_host else ~usable
