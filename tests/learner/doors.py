"""A world whose actions differ from state to state."""

import numpy as np

from envs.api import EnvSpec, Field, VectorEnv

DOORS = ("open the red door", "wait", "open the blue door", "go left", "go", "take the key")


class Doors(VectorEnv):
    """Every state has one to four actions, at places of its own. A place without an action cannot be chosen."""

    def __init__(self, num_envs, seed=0, first_index=0):
        fields = {"mission": Field("text"), "caption": Field("text"), "candidates": Field("text", (4,))}
        spec = EnvSpec("test/Doors", fields, ("first", "second", "third", "fourth"))
        super().__init__(spec, num_envs, seed, first_index)
        self.seed, self.clock = np.zeros(num_envs, np.int64), np.zeros(num_envs, np.int64)

    def doors(self, i):
        random = np.random.default_rng([self.seed[i], self.clock[i]])
        told = random.permutation(DOORS)[:4]
        there = random.random(4) < 0.6
        there[random.integers(4)] = True
        return [str(name) if here else "" for name, here in zip(told, there, strict=True)]

    def _start_one(self, i, seed):
        self.seed[i], self.clock[i] = seed, 0

    def _step_one(self, i, action):
        chosen = self.doors(i)[int(action)]
        if not chosen:
            raise AssertionError("what is no action was chosen")
        self.clock[i] += 1
        return float(chosen.startswith("open")), bool(self.clock[i] == 5), False

    def _observe(self, index):
        rows = np.arange(self.num_envs)[index]
        intern = self.texts.intern
        return {
            "mission": np.array([intern("find a way out") for _ in rows], np.int32),
            "caption": np.array([intern(f"You see a room of colour {self.seed[i] % 7}") for i in rows], np.int32),
            "candidates": np.array([[intern(name) for name in self.doors(i)] for i in rows], np.int32),
        }
