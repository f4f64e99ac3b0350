"""The intrinsic reward that PPO and DQN call: reads observations, judges steps, learns from them.

    Steps ──> Reader: numbers [M, width] ──> RND | APT: worth of each step ──> weighed, scaled, [B, n]
                                          └─> their losses, gradients averaged over ranks, Adam

Texts are judged apart from the rest. Everything is computed with the networks as they are when steps are drawn, and
then these learn from the first step of each walk, in minibatches. Weights, optimiser and statistics are equal on all
ranks.
The limit is arithmetic: three layers forward for every observation, and forward and backward for every walk.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from envs.api import Chunk, EnvSpec, Field
from learner.adam import Adam
from learner.checkpoint import Arrays
from learner.collective import Group
from learner.descent import descend, side_by_side
from learner.intrinsic.apt import APT
from learner.intrinsic.config import COLUMN, IntrinsicConfig, views
from learner.intrinsic.reading import Reader
from learner.intrinsic.rnd import RND
from learner.intrinsic.steps import Floats, Rows, Steps, of_chunks
from learner.intrinsic.visits import Visits

STREAM = 1_000_003  # tells the random numbers drawn here from others with the same counters


class View(nn.Module):
    """Fields that are judged together."""

    def __init__(
        self,
        fields: Mapping[str, Field],
        weight: float,
        words: Sequence[str] | None,
        actions: int,
        config: IntrinsicConfig,
        group: Group,
    ) -> None:
        super().__init__()
        self.weight = weight
        self.reader = Reader(fields, words, group)
        kind: type[APT] | type[RND] = APT if config.name == "apt" else RND
        self.judge = kind(self.reader.width, actions, config, group)


class Intrinsic:
    """What steps are worth for their novelty. Every rank must call it equally often, with equally many walks.

    Args:
        config: which reward.
        spec: what the policy reads of the world.
        by_words: read texts by the world's vocabulary; False: by MiniLM.
        minibatch: walks of a gradient step, on this rank.
        group: the ranks.
        seed: root of weights and shuffles.
    """

    def __init__(
        self, config: IntrinsicConfig, spec: EnvSpec, by_words: bool, minibatch: int, group: Group, seed: int
    ) -> None:
        self.config, self.minibatch, self.group, self.seed = config, minibatch, group, seed
        found = views(config, spec.fields)
        self.fields = [name for fields, _ in found for name in fields]
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            words, actions = spec.words if by_words else None, len(spec.action_names)
            self.views = [View(part, weight, words, actions, config, group) for part, weight in found]
        self.networks = nn.ModuleList(self.views)
        self.owned = [p for p in self.networks.parameters() if p.requires_grad]
        parameters, self.gradient = side_by_side(self.owned)
        self.adam = Adam(parameters)
        self.visits = Visits(self.fields) if config.name == "noveld" and config.first_visit else None
        self.calls = 0
        self._told: list[tuple[float, float]] = []  # mean reward and loss of the calls since the last report

    # ---- what PPO and DQN call ----------------------------------------------------------------------------------

    def mark(self, chunk: Chunk) -> Chunk:
        """Every chunk passes here once, as it comes: its column `intrinsic` says what is paid of each step, 0 or 1."""
        if self.visits is None:
            return chunk
        return dataclasses.replace(chunk, rewards=chunk.rewards | {COLUMN: self.visits.first(chunk)})

    def pay(self, chunks: Sequence[Chunk]) -> list[Chunk]:
        """Marked chunks with the rewards themselves in the column `intrinsic`."""
        rewards = self(of_chunks(chunks, self.fields)).reshape(len(chunks[0].terminated), -1)
        parts = np.split(rewards, np.cumsum([len(chunk.env_index) for chunk in chunks])[:-1], 1)
        return [
            dataclasses.replace(chunk, rewards=chunk.rewards | {COLUMN: part})
            for chunk, part in zip(chunks, parts, strict=True)
        ]

    def __call__(self, steps: Steps) -> Floats:
        """Rewards float32 [B, n], 0 where no step was taken; then the networks learn from the first steps."""
        random = np.random.default_rng([self.seed, self.calls, self.group.rank, STREAM])
        order = random.permutation(len(steps.after))
        worth, numbers = torch.zeros(len(steps.taken[0])), []
        for view in self.views:
            read = view.reader.read(steps.obs, steps.texts)
            view.reader.moments.update(read[torch.from_numpy(steps.after[:, 0])])
            numbers.append(view.reader.scale(read))
            worth += view.weight * view.judge.worth(numbers[-1], steps, order[: self.config.particles])
        rewards = np.zeros(steps.live.shape, np.float32)
        rewards[steps.live] = self.config.scale * worth.numpy()
        if steps.share is not None:
            rewards *= steps.share
        loss = self._learn(numbers, steps, order)
        self._told.append((float(rewards[steps.live].mean()), loss))
        self.calls += 1
        return rewards

    def report(self) -> dict[str, float]:
        """Means since the last report; nothing if there was no call."""
        if not self._told:
            return {}
        reward, loss = np.mean(self._told, 0).tolist()
        self._told = []
        return {"intrinsic/reward_mean": reward, "intrinsic/loss": loss}

    # ---- learning -----------------------------------------------------------------------------------------------

    def _learn(self, numbers: Sequence[Tensor], steps: Steps, order: Rows) -> float:
        """One pass over the walks in this `order`. Returns the mean loss."""
        parts = np.array_split(order, max(1, round(len(order) / self.minibatch)))
        return float(np.mean([self._step(numbers, steps, part) for part in parts]))

    def _step(self, numbers: Sequence[Tensor], steps: Steps, walk: NDArray[np.int64]) -> float:
        before, after, action = (
            torch.from_numpy(rows) for rows in (steps.before[walk, 0], steps.after[walk, 0], steps.action[walk])
        )
        self.gradient.zero_()
        losses = [view.judge.loss(x[before], x[after], action) for view, x in zip(self.views, numbers, strict=True)]
        loss = torch.stack(losses).sum()
        torch.autograd.backward(loss, inputs=self.owned)
        descend(self.adam, [self.gradient], self.group, math.inf, self.config.learning_rate)
        return loss.item()

    # ---- at rest ------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Arrays]:
        """What a checkpoint holds, by file; equal on all ranks."""
        arrays = {f"networks.{name}": value.numpy().copy() for name, value in self.networks.state_dict().items()}
        arrays |= {f"optimiser.{name}": value for name, value in self.adam.state().items()}
        return {COLUMN: arrays | {"calls": np.array(self.calls)}}

    def rank_state(self) -> Arrays:
        """What a checkpoint holds of this rank alone."""
        if self.visits is None:
            return {}
        return {f"visits.{name}": value for name, value in self.visits.state().items()}

    def restore(self, state: Mapping[str, Arrays], own: Arrays) -> None:
        """Continue from both; a checkpoint from before there was this reward changes nothing.

        Raises:
            ValueError: they are of other networks.
        """
        if COLUMN not in state:
            return
        arrays = state[COLUMN]
        try:
            self.networks.load_state_dict({n: torch.from_numpy(v) for n, v in _part(arrays, "networks.").items()})
        except RuntimeError:
            raise ValueError("the checkpoint's intrinsic reward is of other networks") from None
        self.adam.restore(_part(arrays, "optimiser."))
        self.calls = int(arrays["calls"])
        if self.visits is not None and (visits := _part(own, "visits.")):
            self.visits.restore(visits)


def _part(arrays: Arrays, prefix: str) -> Arrays:
    return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}
