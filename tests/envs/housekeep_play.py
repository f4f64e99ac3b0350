"""Play in houses that does something: a planner, now and then disturbed."""

import numpy as np

from envs.housekeep import Expert
from envs.housekeep.names import NAMES, OBJECTS


def busy(env, steps, seed=0):
    """Actions [N] of so many steps; who asks for the next has taken the last."""
    random, expert = np.random.default_rng(seed), Expert()
    for step in range(steps):
        actions = random.choice(6, env.num_envs, p=(0.4, 0.12, 0.12, 0.08, 0.08, 0.2))
        planned = expert.act(env)
        yield np.where(random.random(env.num_envs) < (0.3 if step % 40 < 30 else 0.9), actions, planned)


def names_of(env, i):
    """Names of the pieces of player i's house by number; the first is none."""
    p = env.which[i]
    return ["", *(NAMES[name] for name in env.houses.name[p, 1 : env.houses.pieces[p] + 1].tolist())]


def objects_of(env, i):
    """Names of the objects of player i's house."""
    p = env.which[i]
    return [OBJECTS[k] for k in env.houses.object[p, : env.houses.objects[p]].tolist()]
