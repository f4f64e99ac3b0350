"""Many tasks, each of which is a simulation of its own: an episode's seed names its task, all show and take one shape.

    seed ──EnvSpec.task──> task ──> an idle simulation of it, or a new one ──reset──> numbers ──zeros──> observation
    action ──clipped──> step ──> numbers, reward, whether it is over, whether the task is solved

What a task shows is padded with zeros to the size that all have, and of an action it takes the first numbers, as many
as it has. A simulation takes long to build, so those that no env plays wait until they are played again: as many as
there are envs, the ones that were played last.

The limit is the simulator: one env after the other, each in Python around MuJoCo. An env is two simulations at most,
of some MB each.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field as Option

from envs.api import EnvSpec, Field, Observation, VectorEnv
from envs.config import Part

OBSERVATION = "observation"
EXTRA = "requirements-mujoco.txt"
"""What the simulators are installed from: they are no part of requirements.txt."""


class TasksConfig(Part):
    """Options of every world of many tasks."""

    training: Annotated[list[str], Option(min_length=1)] | None = None
    """Tasks that training seeds name. None: all that were published as such."""
    held_out: list[str] | None = None
    """Tasks that held-out seeds name, and no others. None: all that were published as such; empty: any seed names any
    task."""

    def tasks(self, training: Sequence[str], held_out: Sequence[str]) -> tuple[list[str], list[str]]:
        """Those that training seeds name, and those that held-out seeds do, of what was published.

        Raises:
            ValueError: there is no such task, or one is named twice.
        """
        chosen = list(training if self.training is None else self.training)
        others = list(held_out if self.held_out is None else self.held_out)
        for name in (both := chosen + others):
            if name not in {*training, *held_out}:
                raise ValueError(f"there is no task {name!r}: choose from {', '.join(sorted({*training, *held_out}))}")
            if both.count(name) > 1:
                raise ValueError(f"the task {name} is named twice: leave it out of env.training or env.held_out")
        return chosen, others


class Simulation(Protocol):
    """One task."""

    def reset(self, task: int, seed: int) -> NDArray[np.float64]:
        """Begin the episode of a seed, which names the `task`-th of the world's tasks. Returns what is observed."""

    def step(self, action: NDArray[np.float32]) -> tuple[NDArray[np.float64], float, bool, bool]:
        """What is then observed, the reward, whether that was the end, and whether the task is solved."""


class Pool(VectorEnv):
    """N envs, each of which plays the task that its episode's seed names.

    Args:
        args: as `VectorEnv`.
        tasks: their names, in the order of `EnvSpec.task`.
        build: makes a simulation of a task.
        length: steps after which an episode is truncated.

    Attributes:
        task: int64 [N], of the running episodes.
        simulations: of the running episodes, [N].
    """

    simulations: list[Any]

    def __init__(
        self,
        env_spec: EnvSpec,
        num_envs: int,
        seed: int = 0,
        first_index: int = 0,
        *,
        tasks: Sequence[str],
        build: Callable[[str], Simulation],
        length: int,
    ) -> None:
        super().__init__(env_spec, num_envs, seed, first_index)
        self._names, self._build, self._limit = tasks, build, length
        self._low, self._high = np.array(env_spec.action_bounds, np.float32).T
        self.task = np.full(num_envs, -1)
        self.simulations = [None] * num_envs
        self._idle: list[tuple[int, Simulation]] = []  # with their tasks, those that were played last at the end
        self._shown = np.zeros((num_envs, *env_spec.fields[OBSERVATION].shape), np.float32)
        self._solved = np.zeros(num_envs, np.bool_)

    def _start(self, index: NDArray[np.intp], seeds: NDArray[np.int64]) -> None:
        self._idle += [(int(self.task[i]), self.simulations[i]) for i in index if self.task[i] >= 0]
        for i, task, seed in zip(index.tolist(), self.env_spec.task(seeds).tolist(), seeds.tolist(), strict=True):
            self.task[i], self.simulations[i], self._solved[i] = task, self._take(task), False
            self._show(i, self.simulations[i].reset(task, seed))
        self._idle = self._idle[-self.num_envs :]

    def _take(self, task: int) -> Simulation:
        for place, (of, simulation) in enumerate(self._idle):
            if of == task:
                del self._idle[place]
                return simulation
        return self._build(self._names[task])

    def _checked(self, actions: NDArray[Any]) -> NDArray[Any]:
        actions = super()._checked(actions)
        if actions.dtype.kind not in "iuf" or np.isnan(actions).any():
            raise ValueError(f"actions of {self.env_spec.id} are numbers: one is not")
        return actions

    def _step_one(self, i: int, action: Any) -> tuple[float, bool, bool]:
        clipped = np.clip(np.asarray(action, np.float32), self._low, self._high)
        shown, reward, over, solved = self.simulations[i].step(clipped)
        self._show(i, shown)
        self._solved[i] |= solved
        return reward, over, bool(self._length[i] + 1 >= self._limit)

    def _show(self, i: int, numbers: NDArray[np.float64]) -> None:
        self._shown[i] = 0
        self._shown[i, : len(numbers)] = numbers

    def _observe(self, index: NDArray[np.intp] | slice) -> Observation:
        return {OBSERVATION: self._shown[index].copy()}

    def _success(self, reward: NDArray[np.float32], terminated: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return self._solved.copy()


def spec_of(env_id: str, observed: int, numbers: int, tasks: tuple[list[str], list[str]], **more: Any) -> EnvSpec:
    """What a policy must know of a world of tasks: it observes a vector, and acts by numbers in [-1, 1]."""
    return EnvSpec(
        id=env_id,
        fields={OBSERVATION: Field("vector", (observed,))},
        action_names=(),
        action_shape=(numbers,),
        action_bounds=((-1.0, 1.0),) * numbers,
        tasks=sum(map(len, tasks)),
        held_out=len(tasks[1]),
        **more,
    )


def missing(package: str) -> str:
    """What to do where a simulator is not installed; empty where it is."""
    there = importlib.util.find_spec(package)
    return "" if there else f"this world needs the package {package}: pip install -r {EXTRA}"


def simulator(module: str) -> Any:
    """A module of an extra. It draws nothing, so that no screen and no graphics are looked for.

    Raises:
        ModuleNotFoundError: it is not installed; says what to do.
    """
    if lacking := missing(module.partition(".")[0]):
        raise ModuleNotFoundError(lacking)
    os.environ.setdefault("MUJOCO_GL", "off")
    return importlib.import_module(module)
