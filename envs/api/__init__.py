"""The contract between worlds and everything else; all its names are had from here.

    seed ──> VectorEnv.begin ──> obs ──> policy ──> actions ──> VectorEnv.advance ──> Transition ──> ... ──> Chunk

Engines have the dense face of `VectorEnv`, `begin` and `advance`, which exchange arrays and text ids; users have that
of Gymnasium, `reset` and `step`. A `Wrapper` is a dense env around a dense env.
"""

from envs.api.records import (
    CELLS,
    FACTS,
    HELD_OUT_FIRST,
    Chunk,
    EnvSpec,
    Episodes,
    Fact,
    Field,
    Observation,
    Summary,
    Transition,
    Written,
    episode_seed,
)
from envs.api.vector import VectorEnv
from envs.api.wrapper import DenseEnv, Wrapper

__all__ = [
    "CELLS",
    "FACTS",
    "HELD_OUT_FIRST",
    "Chunk",
    "DenseEnv",
    "EnvSpec",
    "Episodes",
    "Fact",
    "Field",
    "Observation",
    "Summary",
    "Transition",
    "VectorEnv",
    "Wrapper",
    "Written",
    "episode_seed",
]
