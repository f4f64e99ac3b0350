"""Meta-World: an arm that opens, pushes, picks and places, 50 tasks as one world.

Mission: none is said; what is to be done shows in the reward alone.
Actions: float32 [4] in [-1, 1], clipped: how the hand moves along three axes, and how its fingers close.
Observation: `observation` float32 [39]: hand, fingers and things now and a step before, and three zeros in place of the
goal, which is hidden.
Reward: Meta-World's own, 0 to 10 in a step.
Termination: none. Truncation: after `Config.length` steps. Success: the task was solved in any step.
Tasks: of the split ML45, 45 that training seeds name and 5 that held-out seeds name. The seed of an episode names its
task, and that says where things and goal are: all episodes of a task begin alike (Schmied et al. 2024, arXiv
2410.07071).
Ids: metaworld/ML45

Simulated by metaworld (Yu et al. 2019, arXiv 1910.10897; of its third version, the published results are of the second
one), an extra: see `envs.pool`.
"""

from __future__ import annotations

import warnings
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field as Option

from envs import pool
from envs.api import EnvSpec, VectorEnv
from envs.knowledge import Knowledge
from envs.pool import Pool, TasksConfig, simulator, spec_of

TRAINING = (
    "assembly",
    "basketball",
    "button-press-topdown",
    "button-press-topdown-wall",
    "button-press",
    "button-press-wall",
    "coffee-button",
    "coffee-pull",
    "coffee-push",
    "dial-turn",
    "disassemble",
    "door-close",
    "door-open",
    "drawer-close",
    "drawer-open",
    "faucet-open",
    "faucet-close",
    "hammer",
    "handle-press-side",
    "handle-press",
    "handle-pull-side",
    "handle-pull",
    "lever-pull",
    "pick-place-wall",
    "pick-out-of-hole",
    "push-back",
    "pick-place",
    "plate-slide",
    "plate-slide-side",
    "plate-slide-back",
    "plate-slide-back-side",
    "peg-insert-side",
    "peg-unplug-side",
    "soccer",
    "stick-push",
    "stick-pull",
    "push-wall",
    "push",
    "reach-wall",
    "reach",
    "shelf-place",
    "sweep-into",
    "sweep",
    "window-open",
    "window-close",
)
HELD_OUT = ("bin-picking", "box-close", "hand-insert", "door-lock", "door-unlock")
VERSION = "-v3"
OBSERVED, NUMBERS = 39, 4
GOAL = slice(36, 39)
"""Where the goal stands in an observation."""


class Config(TasksConfig):
    """Options of Meta-World."""

    length: Annotated[int, Option(ge=1, le=500)] = 200
    """Steps after which an episode is truncated; Meta-World plays 500 at most."""


def names() -> list[str]:
    return ["ML45"]


def has(name: str) -> bool:
    """Is there a world of this name?"""
    return name in names()


def missing(config: Config) -> str:
    """As `envs.pool.missing`."""
    return pool.missing("metaworld")


def spec(name: str, config: Config) -> EnvSpec:
    """What a policy must know of it.

    Raises:
        ValueError: a task that there is not, or one that is named twice.
    """
    return spec_of(f"metaworld/{name}", OBSERVED, NUMBERS, config.tasks(TRAINING, HELD_OUT), expert=True)


def make(name: str, num_envs: int, seed: int, first_index: int, config: Config) -> VectorEnv:
    """Build N envs.

    Raises:
        ModuleNotFoundError: metaworld is not installed.
        ValueError: as `spec`.
    """
    simulator("metaworld")
    training, held_out = config.tasks(TRAINING, HELD_OUT)
    return Pool(
        spec(name, config),
        num_envs,
        seed,
        first_index,
        tasks=training + held_out,
        build=Arm,
        length=config.length,
    )


def knowledge(name: str = "") -> Knowledge:
    """What is to be done is not told: that is what is to be found out."""
    about = "A robot arm at a table with things on it; something is to be done with them, and coming near to it pays."
    return {"name": "metaworld", "about": about, "actions": []}


class Arm:
    """One task. Its planner is the policy that Meta-World has written for it."""

    def __init__(self, task: str) -> None:
        from metaworld.env_dict import ALL_V3_ENVIRONMENTS
        from metaworld.policies import ENV_POLICY_MAP

        self._env = ALL_V3_ENVIRONMENTS[task + VERSION]()
        self._env._set_task_called, self._env._freeze_rand_vec = True, False  # what its own benchmarks set
        self._env.seeded_rand_vec = True
        self._policy = ENV_POLICY_MAP[task + VERSION]()
        self._now = np.zeros(OBSERVED)

    def reset(self, task: int, seed: int) -> NDArray[np.float64]:
        self._env.seed(task)
        self._now, _ = self._env.reset()
        return self._now

    def step(self, action: NDArray[np.float32]) -> tuple[NDArray[np.float64], float, bool, bool]:
        self._now, reward, _, _, told = self._env.step(action)
        return self._now, float(reward), False, bool(told["success"])

    def advice(self) -> NDArray[np.float32]:
        """What the planner would do now, [4]: it sees the goal."""
        seen = self._now.copy()
        seen[GOAL] = self._env._target_pos
        with warnings.catch_warnings(action="ignore"):  # of actions that are too large: they are clipped
            found: NDArray[np.float32] = np.clip(self._policy.get_action(seen), -1, 1).astype(np.float32)
        return found


class Expert:
    """The planners of all tasks. It looks at the world, not at observations, so it also goes on from anyone's steps."""

    def act(self, env: Pool) -> NDArray[np.float32]:
        """The next action of each env, float32 [N, 4]."""
        return np.stack([simulation.advice() for simulation in env.simulations])
