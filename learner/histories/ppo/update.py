"""An update of PPO for the tasks of a shard: all their networks are one tensor, and each product is of all of them.

    seen, after [k, T, columns] ──> values ──> GAE ──> minibatches ──> losses.Loss ──> Adam of each task

The loss, GAE and Adam are those of `learner.algorithms.ppo` and `learner.optim`. As in Stable-Baselines3 (`MlpPolicy`):
policy and value share nothing, initial weights are orthogonal, advantages are normalised in each minibatch, and the
value loss is half the squared error: the squared error with a coefficient of 0.5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from envs.api import EnvSpec
from learner.algorithms.ppo.advantages import vtrace
from learner.algorithms.ppo.losses import Loss, log_prob
from learner.algorithms.ppo.steps import Steps
from learner.histories import kept_fields
from learner.histories.ppo.config import PPOHistoriesConfig
from learner.models.networks.mlp import tanh
from learner.models.networks.texts import flat, size
from learner.optim.adam import Adam, optimiser_step
from learner.optim.collective import Group

Array = NDArray[np.float32]
Layers = list[tuple[Tensor, Tensor]]
ALONE = Group()
GAINS = {"policy": 0.01, "value": 1.0}  # of the last layers' initial weights; other layers have the root of 2


@dataclass
class Rollout:
    """T steps of k tasks."""

    seen: Array  # [k, T, columns]
    after: Array  # [k, T, columns], in the same episode
    action: NDArray[np.int64]  # [k, T]
    reward: Array  # [k, T]
    terminated: NDArray[np.bool_]  # [k, T]
    done: NDArray[np.bool_]  # [k, T], terminated or truncated

    @staticmethod
    def empty(tasks: int, steps: int, columns: int) -> Rollout:
        """Space for this many."""
        seen, after = np.zeros((2, tasks, steps, columns), np.float32)
        terminated, done = np.zeros((2, tasks, steps), np.bool_)
        action, reward = np.zeros((tasks, steps), np.int64), np.zeros((tasks, steps), np.float32)
        return Rollout(seen, after, action, reward, terminated, done)

    def take(self, rows: NDArray[np.intp]) -> Rollout:
        """The steps of some tasks."""
        return Rollout(**{name: column[rows] for name, column in vars(self).items()})


class Networks:
    """Policies and values of up to 16 tasks, and their training.

    Args:
        config: hyperparameters.
        spec: of the world.
        seed: of the run.
        tasks: int64 [G], their numbers.

    Attributes:
        parameters: float32 [G, P], changed in place.
    """

    def __init__(self, config: PPOHistoriesConfig, spec: EnvSpec, seed: int, tasks: NDArray[np.int64]) -> None:
        torch.set_num_threads(1)  # actors share the cores; and threads may change the last bits
        self._config, self._staged = config, spec.staged
        self._fields, self._actions = list(kept_fields(spec).values()), len(spec.action_names)
        width = sum(size(field) for field in self._fields) + spec.staged
        sizes = [width, config.hidden, config.hidden]
        self._shapes = [
            shape
            for out in (self._actions, 1)
            for into, outof in zip(sizes, [*sizes[1:], out], strict=True)
            for shape in ((into, outof), (1, outof))
        ]
        self.parameters = torch.stack([self._first(seed, task) for task in tasks.tolist()])
        self._adams = [Adam(row) for row in self.parameters]
        self._loss = Loss(config.clip, None, 1.0, config.entropy)
        self._policy, self._value = self._layers(self.parameters)

    def logits(self, seen: Array) -> Array:
        """Logits [G, actions] of each task's policy for its observation `seen` [G, columns]."""
        found: Array = _through(self._policy, self._inputs(seen)[:, None])[:, 0].numpy()
        return found

    def update(self, rows: NDArray[np.intp], lived: Rollout, orders: NDArray[np.int64]) -> None:
        """The tasks `rows` [k] learn from their last T steps, in these orders [epochs, k, T]."""
        config, which, each = self._config, torch.from_numpy(rows), np.arange(len(rows))[:, None]
        seen, columns = self._inputs(lived.seen), self._told(rows, lived, seen_by=self._layers(self.parameters[which]))
        for order in orders:
            for begin in range(0, config.steps, config.minibatch):
                index = order[:, begin : begin + config.minibatch]
                steps = {name: column[each, index] for name, column in columns.items()}
                steps["advantage"] = _normalised(steps["advantage"])
                parameters = self.parameters[which].requires_grad_()
                gradient = self._gradient(parameters, seen[each, index], steps)
                for row, part in zip(rows.tolist(), gradient, strict=True):
                    optimiser_step(self._adams[row], [part], ALONE, config.gradient_clip, config.learning_rate)

    def _told(self, rows: NDArray[np.intp], lived: Rollout, seen_by: tuple[Layers, Layers]) -> dict[str, NDArray[Any]]:
        """The loss's inputs for each step, [k, T] by name, from the networks before the update."""
        policy, value = seen_by
        seen, after = self._inputs(lived.seen), self._inputs(lived.after)
        logits, now = _through(policy, seen).numpy(), _through(value, seen)[..., 0].numpy()
        following = np.where(lived.terminated, np.float32(0), _through(value, after)[..., 0].numpy())
        fresh, config = np.ones_like(now), self._config
        estimates = vtrace(
            lived.reward.T, now.T, following.T, lived.done.T, fresh.T, config.discount, config.gae_lambda
        )
        said = log_prob(logits.reshape(-1, self._actions), lived.action.ravel()).reshape(lived.action.shape)
        return {
            "action": lived.action,
            "log_prob": said,
            "advantage": estimates[0].T,
            "weight": fresh,
            "value": now,
            "target": estimates[1].T,
        }

    def _gradient(self, parameters: Tensor, seen: Tensor, steps: dict[str, NDArray[Any]]) -> Tensor:
        """Gradient of each task's loss, a mean over its own steps, by its own parameters: [k, P]."""
        policy, value = self._layers(parameters)
        outputs = [_through(policy, seen), _through(value, seen)[..., 0]]
        logits, said = (output.detach().flatten(0, 1).numpy() for output in outputs)
        told = Steps(**{name: column.ravel() for name, column in steps.items()})
        slopes = self._loss.gradient(logits, said, told)[:2]
        count = len(parameters)  # the loss is the mean over all tasks
        back = [torch.from_numpy(s * np.float32(count)).view(o.shape) for s, o in zip(slopes, outputs, strict=True)]
        return torch.autograd.grad(outputs, parameters, back)[0]

    def _layers(self, parameters: Tensor) -> tuple[Layers, Layers]:
        """Weights [k, in, out] and biases [k, 1, out] of the policies and of the values, as views of [k, P]."""
        parts = torch.split(parameters, [math.prod(shape) for shape in self._shapes], 1)
        views = [part.view(-1, *shape) for part, shape in zip(parts, self._shapes, strict=True)]
        layers = list(zip(views[::2], views[1::2], strict=True))
        return layers[: len(layers) // 2], layers[len(layers) // 2 :]

    def _first(self, seed: int, task: int) -> Tensor:
        """A task's initial parameters, [P]."""
        number = int(np.random.SeedSequence([seed, task, 0, 2]).generate_state(1)[0])
        generator, parts = torch.Generator().manual_seed(number), []
        gains = [gain for last in GAINS.values() for gain in (math.sqrt(2), math.sqrt(2), last)]
        for gain, weight, bias in zip(gains, self._shapes[::2], self._shapes[1::2], strict=True):
            parts += [torch.nn.init.orthogonal_(torch.empty(weight), gain, generator).flatten(), torch.zeros(bias[1])]
        return torch.cat(parts)

    def _inputs(self, seen: Array) -> Tensor:
        """Numbers [..., columns] as network inputs: categories one-hot, [..., width]."""
        columns, begin, parts = torch.from_numpy(seen), 0, []
        for field in self._fields:
            end = begin + math.prod(field.shape)
            part = columns[..., begin:end]
            parts.append(flat(part[..., 0].long() if field.kind == "category" else part, field))
            begin = end
        return torch.cat([*parts, columns[..., begin:]], -1)


def _through(layers: Layers, seen: Tensor) -> Tensor:
    """Outputs [k, B, out] of each task's network for its own inputs [k, B, width]."""
    *inner, (weight, bias) = layers
    for within, beside in inner:
        seen = tanh(torch.baddbmm(beside, seen, within))
    return torch.baddbmm(bias, seen, weight)


def _normalised(advantage: Array) -> Array:
    """Normalise each task's values [k, B] to mean 0 and deviation 1; a single step is unchanged."""
    if advantage.shape[1] == 1:
        return advantage
    mean, deviation = advantage.mean(1, keepdims=True), advantage.std(1, keepdims=True, ddof=1)
    result: Array = (advantage - mean) / (deviation + np.float32(1e-8))
    return result
