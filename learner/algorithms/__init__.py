"""Algorithms: what turns chunks into a better policy. One module each, found by name.

An algorithm module publishes

    ALGORITHM = TheClass            a subclass of `Algorithm`, below

`learner.algorithm=NAME` chooses the module; nothing else names it. A class that sets `Config` has keys of its own, in
the configuration below `learner`, under the name of its module. What the rest of the house must know of an algorithm
(does it work with this policy, how much memory does it need, does a checkpoint fit it) it asks the class, before any
rank is built.

Nothing here imports PyTorch: a configuration is read without it.
"""

from __future__ import annotations

import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from envs.api import Chunk, EnvSpec
from envs.config import Part
from learner.config import Configuration, LearnerConfig
from learner.models.config import PolicyConfig
from learner.rewards import IntrinsicConfig

if TYPE_CHECKING:
    from learner.checkpoint import Arrays, Checkpoint
    from learner.intrinsic import Intrinsic
    from learner.models.language.llm_policy import AnyPolicy
    from learner.optim.collective import Group


@dataclass(frozen=True)
class LearnerSetup:
    """All that a rank of the learner group needs to build itself anew."""

    learner: LearnerConfig
    policy: PolicyConfig
    spec: EnvSpec
    seed: int
    actors: tuple[int, int] = (1, 1)  # how many, and envs of each
    options: Part | None = None  # the algorithm's own part of the configuration
    folder: Path | None = None  # for what ranks keep on disk of what was lived; None: they keep it in memory
    intrinsic: IntrinsicConfig = field(default_factory=IntrinsicConfig)
    exact: bool = False  # equal inputs give equal bits, on a GPU too

    def env_index(self, rank: int) -> NDArray[np.int64]:
        """Global indices [L] of the envs whose chunks go to `rank`: those of actors rank, rank + n, ..."""
        actors, envs = self.actors
        return (np.arange(rank, actors, self.learner.n)[:, None] * envs + np.arange(envs)).ravel()

    def rank_folder(self, rank: int) -> Path | None:
        """Where one rank may keep what was lived."""
        return None if self.folder is None else self.folder / f"rank-{rank}"


@dataclass(frozen=True)
class AlgorithmSetup:
    """What one rank's algorithm is built of."""

    config: LearnerConfig
    policy: AnyPolicy  # has its first weights; is changed in place
    group: Group
    seed: int  # root of all random numbers
    intrinsic: Intrinsic  # what is paid for what is new, perhaps nothing
    options: Part | None = None  # its own part of the configuration, of the class `Algorithm.Config`
    env_index: NDArray[np.integer] = field(default_factory=lambda: np.arange(1))  # [L] envs whose chunks come here
    folder: Path | None = None  # where this rank may keep what it lived; None: nowhere


class Algorithm(ABC):
    """One rank of an algorithm. It owns the optimiser and changes the policy in place.

    Every rank calls `learn` equally often, and all end with equal weights. Random choices are to follow from the seed
    and from counters alone, so that a checkpoint is arrays.
    """

    Config: ClassVar[type[Part] | None] = None
    """Its own part of the configuration; None if it reads `learner` only."""

    # ---- asked before anything is built; `config` is the whole configuration ------------------------------------

    @classmethod
    @abstractmethod
    def check(cls, config: Configuration, spec: EnvSpec) -> None:
        """Raise ValueError with the reason if it cannot learn in that world, by that policy."""

    @classmethod
    def batch(cls, config: Configuration) -> int:
        """Env steps, over all ranks, that are learned from at once: those among which reward terms compare."""
        return (config.learner.chunks or config.actors.n) * config.actors.envs * config.actors.steps

    @classmethod
    def memory(cls, config: Configuration, row: int) -> int:
        """Bytes that all ranks will surely need for what they keep of the past, at `row` bytes of a step."""
        return 0

    @classmethod
    def max_lag(cls, config: Configuration) -> int | None:
        """How many versions old a chunk may be; None: no chunk is too old."""
        return None

    @classmethod
    def describe(cls, config: Configuration) -> str:
        """What it does with what came, in a few words, for the drawing of the roles."""
        return "updates"

    @classmethod  # noqa: B027 - most keep nothing
    def assert_restorable(cls, setup: LearnerSetup, found: Checkpoint) -> None:
        """Raise UsageError if ranks of this setup could not continue from a checkpoint. Changes nothing."""

    # ---- a rank -------------------------------------------------------------------------------------------------

    @abstractmethod
    def __init__(self, setup: AlgorithmSetup) -> None: ...

    @abstractmethod
    def learn(self, version: int, env_steps: int, chunks: Sequence[Chunk]) -> dict[str, Any]:
        """Learn from chunks of equal T, by a policy that has `version` now, `env_steps` having been learned from.

        Returns a report, in it `learned`, the env steps used, and `dropped`, the number of chunks not used.

        Raises:
            FloatingPointError: not one gradient was finite.
        """

    @abstractmethod
    def begin(self) -> None:
        """The policy was given other weights: begin anew with these."""

    @abstractmethod
    def state(self) -> dict[str, Arrays]:
        """What a checkpoint holds beside the policy, by file; equal on all ranks."""

    def rank_state(self) -> Arrays:
        """What a checkpoint holds of this rank alone."""
        return {}

    @abstractmethod
    def restore(self, state: dict[str, Arrays], own: Arrays) -> None:
        """Continue from both, to the bit; the policy has its weights already.

        Raises:
            ValueError: they are of another policy, or of other ranks.
        """


def names() -> list[str]:
    """Names of all algorithm modules, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def algorithm(name: str) -> type[Algorithm]:
    """The class that a module publishes; KeyError if there is no such module."""
    if name not in names():
        raise KeyError(name)
    found: type[Algorithm] = importlib.import_module(f"{__name__}.{name}").ALGORITHM
    return found


def parts() -> dict[str, type[Part]]:
    """The parts of the configuration that algorithms have to themselves, by name."""
    return {name: part for name in names() if (part := algorithm(name).Config) is not None}
