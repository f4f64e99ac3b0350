"""Reward terms: what the learner itself pays for a step, in the column `intrinsic`. One module each, found by name.

A module publishes

    TERM = TheClass                 a subclass of `RewardTerm`, below

`method.intrinsic.name=NAME` chooses the module; nothing else names it. Options of a term's own are further keys of
`method.intrinsic`. Algorithms do not know terms: they call `learner.intrinsic.Intrinsic`, which marks every chunk as it
comes, and asks the term for rewards whenever steps are learned from. Of a replay that is each time that they are drawn:
what is new changes while the learner learns.
"""

from __future__ import annotations

import importlib
import pkgutil
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

if TYPE_CHECKING:
    from learner.checkpoint import Arrays
    from learner.optim.collective import Group

NONE = "none"
"""The name of no term."""


class IntrinsicConfig(WithOptions):
    """Reward for what is new, made by the learner of the observations themselves, and summed with the other columns of
    rewards by their weights (`learner.reward_weights`). Beside the fields here it has the options of every term, each
    declared in its module."""

    name: str = NONE
    """`none`, or a module of `learner/rewards`. `rnd`: how badly a network repeats a random one (Burda et al. 2019).
    `noveld`: how much more badly after a step than before it (Zhang et al. 2021). `apt`: how far from its neighbours a
    state is (Liu & Abbeel 2021)."""
    scale: float = 1.0
    """The reward is multiplied by this."""
    reads: list[str] = Option(default=[])
    """Observation fields that are judged, of those that the policy reads; empty means all but the goals it is told."""
    language: Literal["both", "none", "only"] = "both"
    """`both`: texts are judged as well as the rest, by networks of their own. `none` leaves the texts out, `only` the
    rest."""
    language_weight: float = 0.5
    """What texts earn is multiplied by this before the sum with what the rest earns (published: 0.5, `apt` 1)."""
    hidden: int = 512
    """Width of the networks; where `apt` widens, it is twice this."""
    learning_rate: float = 1e-4
    """Adam step size."""

    @classmethod
    def modules(cls) -> list[type[Part]]:
        return parts()


@dataclass(frozen=True)
class RewardSetup:
    """What one rank's term is built of."""

    config: IntrinsicConfig
    views: Sequence[tuple[dict[str, Field], float]]  # fields that are judged together, and the weight of the judgement
    actions: int  # of the world
    words: Sequence[str] | None  # the vocabulary that texts are read by; None: they are read by MiniLM
    minibatch: int  # walks of a gradient step, on this rank
    group: Group
    seed: int  # root of weights and shuffles
    device: str = "cpu"  # where networks are

    @property
    def fields(self) -> list[str]:
        """Names of all fields that are judged."""
        return [name for view, _ in self.views for name in view]


class RewardTerm(ABC):
    """One rank's term. Every rank calls `pay` and `update` equally often, with equally many walks.

    A batch is `Steps`, not a `Batch` of PPO or a `Sample` of DQN: walks of one step each from chunks, of n from a
    replay, so that a term is written once for both.
    """

    Config: ClassVar[type[Part]] = Part
    """Options of its own; none unless it says so."""

    @classmethod  # noqa: B027 - most have nothing to refuse
    def check(cls, config: IntrinsicConfig, found: int) -> None:
        """Raise ValueError with the reason if it cannot be had, where `found` steps are judged together on a rank."""

    @abstractmethod
    def __init__(self, setup: RewardSetup) -> None: ...

    def mark(self, chunk: Chunk) -> NDArray[np.float32] | None:
        """The share, 0 to 1, of its reward that each step of a chunk is to be paid, float32 [T, N]; None: all of it.

        Called once for each chunk as it comes, in the order of each actor, and kept beside the step from then on: the
        place for what depends on the episode so far, which a step that is drawn from a replay does not know.
        """
        return None

    @abstractmethod
    def pay(self, steps: Steps) -> NDArray[np.float32]:
        """Rewards float32 [S] of the steps that were taken (`steps.taken`), by what was learned until now."""

    @abstractmethod
    def update(self, steps: Steps) -> float:
        """Learn from steps that were just paid for; the loss, for the report.

        Called right after `pay` with the same steps, so that what was read of them need not be read twice.
        """

    @abstractmethod
    def state(self) -> Arrays:
        """What a checkpoint holds; equal on all ranks."""

    def rank_state(self) -> Arrays:
        """What a checkpoint holds of this rank alone."""
        return {}

    @abstractmethod
    def restore(self, state: Arrays, own: Arrays) -> None:
        """Continue from both, to the bit. `own` may hold what others of this rank keep, or nothing.

        Raises:
            ValueError: they are of another term.
        """


def names() -> list[str]:
    """Names of all term modules, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def term(name: str) -> type[RewardTerm]:
    """The class that a module publishes; KeyError if there is no such module."""
    if name not in names():
        raise KeyError(name)
    found: type[RewardTerm] = importlib.import_module(f"{__name__}.{name}").TERM
    return found


def parts() -> list[type[Part]]:
    """The options that terms have to themselves, each class once."""
    return list(dict.fromkeys(part for name in names() if (part := term(name).Config) is not Part))
