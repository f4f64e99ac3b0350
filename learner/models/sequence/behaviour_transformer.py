"""A policy that follows a text and a target position: they and the past sensors and actions predict the next action.

    text ids ──────> words + places ─────────────┐
    target [2] ────> encoder ──┐                 v
    sensors [T, S] > encoder ──┼─ + step ──> Decoder ──> features of each step ──> clusters: one head per dimension
    actions [T, 2] > encoder ──┘                                              └──> offsets of each pair of clusters

The model of Salehi and Doncieux (2023, arXiv 2308.13278), an action as a cluster of each dimension and an offset from
their centres after Shafiullah et al. (2022, arXiv 2206.11251). `layout=separate` has one token each for target, sensors
and action of a step, as published, and predicts at the token of the sensors. `merged` adds up all inputs known when an
action is chosen, and needs a third of the tokens. Offsets belong to the clusters of all dimensions together, targets
are not rounded, and the wheels, which depend on each other, may be sampled one after the other
(`dimensions=conditional`).

The limit is the decoder; target and text are encoded once for all steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import log_softmax

from learner.models.sequence.behaviour_config import BehaviourConfig
from learner.models.sequence.cache import Cache
from learner.models.sequence.choice import Choice
from learner.models.sequence.decoder import INITIAL, Decoder
from learner.models.weights import Weights, set_weights
from learner.optim.device import device, read, send
from learner.optim.precision import arithmetic, has_bfloat16

LASER = 100.0
"""The range of the distance sensors, world units."""
AHEAD = 6
"""Numbers of three places ahead."""
HIDDEN = 64
"""Width of the layer before the logits of clusters."""


@dataclass(frozen=True)
class Scales:
    """Divisors of inputs: the model sees numbers in [-1, 1]."""

    world: float = 600.0  # width of the world, the largest coordinate of a target
    sensors: tuple[str, ...] = ("laser", "laser", "laser", "bumper", "bumper")
    """Kinds of sensors: `laser`, `place` (a coordinate of the world), or any other for values in [0, 1]."""


@dataclass(frozen=True)
class Demonstrations:
    """B episodes, one after the other: M tokens of text and N steps in all. Values are in the world's units."""

    tokens: NDArray[np.int64]  # [M]
    texts: list[int]  # tokens of each text, [B]
    target: NDArray[np.float32]  # [B, 2]; nan: not given
    sensors: NDArray[np.float32]  # [N, S], before each action: 5 of the robot, more with odometry
    actions: NDArray[np.float32]  # [N, 2], executed
    steps: list[int]  # of each episode, [B], at least one
    wishes: NDArray[np.float32] | None = None  # [N, 2], what is learned; None: what was executed
    ahead: NDArray[np.float32] | None = None  # [N, 6], three places where the robot will be, if that is known

    @property
    def wished(self) -> NDArray[np.float32]:
        """The actions that are learned, [N, 2]."""
        return self.actions if self.wishes is None else self.wishes


class BehaviourModel(nn.Module):
    """See the top of this file.

    Args:
        config: hyperparameters.
        vocabulary: number of token ids.
        longest: most tokens of a text, most steps of an episode.
        centres: of the clusters of each of the D dimensions of an action, float32 [K_d].
        scales: of the inputs.

    Raises:
        ValueError: invalid sizes, or an arithmetic that this machine lacks.
    """

    centres: Tensor  # [K_0 + ... + K_(D-1)]
    first: Tensor
    target_scale: Tensor
    sensor_scale: Tensor

    def __init__(
        self,
        config: BehaviourConfig,
        vocabulary: int,
        longest: tuple[int, int],
        centres: Sequence[NDArray[np.float32]],
        scales: Scales = Scales(),
    ) -> None:
        super().__init__()
        self.config, self.vocabulary, self.longest = config, vocabulary, longest
        self.device = device(config.device, "method.sequence.model.device")
        able = has_bfloat16() if self.device.type == "cpu" else self.device.type == "cuda"
        self.in_half = config.precision == "bfloat16" or (config.precision == "auto" and able)
        if self.in_half and not able:
            raise ValueError("bfloat16 needs a GPU, or a processor with avx512_bf16 or amx_bf16: choose float32")
        self.clusters = [len(each) for each in centres]
        width, dimensions = config.width, len(centres)
        self.register_buffer("centres", torch.from_numpy(np.concatenate(centres).astype(np.float32)))
        of_kind = {"laser": LASER, "place": scales.world}
        sensor_scales = [of_kind.get(name, 1.0) for name in scales.sensors]
        first = torch.tensor([0, *np.cumsum(self.clusters[:-1]).tolist()])  # of the clusters of each dimension
        self.register_buffer("first", first, persistent=False)
        self.register_buffer("target_scale", torch.tensor([scales.world] * 2))
        self.register_buffer("sensor_scale", torch.tensor(sensor_scales))
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(max(longest[0], config.places), width)
        self.times = nn.Embedding(max(longest[1], config.times), width)
        for table in (self.words, self.places, self.times):
            nn.init.normal_(table.weight, std=INITIAL)
        each = 1 + 2 * config.waves  # numbers per input
        encoder = [2 * width] * config.hidden
        self.encode_target = _perceptron(2 * each, *encoder, width)
        self.encode_sensors = _perceptron(len(sensor_scales) * each, *encoder, width)
        self.encode_action = _perceptron(dimensions, *encoder, width)
        self.drop = nn.Dropout(config.dropout) if config.dropout else nn.Identity()
        self.decoder = Decoder(width, config.layers, config.heads, config.dropout)
        self.heads = nn.ModuleList(_perceptron(width, *[HIDDEN] * config.hidden, k) for k in self.clusters)
        told = self.clusters[:-1] if config.dimensions == "conditional" else []  # given to the later dimensions
        self.given = nn.ModuleList(nn.Embedding(k, width) for k in told)
        offset_layers = [config.offset_width or 2 * width] * config.hidden
        self.offsets = _perceptron(width, *offset_layers, math.prod(self.clusters) * dimensions)
        if config.foresight:
            self.foresee = _perceptron(width, *encoder, AHEAD)
        self.to(self.device)

    @staticmethod
    def of(config: BehaviourConfig, weights: Weights) -> BehaviourModel:
        """A model with these weights, which determine all that its configuration does not.

        Raises:
            ValueError: they belong to another configuration.
        """
        try:
            sizes = [len(weights[name]) for name in ("words.weight", "places.weight", "times.weight")]
            dimensions = weights["encode_action.0.weight"].shape[1]
            output = f"{2 * config.hidden}.bias"
            centres = [np.zeros(len(weights[f"heads.{d}.{output}"]), np.float32) for d in range(dimensions)]
            sensors = Scales(sensors=("",) * len(weights["sensor_scale"]))
        except KeyError as missing:
            raise ValueError(f"these are no weights of a behaviour model: {missing} is not there") from None
        model = BehaviourModel(config, sizes[0], (sizes[1], sizes[2]), centres, sensors)
        set_weights(model, weights, "behaviour model")
        return model

    def payload(self) -> dict[str, Tensor]:
        """The saved arrays by name: parameters, centres and scales."""
        return {name: value.detach() for name, value in self.state_dict().items()}

    def arithmetic(self) -> AbstractContextManager[None]:
        """Context for the model's arithmetic. Open it around many steps, so that weights are converted only once."""
        return arithmetic(self.in_half, self.device.type)

    # ---- learning ------------------------------------------------------------------------------------------------

    def forward(self, shown: Demonstrations) -> Tensor:
        """Features [N, width] of all steps, each from the inputs known before its action."""
        texts = [0] * len(shown.texts) if "text" in self.config.blind_to else shown.texts
        with self.arithmetic():
            words = self._words(shown.tokens[: sum(texts)], texts)
            of_steps, per_step, at = self._steps(shown)
            tokens_of = [n * per_step for n in shown.steps]
            pieces = zip(torch.split(words, texts), torch.split(of_steps, tokens_of), strict=True)
            tokens = torch.cat([part for pair in pieces for part in pair])
            lengths = [text + own for text, own in zip(texts, tokens_of, strict=True)]
            # Step s of episode b is read at: the episode's first token + its text + the tokens of s steps + `at`.
            first = np.cumsum([0, *lengths[:-1]]) + np.array(texts) + at
            wanted = np.repeat(first, shown.steps) + per_step * _counts(shown.steps)
            features: Tensor = self.decoder(self.drop(tokens), lengths, torch.from_numpy(wanted))
            return features.float()

    def loss(self, shown: Demonstrations) -> dict[str, Tensor]:
        """Sums over the N steps: `loss`, its parts `cluster` and `offset`, and `hits`, the steps with all clusters
        right.

        `cluster` is the focal loss (Lin et al. 2017), a mean over dimensions; `offset` is the squared error of the
        action with the true clusters, also a mean over dimensions.
        """
        features, action = self(shown), self._tensor(shown.wished)
        with self.arithmetic():
            truth = self.nearest(action)
            surprise, hits = torch.zeros_like(action[:, 0]), torch.ones_like(action[:, 0], dtype=torch.bool)
            for d, logits in enumerate(self._cluster_logits(features, lambda d, _: truth[:, d])):
                log_probability = log_softmax(logits.float(), -1).gather(1, truth[:, d : d + 1])[:, 0]
                surprise = surprise - (1 - log_probability.exp()) ** self.config.gamma * log_probability
                hits = hits & (logits.argmax(-1) == truth[:, d])
            offset = (self._action(features, truth) - action).square().mean(-1).sum()
            foresees = self.config.foresight > 0 and shown.ahead is not None
            unknown = features.new_full((), math.nan)
            ahead = unknown if shown.ahead is None or not foresees else self._missed(features, shown.ahead)
        cluster = surprise.sum() / len(self.clusters)
        loss = cluster + self.config.offset_weight * offset
        return {
            "loss": loss + self.config.foresight * ahead if foresees else loss,
            "cluster": cluster,
            "offset": offset,
            "ahead": ahead,
            "hits": hits.sum(),
        }

    def _missed(self, features: Tensor, ahead: NDArray[np.float32]) -> Tensor:
        """Sum over steps of the mean absolute error of the places ahead."""
        wanted = self._tensor(ahead) / self.target_scale[0] * 2 - 1
        missed: Tensor = (self.foresee(features).float() - wanted).abs().mean(-1).sum()
        return missed

    def nearest(self, action: Tensor) -> Tensor:
        """The cluster with the nearest centre in each dimension, int64 [N, D]."""
        parts = torch.split(self.centres, self.clusters)
        return torch.stack([(action[:, d, None] - part).abs().argmin(-1) for d, part in enumerate(parts)], -1)

    # ---- acting --------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def begin(self, tokens: Sequence[NDArray[np.integer[Any]]]) -> Cache:
        """Prompts of B texts, each a row of ids."""
        texts = [0 if "text" in self.config.blind_to else len(each) for each in tokens]
        flat = np.concatenate([each[:n] for each, n in zip(tokens, texts, strict=True)])
        with self.arithmetic():
            return self.decoder.begin(self._words(flat, texts), texts)

    @property
    def tokens_per_step(self) -> int:
        """Number of tokens that a step adds to a cache."""
        return 1 if self.config.layout == "merged" else 2 + ("target" not in self.config.blind_to)

    @torch.no_grad()
    def target_code(self, target: NDArray[np.float32]) -> Tensor | None:
        """[B, width] of targets [B, 2] in world units; None if targets are ablated."""
        if "target" in self.config.blind_to:
            return None
        with self.arithmetic():
            return self._encode_target(self._tensor(target))

    @torch.no_grad()
    def act(
        self,
        cache: Cache,
        step: int,
        target: Tensor | None,
        sensors: NDArray[np.float32],
        previous: NDArray[np.float32] | None,
        choice: Choice,
        uniform: NDArray[np.float64],
    ) -> NDArray[np.float32]:
        """Actions [B, D] of B rows. Adds the step to the cache.

        Args:
            step: number in the episode, the same for all.
            target: result of `target_code`, [B, width].
            sensors: current values, [B, S].
            previous: the last action, [B, D]; None at the first step.
            choice: how clusters are chosen, using `uniform` [B, D], a number in [0, 1) per dimension.
        """
        with self.arithmetic():
            now = self.times.weight[step]
            tokens = [] if target is None else [target + now]
            tokens.append(self._encode_sensors(self._tensor(sensors)) + now)
            done = None if previous is None else self.encode_action(self._tensor(previous))
            if self.config.layout == "merged":
                parts = [target, done, tokens[-1]]
                tokens = [sum((part for part in parts[:-1] if part is not None), tokens[-1])]
            elif done is not None:
                tokens.insert(0, done + self.times.weight[step - 1])
            features = self.decoder.extend(torch.stack(tokens, 1), cache).float()
            return self.choose(features, choice, uniform)

    @torch.no_grad()
    def choose(self, features: Tensor, choice: Choice, uniform: NDArray[np.float64]) -> NDArray[np.float32]:
        """Actions [B, D] of features [B, width]; [2 B, width], the second half without texts, if the choice is guided.

        Offsets are those with texts.
        """
        drawn = send({"drawn": uniform}, self.device)["drawn"]
        clusters: list[Tensor] = []

        def note(d: int, logits: Tensor) -> Tensor:
            logits = choice.guide(logits.float()) if choice.guided else logits.float()
            clusters.append(choice(logits, drawn[:, d]))
            return clusters[-1].repeat(2) if choice.guided else clusters[-1]

        with self.arithmetic():
            self._cluster_logits(features, note)
            return np.array(read(self._action(features[: len(drawn)], torch.stack(clusters, -1)).float()))

    # ---- parts ---------------------------------------------------------------------------------------------------

    def _words(self, tokens: NDArray[Any], texts: Sequence[int]) -> Tensor:
        there = send({"tokens": tokens.astype(np.int64), "places": _counts(texts)}, self.device)
        found: Tensor = self.words(there["tokens"]) + self.places(there["places"])
        return found

    def _steps(self, shown: Demonstrations) -> tuple[Tensor, int, int]:
        """Tokens of N steps [N * p, width], the number per step p, and the token of a step that predicts its action."""
        episode = np.repeat(np.arange(len(shown.steps)), shown.steps)
        columns: dict[str, NDArray[Any]] = {name: getattr(shown, name) for name in ("target", "sensors", "actions")}
        there = send(columns | {"now": _counts(shown.steps), "episode": episode}, self.device)
        times = self.times(there["now"])
        sensors, done = self._encode_sensors(there["sensors"]), self.encode_action(there["actions"])
        parts = [sensors]
        if "target" not in self.config.blind_to:
            parts.insert(0, self._encode_target(there["target"]).index_select(0, there["episode"]))
        if self.config.layout == "separate":
            return (
                torch.stack([part + times for part in [*parts, done]], 1).flatten(0, 1),
                len(parts) + 1,
                len(parts) - 1,
            )
        before = torch.cat([torch.zeros_like(done[:1]), done[:-1]])
        before = before * (there["now"] > 0)[:, None]
        return sum([*parts, before], times), 1, 0

    def _encode_target(self, target: Tensor) -> Tensor:
        """[B, width] of targets [B, 2], zeros for one that is not given."""
        told = ~target.isnan()
        code: Tensor = self.encode_target(self._told(target.nan_to_num() / self.target_scale))
        return code * told.all(-1, keepdim=True)

    def _encode_sensors(self, sensors: Tensor) -> Tensor:
        code: Tensor = self.encode_sensors(self._told(sensors / self.sensor_scale))
        return code

    def _told(self, numbers: Tensor) -> Tensor:
        """Network inputs [N, S * (1 + 2 * waves)] in [-1, 1] of numbers [N, S] in [0, 1]."""
        plain = numbers * 2 - 1
        angles = [plain * math.pi * 2**k for k in range(self.config.waves)]
        return torch.cat([plain, *(turn(angle) for angle in angles for turn in (torch.sin, torch.cos))], -1)

    def _cluster_logits(self, features: Tensor, choose: Callable[[int, Tensor], Tensor]) -> list[Tensor]:
        """Logits [N, K_d] of each dimension; later dimensions may depend on the choices in earlier ones."""
        found = []
        for d, head in enumerate(self.heads):
            found.append(head(features))
            chosen = choose(d, found[-1])
            if d < len(self.given):
                features = features + self.given[d](chosen)
        return found

    def _action(self, features: Tensor, clusters: Tensor) -> Tensor:
        """Centre and offset [N, D] of clusters int64 [N, D]."""
        joint = torch.zeros_like(clusters[:, 0])
        for d, k in enumerate(self.clusters):
            joint = joint * k + clusters[:, d]
        offsets = self.offsets(features).view(len(joint), -1, len(self.clusters))
        own = offsets[torch.arange(len(joint), device=joint.device), joint].float()
        action: Tensor = self.centres[clusters + self.first] + own
        return action

    def _tensor(self, numbers: NDArray[np.float32]) -> Tensor:
        return send({"numbers": np.ascontiguousarray(numbers, np.float32)}, self.device)["numbers"]


def _counts(lengths: Sequence[int]) -> NDArray[np.int64]:
    """0, 1, ..., length - 1 for each length in turn."""
    return np.concatenate([np.zeros(0, np.int64), *(np.arange(n, dtype=np.int64) for n in lengths)])


def _perceptron(*widths: int) -> nn.Sequential:
    """Linear layers between consecutive widths, with GELU between two of them."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.GELU()] * bool(layers) + [nn.Linear(inputs, outputs)]
    return nn.Sequential(*layers)
