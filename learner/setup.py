"""What a rank of the learner group, and the algorithm in it, are built of."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from envs.api import EnvSpec
from envs.config import Part
from learner.config import LearnerConfig
from learner.models.config import PolicyConfig
from learner.rewards import IntrinsicConfig


@dataclass(frozen=True)
class LearnerSetup:
    """All that a rank needs to build itself anew."""

    learner: LearnerConfig
    policy: PolicyConfig
    spec: EnvSpec
    seed: int
    actors: tuple[int, int] = (1, 1)  # how many, and envs of each
    options: Part | None = None  # the algorithm's own part of the configuration
    folder: Path | None = None  # for what ranks keep on disk of what was lived; None: they keep it in memory
    intrinsic: IntrinsicConfig = field(default_factory=IntrinsicConfig)

    def env_index(self, rank: int) -> NDArray[np.int64]:
        """Global indices [L] of the envs whose chunks go to `rank`: those of actors rank, rank + n, ..."""
        actors, envs = self.actors
        return (np.arange(rank, actors, self.learner.n)[:, None] * envs + np.arange(envs)).ravel()

    def rank_folder(self, rank: int) -> Path | None:
        """Where one rank may keep what was lived."""
        return None if self.folder is None else self.folder / f"rank-{rank}"
