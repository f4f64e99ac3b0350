"""Worlds.

    make, spec, ids          build a world by id, describe it, list all            (registry)
    VectorEnv                N episodes of a world; the rest of the contract is    (api)
    knowledge, labels        what a language model may know of a world, and what
                             people say of the same questions                      (knowledge)
    TextTable                texts as integers                                     (text)
    Part                     the base of every part of the configuration           (config)
    SingleEnv                one env behind Gymnasium's `Env`                      (single)
    compiled                 loops as machine code, here and in `learner`          (compiler, native/)
    draw                     worlds of cells as pictures                           (picture)

Worlds, one module or package each: `toy`, `babyai`, `crafter`, `navigation`, `dark`, `maze`, `procgen`, `gym` (any
registered Gymnasium env), and as an extra `metaworld` and `control`, of many tasks each (pool).
"""

from envs.api import HELD_OUT_FIRST, VectorEnv, episode_seed
from envs.knowledge import Labels, knowledge, labels
from envs.registry import UnknownEnv, families, ids, make, register_all, spec
from envs.text import TextTable, text_hash

__all__ = [
    "HELD_OUT_FIRST",
    "Labels",
    "TextTable",
    "UnknownEnv",
    "VectorEnv",
    "episode_seed",
    "families",
    "ids",
    "knowledge",
    "labels",
    "make",
    "register_all",
    "spec",
    "text_hash",
]
