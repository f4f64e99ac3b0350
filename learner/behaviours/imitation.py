"""Fitting a sequence model to recorded episodes: behavioural cloning given a text and a target, one rank of it.

    Sequences, a text of each ──> loss; batches, pieces and gradients as `learner/optim/sequences.py` says

If an episode has several texts, one is sampled each time.

The limit is the decoder's arithmetic (`learner/models/sequence/decoder.py`); reading takes some microseconds a step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from envs.config import Part
from learner.behaviours.demonstrations import Sequences, Texts
from learner.config import LearnerConfig
from learner.models.sequence.behaviour_config import BehaviourConfig
from learner.models.sequence.behaviour_transformer import BehaviourModel, Scales
from learner.optim.adam import DecayingAdam
from learner.optim.collective import Group
from learner.optim.sequences import VALIDATED, SequenceSupervised
from learner.parts import step_size
from learner.store.episodes import EpisodeStore
from llm_service.errors import UsageError


class SequenceConfig(Part):
    """A sequence model learns from recorded episodes. Of `learner`, only `n`, `threads` and `timeout_s` count here."""

    model: BehaviourConfig = BehaviourConfig()
    """The model."""
    clusters: list[int] = Field(default=[4, 4])
    """Number of cluster centres for each dimension of an action."""
    stride: int = Field(default=10, ge=1)
    """Env steps for which an action is held; a step of a sequence stands for as many. 1 as published."""
    odometry: bool = False
    """Robots also sense where they and the target should be, estimated from wheels and bumpers; published: no."""
    particles: int = Field(default=0, ge=0)
    """Possible poses by which each robot corrects its odometry with lasers and the house's plan; 0: it does not. Needs
    `odometry` and `method.drive.times`."""
    blur: float = Field(default=0.0, ge=0, le=0.5)
    """Mean share of a text's words that are dropped or made unknown, chosen anew each time: names then matter, not
    grammar."""
    forget: float = Field(default=0.0, ge=0, lt=1)
    """Share of sequences that are learned without their target: the model must then read in the text where to go."""
    hush: float = Field(default=0.0, ge=0, lt=1)
    """Share of sequences that are learned with an empty text, which `method.deploy.guidance` compares with."""
    steps: int = Field(default=3000, ge=1)
    """Gradient steps."""
    batch: int = Field(default=32, ge=1)
    """Sequences per gradient step, over all ranks."""
    tokens: int = Field(default=8192, ge=1)
    """Maximum tokens that are computed at once, at least one sequence; gradients of a batch are summed."""
    learning_rate: float = Field(default=1e-3, gt=0)
    """Largest step size of AdamW."""
    least_rate: float = Field(default=1e-5, ge=0)
    """The step size at the end."""
    warmup: int = Field(default=100, ge=0)
    """Gradient steps over which the step size rises from 0; then it falls to `least_rate` along a cosine."""
    betas: list[float] = Field(default=[0.9, 0.95], min_length=2, max_length=2)
    """AdamW's decay rates per step for the means of gradients and of their squares."""
    weight_decay: float = Field(default=0.1, ge=0)
    """Weight decay of matrices, times the step size; biases and other vectors have none."""
    gradient_clip: float = Field(default=1.0, gt=0)
    """Largest global norm of a gradient."""
    every: int = Field(default=200, ge=1)
    """Gradient steps between two validations, and between two rows of metrics."""

    def step_size(self, step: int) -> float:
        """AdamW's step size for step 0, 1, ..., `steps` - 1."""
        return step_size(step, self.steps, self.learning_rate, self.warmup, self.least_rate)


@dataclass(frozen=True)
class SequenceSetup:
    """Everything that a rank needs to build itself again."""

    config: SequenceConfig
    learner: LearnerConfig
    seed: int
    store: Path
    episodes: NDArray[np.int64]  # [E], of the store
    texts: Texts  # alternatives for each, as token ids
    target: NDArray[np.float32]  # [E, 2], world units
    held_out: NDArray[np.bool_]  # [E], not learned from
    vocabulary: int  # token ids
    centres: tuple[NDArray[np.float32], ...]  # of each dimension of an action, [K_d]
    scales: Scales = field(default_factory=Scales)
    odometry: tuple[float, float, float] | None = None  # the start pose that robots assume, if they have odometry
    longest: tuple[int, int] = (0, 0)  # minimum tokens of a text, and steps, that the model supports
    exact: bool = False  # equal inputs give equal bits, on a GPU too


class SequenceFitter(SequenceSupervised):
    """One rank. Its accuracy is the share of steps in which every recorded cluster was the most probable one.

    Raises:
        UsageError: the training data does not fit together.
        ValueError: the model cannot be built.
    """

    RATE: ClassVar[str] = "method.sequence.learning_rate"
    WHAT: ClassVar[str] = "behaviour model"
    PARTS: ClassVar[Sequence[str]] = ("cluster", "offset", "ahead")
    model: BehaviourModel

    def __init__(self, setup: SequenceSetup, rank: int = 0, address: str | None = None) -> None:
        torch.set_num_threads(setup.learner.threads)
        guided = "target" not in setup.config.model.blind_to
        given = (setup.episodes, setup.texts, setup.target, setup.config.stride, setup.odometry, guided)
        self.data = Sequences(EpisodeStore(setup.store), *given)
        if setup.held_out.all():
            raise UsageError(f"{setup.store}: no episode is left to learn from: hold out fewer")
        if [len(each) for each in setup.centres] != setup.config.clusters:
            counts = [len(each) for each in setup.centres]
            raise UsageError(f"there are centres for {counts} clusters, and {setup.config.clusters} were asked for")
        largest = max(int(text.max()) for own in setup.texts for text in own)
        if largest >= setup.vocabulary:
            raise UsageError(f"a text holds token {largest}, but the vocabulary has only {setup.vocabulary}")
        torch.manual_seed(setup.seed)
        longest = tuple(max(pair) for pair in zip(self.data.longest, setup.longest, strict=True))
        model = BehaviourModel(
            setup.config.model, setup.vocabulary, (longest[0], longest[1]), setup.centres, setup.scales
        )
        self.setup, self.seed, group = setup, setup.seed, Group(rank, setup.learner.n, address)
        optimiser = partial(DecayingAdam, betas=setup.config.betas)
        super().__init__(
            setup.config, group, model, setup.held_out, VALIDATED, [setup.seed, 0], optimiser, exact=setup.exact
        )

    def ready(self) -> dict[str, int]:
        """Counts of the training data, once the rank is built."""
        training, validation = (int(self.data.steps[rows].sum()) for rows in (self.training, self.validation))
        found = {"episodes": len(self.data), "steps": training, "validation_steps": validation}
        return found | {"bytes": self.parameters.nbytes}

    def steps_of(self, rows: NDArray[np.int64], uniform: NDArray[np.float64] | None) -> NDArray[np.int64]:
        return self.data.steps[rows]

    def cost_of(self, rows: NDArray[np.int64], uniform: NDArray[np.float64] | None) -> NDArray[np.int64]:
        return self.data.steps[rows] * self.model.tokens_per_step + self.data.longest[0]

    def losses(self, rows: NDArray[np.int64], uniform: NDArray[np.float64] | None) -> Mapping[str, Tensor]:
        """Besides the loss its parts: `cluster`, `offset`, an action's squared error in world units, and `ahead`."""
        if uniform is None:
            return self.model.loss(self.data.read(rows))
        hidden = self.setup.config.blur, self.setup.config.forget, self.setup.config.hush
        return self.model.loss(self.data.read(rows, uniform[:, 0], *hidden))
