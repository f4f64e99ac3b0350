"""The contract between worlds and everything else; all its names are had from here.

    seed ──> VectorEnv.begin ──> obs ──> policy ──> actions ──> VectorEnv.advance ──> Transition ──> ... ──> Chunk

records    EnvSpec, Field; Transition, Episodes; Chunk, Summary: plain data
vector     `VectorEnv`, the dense face, for engines: `begin()` and `advance(actions)` exchange arrays and text ids
face       the Gymnasium face, for users: `reset()` and `step(actions)` return strings, `info`, and copies
wrapper    `Wrapper`, a dense env around a dense env; `DenseEnv` is either
"""

from envs.api.records import (
    HELD_OUT_FIRST,
    Chunk,
    EnvSpec,
    Episodes,
    Field,
    Observation,
    Summary,
    Transition,
    episode_seed,
)
from envs.api.vector import VectorEnv
from envs.api.wrapper import DenseEnv, Wrapper

__all__ = [
    "HELD_OUT_FIRST",
    "Chunk",
    "DenseEnv",
    "EnvSpec",
    "Episodes",
    "Field",
    "Observation",
    "Summary",
    "Transition",
    "VectorEnv",
    "Wrapper",
    "episode_seed",
]
