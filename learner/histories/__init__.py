"""Learning histories: how learners, one a task, come to be better at their tasks. One module each, found by name.

    actors.histories: act ──> what a task shows and pays ──> learn, and all of it is kept

Whoever reads a history from its first episode to its last sees a learner improve. To predict its next action from that
is to imitate how it learns (Laskin et al. 2022, arXiv 2210.14215). A module publishes

    LEARNER = TheClass              a subclass of `HistoryLearner`, below

`method.histories.learner=NAME` chooses the module; nothing else names it. A class that sets `Config` has keys of its
own, in `method.histories` under the name of its module. Nothing here imports PyTorch before a learner that needs it is
built: an actor is small without it. They learn where they act, on the processor, whatever `learner.device` says: their
networks are many and tiny, and their batch learners are machine code.
"""

from __future__ import annotations

import importlib
import pkgutil
from abc import ABC, abstractmethod
from functools import cache
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, create_model, model_validator
from pydantic import Field as Option

from envs.api import EnvSpec, Field, Observation, VectorEnv
from envs.config import Part

TASKS = 16
"""Tasks of a shard, and the most that are computed in one product: so nothing beside them shows in their numbers."""
Share = Annotated[float, Option(ge=0, le=1)]


class HistoriesConfig(Part):
    """Learning histories: every task that training seeds name has a learner of its own, which begins with nothing.
    Beside the fields here it has the own part of each learner that has one, under its name."""

    model_config = ConfigDict(extra="allow")

    learner: str = "q"
    """Who learns, a module of `learner/histories`. `q`: tabular Q-learning, where all that is observed are categories
    or other whole numbers. `ppo`: PPO with small networks, the published recipe. `expert`: the world's planner, which
    is hindered by ever less chance. `random`: nobody, chance alone acts."""
    episodes: Annotated[int, Option(ge=1, le=10_000_000)] = 1000
    """Episodes of each task."""
    learning_rate: Annotated[float, Option(gt=0, le=1)] = 0.5
    """`q`: how far a value moves to what was found."""
    discount: Annotated[float, Option(ge=0, lt=1)] = 0.95
    """`q`: gamma."""
    initial: float = 0.0
    """`q`: what every action is worth before it was tried. More than 0 is optimistic: what was not tried is tried."""
    epsilon_begin: Share = 1.0
    """`q`, `expert`: share of actions that chance chooses in the first episode, of two or more: a single one is among
    the last."""
    epsilon_end: Share = 0.0
    """The same in the last ones."""
    anneal: Annotated[float, Option(gt=0, le=1)] = 0.8
    """Share of the episodes over which the share of chance falls from the one to the other, along a line."""
    together: Annotated[int, Option(ge=1, le=100_000)] = 128
    """Tasks that an actor plays side by side, in whole shards of 16. It does not show in what is written."""

    @model_validator(mode="before")
    @classmethod
    def _with_parts_of_learners(cls, tree: dict[str, Any]) -> dict[str, Any]:
        """Checks the learners' parts, and adds their defaults."""
        given = {name: value for name, value in tree.items() if name not in cls.model_fields}
        return {**tree, **dict(_together(tuple(parts().items()))(**given))}

    def epsilon(self, number: int) -> float:
        """Share of actions that chance chooses in episode `number`, counted from 0."""
        over = self.anneal * (self.episodes - 1)
        part = min(1.0, number / over) if over else 1.0
        return self.epsilon_begin + (self.epsilon_end - self.epsilon_begin) * part

    def counted(self) -> dict[str, Any]:
        """What histories depend on, as plain data: no other learner's part, and not who plays side by side."""
        return self.model_dump(exclude={"together", *(parts().keys() - {self.learner})})


@cache
def _together(found: tuple[tuple[str, type[Part]], ...]) -> type[Part]:
    """Parts by name as one."""
    fields: dict[str, Any] = {name: (part, part()) for name, part in found}
    return create_model("Parts", __base__=Part, **fields)


class HistoryLearner(ABC):
    """Who learns N tasks, each for itself: what becomes of one depends on (seed, task) and on what it lived alone.

    Args:
        config: how is learned.
        env: N envs, that of each task; to be looked at by those who know the world, others ask its `env_spec`.
        seed: of the run.
        tasks: int64 [N], which; each `TASKS` of them, in order, are a shard's.
    """

    Config: ClassVar[type[Part] | None] = None
    """Its own part of the configuration; None if it has none."""

    @classmethod
    @abstractmethod
    def check(cls, spec: EnvSpec) -> None:
        """Raise ValueError with the reason if it cannot learn in that world."""

    @classmethod
    def memory(cls, config: HistoriesConfig, spec: EnvSpec) -> int:
        """Bytes that it cannot do without for a task."""
        return 0

    @abstractmethod
    def __init__(self, config: HistoriesConfig, env: VectorEnv, seed: int, tasks: NDArray[np.int64]) -> None: ...

    @abstractmethod
    def begin(self, number: int) -> None:
        """Episode `number` begins in every task."""

    @abstractmethod
    def act(self, obs: Observation, random: NDArray[np.float64]) -> NDArray[Any]:
        """The next action of each task, int64 [N] or float32 [N, D].

        random: float64 [N, 1 + D] in [0, 1), of the task and the step alone; D is 1 where actions are one of so many.
        """

    @abstractmethod
    def learn(
        self,
        at: NDArray[np.intp],
        action: NDArray[Any],
        reward: NDArray[np.float32],
        obs: Observation,
        terminated: NDArray[np.bool_],
        truncated: NDArray[np.bool_],
    ) -> None:
        """Learn from a step of tasks `at` [n], whose episodes were on; all else is of all tasks [N].

        obs: what was observed after it, in the same episode.
        """


def names() -> list[str]:
    """Names of all learners, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def learner(name: str) -> type[HistoryLearner]:
    """The class that a module publishes; KeyError if there is no such module."""
    if name not in names():
        raise KeyError(name)
    found: type[HistoryLearner] = importlib.import_module(f"{__name__}.{name}").LEARNER
    return found


def parts() -> dict[str, type[Part]]:
    """The parts of the configuration that learners have to themselves, by name."""
    return {name: part for name in names() if (part := learner(name).Config) is not None}


def training_tasks(spec: EnvSpec) -> int:
    """How many tasks training seeds name: they are the first ones."""
    return spec.tasks - spec.held_out


def kept_fields(spec: EnvSpec) -> dict[str, Field]:
    """Fields of a step that are kept, and that a learner may look at: all that the world shows a player."""
    return {name: field for name, field in spec.fields.items() if not field.privileged}
