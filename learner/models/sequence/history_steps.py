"""Steps as inputs of a transformer of histories: their contents, and the token that encodes them.

StepInputs   inputs known when an action is chosen ──┐
ChunkSteps   recorded steps of a chunk             ──┴──StepTables: sum of tables, norm──> tokens [S, width]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from envs.api import EnvSpec
from learner.models.sequence.decoder import INITIAL

NO_ACTION = -1
"""The last action of an episode's first step; for vector actions, each number is nan."""


def none_of(actions: NDArray[Any]) -> float:
    """The value that stands for no action among these."""
    return NO_ACTION if actions.dtype.kind == "i" else np.nan


@dataclass(frozen=True)
class HistoryShape:
    """Inputs and outputs of a transformer of histories."""

    categories: tuple[tuple[str, int], ...]  # observed fields that are one of so many
    vectors: tuple[tuple[str, int], ...]  # observed fields of so many numbers
    actions: int  # number of actions; where actions are vectors, their dimension
    band: int  # steps that a step attends to, or of a window, including itself
    conditioned: bool = True  # whether the return to go is an input
    reach: tuple[float, ...] = (1.0,)  # the largest return to go of each step; bins end at the largest of all
    chunk: int = 0  # most steps of a retrieved chunk; 0: no chunks
    last: bool = True  # whether the last action and its reward are inputs
    bounds: tuple[tuple[float, float], ...] = ()  # of each number of an action; empty: actions are discrete

    @staticmethod
    def of(
        spec: EnvSpec,
        band: int,
        conditioned: bool = True,
        reach: Sequence[float] = (1.0,),
        chunk: int = 0,
        last: bool = True,
    ) -> HistoryShape:
        """The shape of steps in a world.

        Raises:
            ValueError: a field is neither a single category nor a vector, or actions are vectors without bounds.
        """
        fields = {name: field for name, field in spec.fields.items() if not field.privileged}
        for name, field in fields.items():
            if (field.kind, len(field.shape)) not in (("category", 0), ("vector", 1)):
                raise ValueError(
                    f"a transformer of histories reads categories and vectors, but {name} of {spec.id} is "
                    f"{field.kind} of shape {field.shape}: choose another world"
                )
        if not spec.discrete and not spec.action_bounds:
            raise ValueError(f"a transformer of histories needs the bounds of actions, and {spec.id} tells none")
        return HistoryShape(
            tuple((name, field.size) for name, field in fields.items() if field.kind == "category"),
            tuple((name, field.shape[0]) for name, field in fields.items() if field.kind == "vector"),
            len(spec.action_names) or spec.action_shape[0],
            band,
            conditioned,
            tuple(reach),
            chunk,
            last,
            spec.action_bounds,
        )


@dataclass(frozen=True)
class StepInputs:
    """Inputs known when each of S actions is chosen, for episodes one after the other, or for B rows side by side."""

    obs: dict[str, Tensor]  # int64 [S] of categories, float32 [S, D] of vectors
    to_go: Tensor  # float32 [S], the remaining or desired return, including the step's own reward
    last_action: Tensor  # int64 [S], `NO_ACTION` where an episode begins; float32 [S, D], nan there
    last_reward: Tensor  # float32 [S], the last action's reward, 0 where an episode begins
    place: Tensor | None = None  # int64 [S], of each step in its episode; given where windows are recomputed

    def take(self, index: Tensor) -> StepInputs:
        """Some of the steps, int64 [N]."""
        obs = {name: column[index] for name, column in self.obs.items()}
        place = None if self.place is None else self.place[index]
        return StepInputs(obs, self.to_go[index], self.last_action[index], self.last_reward[index], place)


@dataclass(frozen=True)
class ChunkSteps:
    """M recorded steps of chunks, one chunk after the other."""

    obs: dict[str, Tensor]  # as in `StepInputs`, [M]
    to_go: Tensor  # float32 [M], the remaining return
    action: Tensor  # int64 [M] or float32 [M, D], the action taken
    reward: Tensor  # float32 [M], its reward


def bin_of(to_go: Tensor, largest: Tensor | float, bins: int) -> Tensor:
    """The bin of each return to go, between 0 and the largest, int64 of the same shape."""
    return (to_go / largest * (bins - 1)).round().clamp(0, bins - 1).long()


class StepTables(nn.Module):
    """The normalised sum of a step's parts, [S, width]."""

    def __init__(self, shape: HistoryShape, width: int, bins: int, places: int = 0, retrieved: bool = False) -> None:
        super().__init__()
        self.categories = nn.ModuleDict({f"of_{name}": nn.Embedding(size, width) for name, size in shape.categories})
        self.vectors = nn.ModuleDict({f"of_{name}": nn.Linear(n, width, bias=False) for name, n in shape.vectors})
        self.acts = shape.last or retrieved  # a chunk's steps always include their actions
        if self.acts:
            if shape.bounds:
                self.action: nn.Module = nn.Linear(shape.actions, width, bias=False)
                self.none = nn.Parameter(torch.empty(1, width))
            else:
                self.action = nn.Embedding(shape.actions + 1, width)  # the first row stands for no action
            self.reward = nn.Linear(1, width, bias=False)
        if shape.conditioned:
            self.to_go = nn.Embedding(bins, width)
        if places:
            self.place = nn.Embedding(places, width)
        for table in self.parameters():
            nn.init.normal_(table, std=INITIAL)
        self.norm = nn.LayerNorm(width, bias=False)
        self.conditioned, self.bins, self.vector = shape.conditioned, bins, bool(shape.bounds)

    def forward(
        self,
        obs: dict[str, Tensor],
        to_go: Tensor,
        largest: Tensor,
        action: Tensor,
        reward: Tensor,
        scale: Tensor,
        place: Tensor | None = None,
    ) -> Tensor:
        parts = [self._acted(action), self.reward(reward[:, None] / scale)] if self.acts else []
        for name, table in (*self.categories.items(), *self.vectors.items()):
            parts.append(table(obs[name.removeprefix("of_")]))
        x = sum(parts[1:], parts[0])
        if self.conditioned:
            x = x + self.to_go(bin_of(to_go, largest, self.bins))
        if place is not None:
            x = x + self.place(place)
        normed: Tensor = self.norm(x)
        return normed

    def _acted(self, action: Tensor) -> Tensor:
        if not self.vector:
            return self.action(action + 1)  # type: ignore[no-any-return]
        there = ~action.isnan()
        found: Tensor = self.action(torch.where(there, action, 0.0))
        return torch.where(there.all(-1, keepdim=True), found, self.none)
