"""A transformer over whole episodes, a token a step, each of which may look at a chunk of another episode.

    obs, return to go, last action and reward ──sum, norm──> token of a step ──> Decoder with a band ──> hidden states
    obs, return to go, action, reward, place  ──sum, norm──> tokens of chunks ──remember──> Memory ──^       └──> logits

After the decision transformer (Chen et al. 2021, arXiv 2106.01345) and the one that retrieves (Schmied et al. 2024,
arXiv 2410.07071). There, a step is three or four tokens; here it is one, the sum of all that is known when its action
is chosen. Where actions are vectors, the head says the action itself instead of logits. Tokens of retrieved steps are
made with tables of their own, and know their place in the chunk.

All of it is causal: `forward` over a whole episode gives each step what `step` gives it while it is lived, where a ring
keeps keys and values of the last steps. A step knows its place in the episode by its own past only: where an episode
begins there is no last action, and the band tells how far back that was.

The limit is the decoder's arithmetic.
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
from learner.context.config import SequenceConfig
from learner.models.sequence.cache import Ring
from learner.models.sequence.decoder import INITIAL, Decoder
from learner.models.sequence.memory import Memory
from learner.models.sequence.window import Window
from learner.models.weights import Weights, set_weights

NO_ACTION = -1
"""The last action of a step with which an episode begins; of actions that are vectors, each number is nan."""


def none_of(actions: NDArray[Any]) -> float:
    """What stands for no action among these."""
    return NO_ACTION if actions.dtype.kind == "i" else np.nan


@dataclass(frozen=True)
class HistoryShape:
    """What goes into a transformer of histories and what comes out."""

    categories: tuple[tuple[str, int], ...]  # observed fields that are one of so many
    vectors: tuple[tuple[str, int], ...]  # observed fields of so many numbers
    actions: int  # of which one is chosen; the numbers of one, where actions are vectors
    band: int  # steps that a step attends to, or that are a window, itself among them
    conditioned: bool = True  # whether the return to go is told
    reach: tuple[float, ...] = (
        1.0,
    )  # the largest return to go of each step: bins lie between 0 and the largest of all
    chunk: int = 0  # most steps of a chunk that is looked at; 0: none is
    last: bool = True  # whether the last action and what it paid are told
    bounds: tuple[tuple[float, float], ...] = ()  # of each number of an action; empty: actions are one of so many

    @staticmethod
    def of(
        spec: EnvSpec,
        band: int,
        conditioned: bool = True,
        reach: Sequence[float] = (1.0,),
        chunk: int = 0,
        last: bool = True,
    ) -> HistoryShape:
        """Of steps in a world.

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
    """What is known when each of S actions is chosen, of episodes one after the other, or of B rows side by side."""

    obs: dict[str, Tensor]  # int64 [S] of categories, float32 [S, D] of vectors
    to_go: Tensor  # float32 [S], the return that is still to come or wanted, that of the step among it
    last_action: Tensor  # int64 [S], `NO_ACTION` where an episode begins; float32 [S, D], nan there
    last_reward: Tensor  # float32 [S], what the last action paid, 0 where an episode begins
    place: Tensor | None = None  # int64 [S], of each step in its episode; told where windows are computed anew

    def take(self, index: Tensor) -> StepInputs:
        """Some of the steps, int64 [N]."""
        obs = {name: column[index] for name, column in self.obs.items()}
        place = None if self.place is None else self.place[index]
        return StepInputs(obs, self.to_go[index], self.last_action[index], self.last_reward[index], place)


@dataclass(frozen=True)
class ChunkSteps:
    """M steps of chunks, one chunk after the other, as they were lived."""

    obs: dict[str, Tensor]  # as in `StepInputs`, [M]
    to_go: Tensor  # float32 [M], the return that was still to come
    action: Tensor  # int64 [M] or float32 [M, D], the action that was taken
    reward: Tensor  # float32 [M], what it paid


def bin_of(to_go: Tensor, largest: Tensor | float, bins: int) -> Tensor:
    """In which of so many bins between 0 and the largest a return to go lies, int64 of its shape."""
    return (to_go / largest * (bins - 1)).round().clamp(0, bins - 1).long()


class _Tables(nn.Module):
    """The sum of what a step consists of, normalised, [S, width]."""

    def __init__(self, shape: HistoryShape, width: int, bins: int, places: int = 0, retrieved: bool = False) -> None:
        super().__init__()
        self.categories = nn.ModuleDict({f"of_{name}": nn.Embedding(size, width) for name, size in shape.categories})
        self.vectors = nn.ModuleDict({f"of_{name}": nn.Linear(n, width, bias=False) for name, n in shape.vectors})
        self.acts = shape.last or retrieved  # a chunk's steps always tell what was done
        if self.acts:
            if shape.bounds:
                self.action: nn.Module = nn.Linear(shape.actions, width, bias=False)
                self.none = nn.Parameter(torch.empty(1, width))
            else:
                self.action = nn.Embedding(shape.actions + 1, width)  # the first is none
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


class HistoryTransformer(nn.Module):
    """See the top of this file.

    Args:
        shape: what goes in and comes out.
        config: how large it is, and where it computes.

    Raises:
        ValueError: sizes that cannot be.
    """

    reach: Tensor  # the largest return to go of each step, float32 [T]
    largest: Tensor  # of all of these and 1, float32 []
    reward_scale: Tensor  # what rewards are divided by, float32 []

    def __init__(self, shape: HistoryShape, config: SequenceConfig) -> None:
        super().__init__()
        self.shape, self.config = shape, config
        self.device = torch.device(
            config.device if config.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
        )
        scale, scaled = torch.tensor(config.reward_scale, dtype=torch.float32), config.reward_scale != 1
        self.register_buffer("reward_scale", scale, persistent=scaled)  # weights say it where there is one
        self.register_buffer("reach", torch.tensor(shape.reach, dtype=torch.float32))
        self.register_buffer("largest", self.reach.max().clamp(min=1), persistent=False)
        self.windowed = config.attention == "window"
        self.own = _Tables(shape, config.width, config.bins, len(shape.reach) if self.windowed else 0)
        retrieves = shape.chunk > 0
        if retrieves:
            self.retrieved = _Tables(shape, config.width, config.bins, shape.chunk, retrieved=True)
        self.decoder = Decoder(
            config.width,
            config.layers,
            config.heads,
            config.dropout,
            cross_attention=retrieves,
            null_chunk=retrieves,
            band=0 if self.windowed else shape.band,
        )
        self.head = nn.Linear(config.width, shape.actions)
        nn.init.normal_(self.head.weight, std=INITIAL)
        nn.init.zeros_(self.head.bias)
        self.to(self.device)

    @staticmethod
    def of(config: SequenceConfig, spec: EnvSpec, weights: Weights) -> HistoryTransformer:
        """A transformer with these weights, which say all that is not in its configuration.

        Raises:
            ValueError: they are of another configuration or world.
        """
        try:
            band = config.band if config.attention == "window" else weights["decoder.offsets"].shape[2]
            reach = weights["reach"].tolist()
        except KeyError as missing:
            raise ValueError(f"these are no weights of a transformer of histories: {missing} is not there") from None
        places = weights.get("retrieved.place.weight")
        conditioned, last = "own.to_go.weight" in weights, "own.action.weight" in weights
        shape = HistoryShape.of(spec, band, conditioned, reach, 0 if places is None else len(places), last)
        model = HistoryTransformer(shape, config)
        set_weights(model, weights, "transformer of histories")
        return model

    def payload(self) -> dict[str, Tensor]:
        """All that is saved, by name: parameters, and the largest returns to go."""
        return {name: value.detach() for name, value in self.state_dict().items()}

    def forward(
        self, steps: StepInputs, lengths: Sequence[int], memory: Memory | None = None, index: Tensor | None = None
    ) -> Tensor:
        """Hidden states [S, width] of all steps of whole sequences.

        Args:
            steps: [S], of each sequence in turn.
            lengths: of the sequences; their sum is S.
            memory: what steps may look at, see `remember`; None: nothing.
            index: the chunk that each step looks at, -1 for none, int64 [S]. If None, sequence i looks at chunk i.
        """
        return self.decoder(self._tokens(steps), lengths, None, memory, self._placed(index))  # type: ignore[no-any-return]

    def ring(self, rows: int) -> Ring | Window:
        """What acting keeps of B rows that have not begun; see `Ring.restart`."""
        return Window(self.shape.band) if self.windowed else self.decoder.ring(rows)

    def step(
        self, steps: StepInputs, ring: Ring | Window, memory: Memory | None = None, index: Tensor | None = None
    ) -> Tensor:
        """Hidden states [B, width] of the next step of each row, which the ring keeps.

        index: the chunk that each row looks at, -1 for none, int64 [B]. If None, row i looks at chunk i. Where windows
            are computed anew, all of a window looks at it.
        """
        if isinstance(ring, Window):
            ring.add(steps)
            whole, n = ring.steps()
            rows = len(steps.to_go)
            spread = torch.arange(rows) if index is None else index
            read = torch.arange(n - 1, rows * n, n, device=self.device)
            look = self._placed(spread.repeat_interleave(n))
            return self.decoder(self._tokens(whole), [n] * rows, read, memory, look)  # type: ignore[no-any-return]
        return self.decoder.extend(self._tokens(steps)[:, None], ring, memory, self._placed(index))

    def remember(self, chunks: ChunkSteps, lengths: Sequence[int]) -> Memory:
        """A memory of K chunks, each of `lengths` steps: keys and values of all layers, computed once.

        Gradients pass through it, so that training makes one in each step; acting keeps it until weights change.

        Raises:
            ValueError: the transformer looks at no chunks, or one is longer than it knows places.
        """
        if not self.shape.chunk:
            raise ValueError("this transformer looks at no chunks: choose an arm that does")
        if max(lengths, default=0) > self.shape.chunk:
            raise ValueError(f"a chunk of {max(lengths)} steps, but this transformer knows {self.shape.chunk} places")
        place = torch.cat([torch.arange(0), *(torch.arange(n) for n in lengths)])
        given = (chunks.to_go, self.largest, chunks.action, chunks.reward, self.reward_scale, place)
        tokens = self.retrieved(self._obs(chunks.obs), *(each.to(self.device) for each in given))
        return self.decoder.remember(tokens, lengths)

    def logits(self, hidden: Tensor) -> Tensor:
        """Of actions, [..., A], of hidden states [..., width]; where actions are vectors the action that is expected,
        [..., D], which may lie outside of its bounds."""
        found: Tensor = self.head(hidden)
        return found

    def _tokens(self, steps: StepInputs) -> Tensor:
        given = [steps.to_go, self.largest, steps.last_action, steps.last_reward, self.reward_scale]
        if self.windowed:
            assert steps.place is not None, "steps of windows know their places"
            given.append(steps.place.clamp(max=len(self.reach) - 1))
        tokens: Tensor = self.own(self._obs(steps.obs), *(each.to(self.device) for each in given))
        return tokens

    def _obs(self, obs: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: column.to(self.device) for name, column in obs.items()}

    def _placed(self, index: Tensor | None) -> Tensor | None:
        return None if index is None else index.to(self.device)
