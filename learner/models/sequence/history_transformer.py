"""A transformer over whole episodes, one token per step; each may attend to a chunk of another episode.

    obs, return to go, last action and reward ──sum, norm──> token of a step ──> Decoder with a band ──> hidden states
    obs, return to go, action, reward, place  ──sum, norm──> tokens of chunks ──remember──> Memory ──^       └──> logits

After the decision transformer (Chen et al. 2021, arXiv 2106.01345) and the one that retrieves (Schmied et al. 2024,
arXiv 2410.07071). There, a step is three or four tokens; here it is one, the sum of all that is known when its action
is chosen. Where actions are vectors, the head outputs the action itself instead of logits. Tokens of retrieved steps
have their own tables and include their place in the chunk.

The model is causal: `forward` over a whole episode gives each step the same output as `step` during play, where a ring
keeps keys and values of the last steps. A step can infer its place in the episode only from its past: the first step
has no last action, and the band encodes how far back that was.

The limit is the decoder's arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from envs.api import EnvSpec
from learner.context.config import SequenceConfig
from learner.models.sequence.cache import Ring
from learner.models.sequence.decoder import INITIAL, Decoder
from learner.models.sequence.history_steps import ChunkSteps, HistoryShape, StepInputs, StepTables
from learner.models.sequence.memory import Memory
from learner.models.sequence.window import Window
from learner.models.weights import Weights, set_weights
from learner.optim.device import device, send


class HistoryTransformer(nn.Module):
    """See the top of this file.

    Args:
        shape: inputs and outputs.
        config: size and device.

    Raises:
        ValueError: invalid sizes.
    """

    reach: Tensor  # the largest return to go of each step, float32 [T]
    largest: Tensor  # of all of these and 1, float32 []
    reward_scale: Tensor  # divisor of rewards, float32 []

    def __init__(self, shape: HistoryShape, config: SequenceConfig) -> None:
        super().__init__()
        self.shape, self.config = shape, config
        self.device = device(config.device, "method.sequence.device")
        scale, scaled = torch.tensor(config.reward_scale, dtype=torch.float32), config.reward_scale != 1
        self.register_buffer("reward_scale", scale, persistent=scaled)  # saved with the weights if there is one
        self.register_buffer("reach", torch.tensor(shape.reach, dtype=torch.float32))
        self.register_buffer("largest", self.reach.max().clamp(min=1), persistent=False)
        self.windowed = config.attention == "window"
        self.own = StepTables(shape, config.width, config.bins, len(shape.reach) if self.windowed else 0)
        retrieves = shape.chunk > 0
        if retrieves:
            self.retrieved = StepTables(shape, config.width, config.bins, shape.chunk, retrieved=True)
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
        """A transformer with these weights, which determine all that its configuration does not.

        Raises:
            ValueError: they belong to another configuration or world.
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
        """The saved arrays by name: parameters, and the largest returns to go."""
        return {name: value.detach() for name, value in self.state_dict().items()}

    def forward(
        self, steps: StepInputs, lengths: Sequence[int], memory: Memory | None = None, index: Tensor | None = None
    ) -> Tensor:
        """Hidden states [S, width] of all steps of whole sequences.

        Args:
            steps: [S], of each sequence in turn.
            lengths: of the sequences; their sum is S.
            memory: chunks for cross-attention, see `remember`; None: no chunks.
            index: the chunk that each step attends to, -1 for none, int64 [S]. If None, sequence i attends to chunk i.
        """
        return self.decoder(self._tokens(steps), lengths, None, memory, index)  # type: ignore[no-any-return]

    def ring(self, rows: int) -> Ring | Window:
        """An empty cache for acting in B rows; see `Ring.restart`."""
        return Window(self.shape.band) if self.windowed else self.decoder.ring(rows)

    def step(
        self, steps: StepInputs, ring: Ring | Window, memory: Memory | None = None, index: Tensor | None = None
    ) -> Tensor:
        """Hidden states [B, width] of the next step of each row. Adds the step to the ring.

        index: the chunk that each row attends to, -1 for none, int64 [B]. If None, row i attends to chunk i. A
            recomputed window attends to it as a whole.
        """
        if isinstance(ring, Window):
            ring.add(steps)
            whole, n = ring.steps()
            rows = len(steps.to_go)
            spread = torch.arange(rows) if index is None else index
            read, look = torch.arange(n - 1, rows * n, n), spread.repeat_interleave(n)
            return self.decoder(self._tokens(whole), [n] * rows, read, memory, look)  # type: ignore[no-any-return]
        return self.decoder.extend(self._tokens(steps)[:, None], ring, memory, index)

    def remember(self, chunks: ChunkSteps, lengths: Sequence[int]) -> Memory:
        """A memory of K chunks, each of `lengths` steps: keys and values of all layers, computed once.

        Gradients pass through it, so training computes it in each step; acting keeps it until weights change.

        Raises:
            ValueError: the transformer has no chunks, or one is longer than its number of places.
        """
        if not self.shape.chunk:
            raise ValueError("this transformer looks at no chunks: choose an arm that does")
        if max(lengths, default=0) > self.shape.chunk:
            raise ValueError(f"a chunk of {max(lengths)} steps, but this transformer knows {self.shape.chunk} places")
        place = torch.cat([torch.arange(0), *(torch.arange(n) for n in lengths)])
        tokens = self._told(self.retrieved, chunks.obs, chunks.to_go, chunks.action, chunks.reward, place)
        return self.decoder.remember(tokens, lengths)

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits of actions [..., A] from hidden states [..., width]; for vector actions the expected action [..., D],
        which may lie outside its bounds."""
        found: Tensor = self.head(hidden)
        return found

    def _tokens(self, steps: StepInputs) -> Tensor:
        place = None
        if self.windowed:
            assert steps.place is not None, "steps of windows know their places"
            place = steps.place.clamp(max=len(self.reach) - 1)
        return self._told(self.own, steps.obs, steps.to_go, steps.last_action, steps.last_reward, place)

    def _told(
        self,
        tables: StepTables,
        obs: dict[str, Tensor],
        to_go: Tensor,
        action: Tensor,
        reward: Tensor,
        place: Tensor | None,
    ) -> Tensor:
        """Tokens [S, width] from some tables; inputs are on the host or on the transformer's device."""
        columns: dict[tuple[str, str], Tensor] = {("obs", name): column for name, column in obs.items()}
        columns |= {("step", "to_go"): to_go, ("step", "action"): action, ("step", "reward"): reward}
        if place is not None:
            columns["step", "place"] = place
        there = send(columns, self.device) if to_go.device.type == "cpu" else columns
        seen = {name: there["obs", name] for name in obs}
        to_go, action, reward = (there["step", name] for name in ("to_go", "action", "reward"))
        tokens: Tensor = tables(
            seen, to_go, self.largest, action, reward, self.reward_scale, there.get(("step", "place"))
        )
        return tokens
