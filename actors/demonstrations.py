"""Episodes of the world's planner, for those who are shown how a task is done.

    envs, a seed each ──> planner ──> Lived: one episode of each env

The planner looks at the world itself, so what is shown is what no player could know by then. The limit is the world.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from actors.memories import Integers, Lived
from envs import registry
from envs.api import Observation, VectorEnv
from learner.histories import kept_fields


def demonstrations(env: VectorEnv, seeds: Integers) -> Lived:
    """The planner's episode of each of N envs.

    Args:
        env: of a world with a planner, for this alone.
        seeds: int64 [N], which episodes.
    """
    expert = registry.family(env.env_spec.id.partition("/")[0]).Expert()
    fields = list(kept_fields(env.env_spec))
    length, running = np.zeros(env.num_envs, np.int64), np.ones(env.num_envs, np.bool_)
    lived: list[tuple[Observation, Integers, NDArray[np.float32]]] = []
    obs = env.begin(seeds)
    while running.any():
        seen, action = {name: obs[name].copy() for name in fields}, expert.act(env)
        t = env.advance(action)
        lived.append((seen, action, t.reward.copy()))
        obs, over = t.obs, t.final_index[running[t.final_index]]
        length[over], running[over] = len(lived), False
    steps, action, reward = zip(*lived, strict=True)
    every = {name: np.stack([step[name] for step in steps]) for name in fields}
    return Lived(every, np.stack(action), np.stack(reward), length)
