"""Algorithms: they update a policy from chunks. One module each, found by name.

An algorithm module publishes

    ALGORITHM = TheClass            a subclass of `Algorithm`, below

`learner.algorithm=NAME` chooses the module; nothing else names it. A class that sets `Config` has its own keys in the
configuration, below `learner`, under the name of its module. The rest of the project asks the class, before any rank is
built, whatever it must know of an algorithm: whether it works with this policy, how much memory it needs, whether a
checkpoint fits.

Nothing here imports PyTorch, so a configuration can be read without it.
"""

from __future__ import annotations

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
from learner.room import Room

if TYPE_CHECKING:
    from learner.checkpoint import Arrays, Checkpoint
    from learner.intrinsic import Intrinsic
    from learner.models.language.llm_policy import AnyPolicy
    from learner.optim.collective import Group


@dataclass(frozen=True)
class LearnerSetup:
    """Everything that a rank of the learner group needs to build itself again."""

    learner: LearnerConfig
    policy: PolicyConfig
    spec: EnvSpec
    seed: int
    actors: tuple[int, int] = (1, 1)  # number of actors, and envs per actor
    options: Part | None = None  # the algorithm's own section of the configuration
    folder: Path | None = None  # where ranks keep experience on disk; None: in memory
    intrinsic: IntrinsicConfig = field(default_factory=IntrinsicConfig)
    exact: bool = False  # equal inputs give equal bits, on a GPU too

    def env_index(self, rank: int) -> NDArray[np.int64]:
        """Global indices [L] of the envs whose chunks go to `rank`: the envs of actors rank, rank + n, ..."""
        actors, envs = self.actors
        return (np.arange(rank, actors, self.learner.n)[:, None] * envs + np.arange(envs)).ravel()

    def rank_folder(self, rank: int) -> Path | None:
        """The folder where one rank may keep experience."""
        return None if self.folder is None else self.folder / f"rank-{rank}"


@dataclass(frozen=True)
class AlgorithmSetup:
    """What one rank's algorithm is built from."""

    config: LearnerConfig
    policy: AnyPolicy  # already has its first weights; changed in place
    group: Group
    seed: int  # root of all random numbers
    intrinsic: Intrinsic  # reward for novelty, perhaps none
    options: Part | None = None  # its own section of the configuration, of the class `Algorithm.Config`
    env_index: NDArray[np.integer] = field(default_factory=lambda: np.arange(1))  # [L] envs whose chunks come here
    folder: Path | None = None  # where this rank may keep its experience; None: nowhere


class Algorithm(ABC):
    """One rank of an algorithm. It owns the optimiser and changes the policy in place.

    Every rank calls `learn` equally often, and all end with equal weights. Random choices must depend on the seed and
    on counters alone, so that a checkpoint needs only arrays.
    """

    Config: ClassVar[type[Part] | None] = None
    """Its own section of the configuration; None if it reads only `learner`."""
    on_disk: ClassVar[bool] = False
    """Whether it keeps experience on disk that must match its checkpoint: it then waits for one to be complete."""

    # ---- asked before anything is built; `config` is the whole configuration ------------------------------------

    @classmethod
    @abstractmethod
    def check(cls, config: Configuration, spec: EnvSpec) -> None:
        """Raise ValueError with the reason if it cannot train that policy in that environment."""

    @classmethod
    def batch(cls, config: Configuration) -> int:
        """Env steps, over all ranks, in one update. Reward terms compare steps among these."""
        return (config.learner.chunks or config.actors.n) * config.actors.envs * config.actors.steps

    @classmethod
    def memory(cls, config: Configuration, row: int) -> int:
        """Minimum bytes that all ranks need for stored experience, at `row` bytes per step."""
        return 0

    @classmethod
    def max_lag(cls, config: Configuration) -> int | None:
        """How many versions old a chunk may be; None: no chunk is too old."""
        return None

    @classmethod
    def describe(cls, config: Configuration) -> str:
        """How it uses incoming chunks, in a few words, for the diagram of the roles."""
        return "updates"

    @classmethod  # noqa: B027 - most store nothing
    def assert_restorable(cls, setup: LearnerSetup, found: Checkpoint) -> None:
        """Raise UsageError if ranks with this setup cannot continue from a checkpoint. Changes nothing."""

    # ---- a rank -------------------------------------------------------------------------------------------------

    @abstractmethod
    def __init__(self, setup: AlgorithmSetup) -> None: ...

    @abstractmethod
    def learn(self, version: int, env_steps: int, chunks: Sequence[Chunk]) -> dict[str, Any]:
        """Learn from chunks of equal T. `version` is the policy's current version, `env_steps` the number used so far.

        Returns a report that includes `learned`, the env steps used, and `dropped`, the number of unused chunks.

        Raises:
            FloatingPointError: no gradient was finite.
        """

    @abstractmethod
    def begin(self) -> None:
        """The policy got other weights: start again from these."""

    @abstractmethod
    def state(self) -> dict[str, Arrays]:
        """The checkpoint's contents besides the policy, by file; equal on all ranks.

        Copies: they may be written while learning goes on.
        """

    def rank_state(self) -> Arrays:
        """The checkpoint's contents for this rank alone; copies, too."""
        return {}

    @abstractmethod
    def restore(self, state: dict[str, Arrays], own: Arrays) -> None:
        """Continue from both, bit for bit; the policy already has its weights.

        Raises:
            ValueError: they belong to another policy or to other ranks.
        """


ALGORITHMS = Room[type[Algorithm]](__name__, "ALGORITHM")
names, algorithm = ALGORITHMS.names, ALGORITHMS.get


def parts() -> dict[str, type[Part]]:
    """The algorithms' own sections of the configuration, by name."""
    return {name: part for name in names() if (part := algorithm(name).Config) is not None}
