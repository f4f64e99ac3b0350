"""Learning in context: what tells the arms of a comparison apart, and the options of each stage.

Nothing here imports PyTorch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from envs.config import Part
from learner.config import Autocast
from learner.parts import FitConfig
from learner.store.ranking import TERMS

Count = Annotated[int, Field(ge=1)]
Looks = Literal["nowhere", "nearest", "same_task", "uniform", "best"]
ArmName = Literal["radt", "dt", "ad", "dpt", "uniform", "same_task", "oracle_chunk"]


@dataclass(frozen=True)
class Arm:
    """What sets one arm apart. Data, sampler, batch, number of steps and sizes are the same for all."""

    conditioned: bool  # whether the return to go is told
    looks: Looks = "nowhere"  # at which chunk of another episode: the nearest of the task, any of it, any of all,
    # or any of the task's best, which in trials are its planner's
    episodes: int = 1  # of a sequence: with 2, an earlier one of the task comes before the one that is lived
    alone: bool = False  # a step is told what is observed and nothing that was before: no other step, action or reward
    whole: bool = False  # what is looked at are whole episodes; in trials, the newest one
    best: bool = False  # of a task's episodes only the best are learned


ARMS: Mapping[str, Arm] = {
    "radt": Arm(True, "nearest"),
    "dt": Arm(True),
    "ad": Arm(False, episodes=2),
    "dpt": Arm(False, "same_task", alone=True, whole=True, best=True),
    "uniform": Arm(True, "uniform"),
    "same_task": Arm(True, "same_task"),
    "oracle_chunk": Arm(True, "best"),
}
BEST = 0.1
"""Share of a task's episodes, the last ones, that are its best: there its learner has learned."""
ENCODER = "encoder"
"""The stage that fits what keys are made by."""


ENCODED = Arm(conditioned=False)
"""What makes keys: it looks nowhere, and is told no return. A query knows what is wanted and a key what was paid, which
are far apart while acting: told these, no query would find what is like it."""


def arm_of(name: ArmName, stage: str) -> Arm:
    """What a stage fits, in a run of an arm: the arm itself, but for the encoder."""
    return ENCODED if stage == ENCODER else ARMS[name]


def _known(terms: dict[str, float]) -> dict[str, float]:
    if unknown := terms.keys() - TERMS.keys():
        raise ValueError(f"there is no term {min(unknown)!r}: choose from {', '.join(TERMS)}")
    return terms


Terms = Annotated[dict[str, float], AfterValidator(_known)]


class SequenceConfig(FitConfig):
    """A transformer of whole episodes, and how it is fitted to learning histories. Of `learner`, only `n`, `threads`
    and `timeout_s` count here."""

    width: Count = 96
    """Numbers of a token; a step is one token."""
    layers: Count = 3
    """Blocks of attention and perceptron."""
    heads: Count = 4
    """Of attention; they divide the width."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of what a block adds that is dropped in training."""
    attention: Literal["band", "window"] = "band"
    """`band`: a step attends to the last steps, each of which looks at the chunk that was found when it was lived. So
    acting computes one step, and keeps keys and values. `window`: as published, the last steps are computed anew at
    each step, are told their places in the episode, and all look at what the newest one found."""
    band: Count = 25
    """Steps that a step attends to, itself among them. Arm `ad` attends to two whole episodes instead, `dpt` to one
    step."""
    bins: int = Field(default=100, ge=2)
    """Into how many numbers returns to go are told apart, from 0 to the largest of the histories."""
    reward_scale: float = Field(default=1.0, gt=0)
    """What rewards are divided by before the model is told of them: 200 in Meta-World and 100 in the DeepMind Control
    Suite, as published. Returns need none: they are told in `bins` up to the largest."""
    skip: Count = 100
    """Arm `ad`: how many episodes of its task an episode comes after the one that is its context. Those that have none
    are learned alone."""
    steps: int = Field(default=3000, ge=1)
    """Gradient steps."""
    batch: int = Field(default=128, ge=1)
    """Episodes that a gradient step learns from, over all ranks; a loss is a mean over all their steps."""
    tokens: int = Field(default=8192, ge=1)
    """Steps of episodes, or one episode, that are computed at once; gradients of a batch add up."""
    weight_decay: float = Field(default=0.01, ge=0)
    """Share of their size, times the step size, that matrices lose in each step; biases and other vectors do not."""
    validation: float = Field(default=0.02, ge=0, lt=1)
    """Share of episodes that are not learned from but looked at; which, a hash of task and number says."""
    autocast: Autocast = "none"
    """Arithmetic while it is fitted: float32, or bfloat16 (`auto`: where the processor has it). Keys, and what acts,
    are computed in float32."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """`auto`: a GPU if there is one."""

    @property
    def encoding(self) -> SequenceConfig:
        """Of what makes keys, which computes each step once."""
        return self.model_copy(update={"attention": "band"})

    @model_validator(mode="after")
    def _heads_divide_the_width(self) -> SequenceConfig:
        if self.width % self.heads:
            raise ValueError(f"a width of {self.width} cannot be divided among {self.heads} heads: choose a multiple")
        return self


READABLE = 512
"""Steps that the language model of `hopfield` can read."""


class RetrieveConfig(Part):
    """Chunks of other episodes: which there are, and which of them a step looks at. In training all episodes of the
    histories are there, in trials those that the task has had."""

    every: Count = 25
    """Steps between two chunks of an episode, and between two queries; a chunk is looked at until the next query."""
    past: int = Field(default=25, ge=0)
    """Steps of a chunk before the one that its key is of."""
    future: Count = 25
    """Steps of a chunk from that one on."""
    pool: Count = 25
    """A key is the mean of what the encoder makes of the last so many steps, and so is a query."""
    encoder: Literal["fitted", "hopfield", "random"] = "fitted"
    """What makes keys and queries: `fitted`, the transformer of the stage `encoder`; and two that are fitted to
    nothing: `hopfield`, a small language model that reads steps as if they were words; `random`, a random projection of
    what was seen and done."""
    told: bool = False
    """`hopfield` and `random`: whether the return to go is among what a key or query is made of, in
    `method.sequence.bins`."""
    beta: float = Field(default=10.0, gt=0)
    """`hopfield`: how much nearer to its nearest words a step becomes; 0 would make all steps one."""
    projection: int = Field(default=0, ge=0)
    """`hopfield` and `random`: seed of the projection, whatever that of the run."""
    nearest: Count = 50
    """Entries that are found by similarity, of which the terms choose one."""
    at_most: float = Field(default=0.98, gt=0)
    """Training: entries with a larger cosine are left out, a copy of the query teaches nothing."""
    minimum: int = Field(default=10, ge=0)
    """Training: a query of fewer steps says too little of its task, and is given any chunk of it."""
    nothing: float = Field(default=0.1, ge=0, lt=1)
    """Training: share of episodes that look at nothing, as in the first trial of a task."""
    terms: Terms = Field(default={})
    """Training: weights of the score, see docs/retrieval.md; empty: similarity 1. Only chunks of the query's own task
    are searched."""

    @model_validator(mode="after")
    def _windows_can_be_read(self) -> RetrieveConfig:
        if self.encoder == "hopfield" and self.pool > READABLE:
            raise ValueError(f"encoder=hopfield reads {READABLE} steps at most, not pool={self.pool}: choose fewer")
        return self

    @property
    def frozen(self) -> bool:
        """Whether what makes keys needs no weights of its own."""
        return self.encoder != "fitted"

    def whole(self, steps: int) -> RetrieveConfig:
        """The same, but for chunks that are whole episodes, of at most so many steps, and a query as each begins."""
        return self.model_copy(update={"every": 2**31, "past": 0, "future": steps})

    @property
    def chunk(self) -> int:
        """Most steps of a chunk."""
        return self.past + self.future

    @property
    def weights(self) -> dict[str, float]:
        """Of the score."""
        return self.terms or {"similarity": 1.0}


SPLITS = ("held_out", "training")
"""Names of tasks to be tried that are no split of a world's own."""


def options_of(options: dict[str, Any], split: str) -> dict[str, Any]:
    """Options of a world whose tasks are those that `TrialsConfig.split` names."""
    return options if split in SPLITS else options | {"split": split}


class TrialsConfig(Part):
    """Unseen tasks, played again and again without a change of weights."""

    trials: Count = 40
    """Episodes of each task."""
    seeds: Count = 3
    """How often all tasks are played, each time by other chance."""
    split: str = "held_out"
    """Which tasks: `held_out`, those that no training seed names, or all, where the world holds none out; `training`,
    those whose histories were learned from; or another value of `env.split`, such as `published` for a transformer that
    was fitted with `published_train`: the tasks of that split."""
    together: Annotated[int, Field(ge=1, le=100_000)] = 64
    """Rows, each of a seed and a task, that an actor plays side by side, in whole seeds. It shows in the last bits of
    what is computed alone."""
    target: float = 0.0
    """Mean of the return that is asked for; 0: the largest of the histories."""
    deviation: float = Field(default=0.0, ge=0)
    """Standard deviation of it over episodes."""
    within_reach: bool = True
    """Whether it is never told that more is wanted than the best episode of the histories was still paid from the same
    step on. What was never seen is never asked for: who has found nothing yet goes on searching."""
    temperature: float = Field(default=1.0, ge=0)
    """Of the softmax over actions; 0: the most probable one."""
    noise: float = Field(default=0.1, ge=0)
    """Where actions are vectors: standard deviation of the Gaussian noise that is added to each number, in halves of
    its range; `temperature` 0: none is. What leaves the bounds is clipped."""
    keep: float = Field(default=0.5, gt=0, le=1)
    """Actions are drawn from those whose logits are at or above the quantile 1 - `keep` of all: 0.5 leaves out those
    below the median, 1 none."""
    memory: Literal["own", "others", "none"] = "own"
    """Where an arm that retrieves looks: in what its own row has lived. The controls: `others`, in what the next task's
    row has lived, which must not help; `none`, nowhere."""
    newest: int = Field(default=0, ge=0)
    """Entries of each memory that stay, the newest ones; 0: all."""
    terms: Terms = Field(default={})
    """Weights of the score of what is found, see docs/retrieval.md; empty: similarity 1, return 1."""

    @property
    def weights(self) -> dict[str, float]:
        """Of the score."""
        return self.terms or {"similarity": 1.0, "return": 1.0}
