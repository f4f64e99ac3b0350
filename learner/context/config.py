"""Learning in context: the differences between the arms of a comparison, and the options of each stage.

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
    """The properties of one arm. Data, sampler, batch, number of steps and sizes are the same for all."""

    conditioned: bool  # whether the model gets the return to go
    looks: Looks = "nowhere"  # at which chunk of another episode: the nearest of the task, any of it, any of all,
    # or any of the task's best, which in trials are its planner's
    episodes: int = 1  # of a sequence: with 2, an earlier episode of the task comes before the current one
    alone: bool = False  # a step gets only its observation, and no earlier step, action or reward
    whole: bool = False  # chunks are whole episodes; in trials, the newest one
    best: bool = False  # only a task's best episodes are learned from


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
"""Share of a task's last episodes that count as its best, because its learner has learned by then."""
ENCODER = "encoder"
"""The stage that fits the encoder of keys."""


ENCODED = Arm(conditioned=False)
"""The encoder of keys: it retrieves nothing and gets no return. A query would contain the target and a key the actual
return, which are far apart while acting, so no query would find similar keys."""


def arm_of(name: ArmName, stage: str) -> Arm:
    """The arm that a stage fits, in a run of an arm: the arm itself, except for the encoder."""
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
    """Width of a token; a step is one token."""
    layers: Count = 3
    """Blocks of attention and perceptron."""
    heads: Count = 4
    """Attention heads; they must divide the width."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout rate of a block's output in training."""
    attention: Literal["band", "window"] = "band"
    """`band`: a step attends to the last steps, each of which uses the chunk that was found at its own time. So acting
    computes one step, and caches keys and values. `window`: as published, the last steps are recomputed at each step,
    get their positions in the episode, and all use what the newest one found."""
    band: Count = 25
    """Number of steps that a step attends to, including itself. Arm `ad` attends to two whole episodes instead, `dpt`
    to one step."""
    bins: int = Field(default=100, ge=2)
    """Number of bins for returns to go, from 0 to the largest in the histories."""
    reward_scale: float = Field(default=1.0, gt=0)
    """Divisor of rewards in the model's input: 200 in Meta-World and 100 in the DeepMind Control Suite, as published.
    Returns need none: they are given in `bins` up to the largest."""
    skip: Count = 100
    """Arm `ad`: how many episodes of its task an episode comes after its context. Episodes without a context are
    learned alone."""
    steps: int = Field(default=3000, ge=1)
    """Gradient steps."""
    batch: int = Field(default=128, ge=1)
    """Episodes per gradient step, over all ranks; a loss is a mean over all their steps."""
    tokens: int = Field(default=8192, ge=1)
    """Steps of episodes, at least one episode, that are computed at once; gradients of a batch are summed."""
    weight_decay: float = Field(default=0.01, ge=0)
    """Weight decay of matrices, times the step size; biases and other vectors have none."""
    validation: float = Field(default=0.02, ge=0, lt=1)
    """Share of validation episodes; a hash of task and number selects them."""
    autocast: Autocast = "none"
    """Arithmetic while fitting: float32, or bfloat16 (`auto`: if the processor has it). Keys and acting use float32."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """`auto`: a GPU if there is one."""

    @property
    def encoding(self) -> SequenceConfig:
        """The shape of the encoder of keys, which computes each step once."""
        return self.model_copy(update={"attention": "band"})

    @model_validator(mode="after")
    def _heads_divide_the_width(self) -> SequenceConfig:
        if self.width % self.heads:
            raise ValueError(f"a width of {self.width} cannot be divided among {self.heads} heads: choose a multiple")
        return self


READABLE = 512
"""Steps that the language model of `hopfield` can read."""


class RetrieveConfig(Part):
    """Chunks of other episodes: which exist, and which of them a step uses. In training these are from all episodes of
    the histories, in trials from the task's own earlier episodes."""

    every: Count = 25
    """Steps between two chunks of an episode, and between two queries; a chunk is used until the next query."""
    past: int = Field(default=25, ge=0)
    """Steps of a chunk before the step of its key."""
    future: Count = 25
    """Steps of a chunk from the step of its key on."""
    pool: Count = 25
    """Number of last steps over which the encoder's outputs are averaged for a key or query."""
    encoder: Literal["fitted", "hopfield", "random"] = "fitted"
    """The encoder of keys and queries: `fitted`, the transformer of the stage `encoder`; and two that are not trained:
    `hopfield`, a small language model that reads steps as if they were words; `random`, a random projection of
    observations and actions."""
    told: bool = False
    """`hopfield` and `random`: whether keys and queries include the return to go, in `method.sequence.bins`."""
    beta: float = Field(default=10.0, gt=0)
    """`hopfield`: how far a step moves towards its nearest words; with 0 all steps would be equal."""
    projection: int = Field(default=0, ge=0)
    """`hopfield` and `random`: seed of the projection, independent of the run's seed."""
    nearest: Count = 50
    """Number of entries found by similarity; the terms select one of them."""
    at_most: float = Field(default=0.98, gt=0)
    """Training: entries with a larger cosine are left out, because a copy of the query teaches nothing."""
    minimum: int = Field(default=10, ge=0)
    """Training: a query of fewer steps says too little about its task, and gets a random chunk of it."""
    nothing: float = Field(default=0.1, ge=0, lt=1)
    """Training: share of episodes without retrieval, as in the first trial of a task."""
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
        """Whether the encoder needs no weights of its own."""
        return self.encoder != "fitted"

    def whole(self, steps: int) -> RetrieveConfig:
        """The same for chunks that are whole episodes of at most this many steps, with a query at the start of each."""
        return self.model_copy(update={"every": 2**31, "past": 0, "future": steps})

    @property
    def chunk(self) -> int:
        """Maximum steps of a chunk."""
        return self.past + self.future

    @property
    def weights(self) -> dict[str, float]:
        """Of the score."""
        return self.terms or {"similarity": 1.0}


SPLITS = ("held_out", "training")
"""Names of task sets that are not a split of the environment."""


def options_of(options: dict[str, Any], split: str) -> dict[str, Any]:
    """Options of an environment with the tasks that `TrialsConfig.split` names."""
    return options if split in SPLITS else options | {"split": split}


class TrialsConfig(Part):
    """Unseen tasks, played repeatedly with fixed weights."""

    trials: Count = 40
    """Episodes of each task."""
    seeds: Count = 3
    """How often all tasks are played, each time with other random numbers."""
    split: str = "held_out"
    """Which tasks: `held_out`, tasks of no training seed, or all, if the environment holds none out; `training`, tasks
    whose histories were learned from; or another value of `env.split`, such as `published` for a transformer that was
    fitted with `published_train`: the tasks of that split."""
    together: Annotated[int, Field(ge=1, le=100_000)] = 64
    """Rows, each of a seed and a task, that an actor plays at once, in whole seeds. It affects only the last bits of
    results."""
    target: float = 0.0
    """Mean of the target return; 0: the largest in the histories."""
    deviation: float = Field(default=0.0, ge=0)
    """Standard deviation of the target return over episodes."""
    within_reach: bool = True
    """Whether the target is limited to what the best episode of the histories still got from the same step on. So a
    target is never larger than anything seen, and a player that has found nothing yet keeps searching."""
    temperature: float = Field(default=1.0, ge=0)
    """Temperature of the softmax over actions; 0: the most probable action."""
    noise: float = Field(default=0.1, ge=0)
    """For vector actions: standard deviation of the Gaussian noise on each number, in halves of its range; none with
    `temperature` 0. Actions are clipped to the bounds."""
    keep: float = Field(default=0.5, gt=0, le=1)
    """Actions are sampled from those with logits at or above the quantile 1 - `keep` of all: 0.5 leaves out those below
    the median, 1 none."""
    memory: Literal["own", "others", "none"] = "own"
    """The memory of an arm that retrieves: `own`, its own row's experience. Controls: `others`, the next task's row,
    which must not help; `none`, no memory."""
    newest: int = Field(default=0, ge=0)
    """Number of newest entries to keep in each memory; 0: all."""
    terms: Terms = Field(default={})
    """Weights of the score of found entries, see docs/retrieval.md; empty: similarity 1, return 1."""

    @property
    def weights(self) -> dict[str, float]:
        """Of the score."""
        return self.terms or {"similarity": 1.0, "return": 1.0}
