"""Reward terms: rewards that the learner itself gives for a step, in the column `intrinsic`. One module each, found by
name.

A module publishes

    TERM = TheClass                 a subclass of `RewardTerm`, below

`method.intrinsic.name=NAME` chooses the module; nothing else names it. A term's own options are further keys of
`method.intrinsic`. Algorithms do not know terms: they call `learner.intrinsic.Intrinsic`, which marks every chunk on
arrival, and computes the term's rewards whenever steps are used for learning. With a replay, that is each time a step
is sampled, because novelty changes during training.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field as Option

from envs.api import Chunk, Field
from envs.config import Part
from learner.curiosity.steps import Steps
from learner.options import WithOptions
from learner.room import Room

if TYPE_CHECKING:
    from learner.checkpoint import Arrays
    from learner.optim.collective import Group

NONE = "none"
"""The name that selects no term."""


class IntrinsicConfig(WithOptions):
    """Reward for novelty, which the learner computes from the observations and adds to the other reward columns by
    their weights (`learner.reward_weights`). Besides the fields here, it has the options of every term, each declared
    in its module."""

    name: str = NONE
    """`none`, or a module of `learner/rewards`. `rnd`: how badly a network predicts a random one (Burda et al. 2019).
    `noveld`: how much worse that prediction is after a step than before it (Zhang et al. 2021). `apt`: how far a state
    is from its neighbours (Liu & Abbeel 2021)."""
    scale: float = 1.0
    """Factor of the reward."""
    reads: list[str] = Option(default=[])
    """Observation fields to use, out of those that the policy reads; empty: all except the goals that it is given."""
    language: Literal["both", "none", "only"] = "both"
    """`both`: texts and the other fields, each with their own networks. `none`: without texts. `only`: texts alone."""
    language_weight: float = 0.5
    """Factor of the texts' reward before it is added to that of the other fields (published: 0.5, `apt` 1)."""
    hidden: int = 512
    """Width of the networks; the wide layers of `apt` have twice as many."""
    learning_rate: float = 1e-4
    """Adam step size."""

    @classmethod
    def modules(cls) -> list[type[Part]]:
        return parts()


@dataclass(frozen=True)
class RewardSetup:
    """The arguments from which one rank's term is built."""

    config: IntrinsicConfig
    views: Sequence[tuple[dict[str, Field], float]]  # groups of fields, and the weight of each group's reward
    actions: int  # of the world
    words: Sequence[str] | None  # the vocabulary for encoding texts; None: MiniLM encodes them
    minibatch: int  # walks of a gradient step, on this rank
    group: Group
    seed: int  # root of weights and shuffles
    device: str = "cpu"  # device of the networks

    @property
    def fields(self) -> list[str]:
        """Names of all fields that are used."""
        return [name for view, _ in self.views for name in view]


class RewardTerm(ABC):
    """One rank's term. Every rank calls `pay` and `update` equally often, with equally many walks.

    A batch is `Steps`, not PPO's `Batch` or DQN's `Sample`: walks of one step from chunks, or of n steps from a replay.
    So one implementation of a term works for both.
    """

    Config: ClassVar[type[Part]] = Part
    """Its own options; none by default."""

    @classmethod  # noqa: B027 - most have nothing to refuse
    def check(cls, config: IntrinsicConfig, found: int) -> None:
        """Raise ValueError with the reason if the term cannot be used when a rank processes `found` steps at once."""

    @abstractmethod
    def __init__(self, setup: RewardSetup) -> None: ...

    def mark(self, chunk: Chunk) -> NDArray[np.float32] | None:
        """The share, 0 to 1, of its reward that each step of a chunk receives, float32 [T, N]; None: all of it.

        Called once for each chunk on arrival, in order for each actor, and stored with the step. Use it for quantities
        that depend on the episode so far, which are unknown for a step that is sampled from a replay.
        """
        return None

    @abstractmethod
    def pay(self, steps: Steps) -> NDArray[np.float32]:
        """Rewards float32 [S] of the steps that were taken (`steps.taken`), with the networks as they are now."""

    @abstractmethod
    def update(self, steps: Steps) -> float:
        """Learn from the steps that were just paid; returns the loss, for the report.

        Called right after `pay` with the same steps, so that their inputs need not be computed twice.
        """

    @abstractmethod
    def state(self) -> Arrays:
        """The checkpoint's contents; equal on all ranks."""

    def rank_state(self) -> Arrays:
        """The checkpoint's contents for this rank alone."""
        return {}

    @abstractmethod
    def restore(self, state: Arrays, own: Arrays) -> None:
        """Continue from both, bit for bit. `own` may also contain other parts' arrays of this rank, or be empty.

        Raises:
            ValueError: they belong to another term.
        """


TERMS = Room[type[RewardTerm]](__name__, "TERM")
names, term = TERMS.names, TERMS.get


def parts() -> list[type[Part]]:
    """The option classes of all terms, each once."""
    return list(dict.fromkeys(part for name in names() if (part := term(name).Config) is not Part))
