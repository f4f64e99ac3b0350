"""Learning histories: how learners, one per task, improve at their tasks. One module per kind of learner, found by
name.

    actors.histories: act ──> observations and rewards of a task ──> learn; everything is stored

A history, read from its first episode to its last, shows a learner improving. A model that predicts its next action
from that imitates how it learns (Laskin et al. 2022, arXiv 2210.14215). A module publishes

    LEARNER = TheClass              a subclass of `HistoryLearner`, below

`method.histories.learner=NAME` selects the module; nothing else names it. A class with a `Config` has its own keys, in
`method.histories` under the name of its module. Nothing here imports PyTorch before a learner that needs it is built,
so that other actors stay small. They learn where they act, on the processor, whatever `learner.device` says: their
networks are many and tiny, and their batch learners are machine code.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, create_model, model_validator
from pydantic import Field as Option

from envs.api import EnvSpec, Field, Observation, VectorEnv
from envs.config import Part
from learner.room import Room

TASKS = 16
"""Tasks of a shard, and the maximum in one product, so that results do not depend on other tasks."""
Share = Annotated[float, Option(ge=0, le=1)]


class HistoriesConfig(Part):
    """Learning histories: every task of the training seeds has its own learner, which starts from scratch. Besides the
    fields here, each learner with options has a section under its name."""

    model_config = ConfigDict(extra="allow")

    learner: str = "q"
    """The learner, a module of `learner/histories`. `q`: tabular Q-learning, if all observations are categories or
    other integers. `ppo`: PPO with small networks, the published recipe. `expert`: the environment's planner with
    decreasing noise. `random`: random actions without learning."""
    episodes: Annotated[int, Option(ge=1, le=10_000_000)] = 1000
    """Episodes per task."""
    learning_rate: Annotated[float, Option(gt=0, le=1)] = 0.5
    """`q`: learning rate."""
    discount: Annotated[float, Option(ge=0, lt=1)] = 0.95
    """`q`: gamma."""
    initial: float = 0.0
    """`q`: initial value of every action. More than 0 is optimistic: untried actions are tried."""
    epsilon_begin: Share = 1.0
    """`q`, `expert`: share of random actions in the first of two or more episodes; a single one counts as the last."""
    epsilon_end: Share = 0.0
    """Share of random actions in the last episodes."""
    anneal: Annotated[float, Option(gt=0, le=1)] = 0.8
    """Share of the episodes over which the share of random actions decreases linearly from the first to the last
    value."""
    together: Annotated[int, Option(ge=1, le=100_000)] = 128
    """Tasks that an actor plays at once, in whole shards of 16. It does not affect the results."""

    @model_validator(mode="before")
    @classmethod
    def _with_parts_of_learners(cls, tree: dict[str, Any]) -> dict[str, Any]:
        """Check the learners' sections, and add their defaults."""
        given = {name: value for name, value in tree.items() if name not in cls.model_fields}
        return {**tree, **dict(_together(tuple(parts().items()))(**given))}

    def epsilon(self, number: int) -> float:
        """Share of random actions in episode `number`, counted from 0."""
        over = self.anneal * (self.episodes - 1)
        part = min(1.0, number / over) if over else 1.0
        return self.epsilon_begin + (self.epsilon_end - self.epsilon_begin) * part

    def counted(self) -> dict[str, Any]:
        """Everything that histories depend on, as plain data: no other learner's section, and not the tasks played at
        once."""
        return self.model_dump(exclude={"together", *(parts().keys() - {self.learner})})


@cache
def _together(found: tuple[tuple[str, type[Part]], ...]) -> type[Part]:
    """Sections by name, as one."""
    fields: dict[str, Any] = {name: (part, part()) for name, part in found}
    return create_model("Parts", __base__=Part, **fields)


class HistoryLearner(ABC):
    """Learners of N separate tasks: each one depends only on (seed, task) and its own experience.

    Args:
        config: configuration of the learners.
        env: N envs, one per task; only learners with full knowledge of the env read it, others use its `env_spec`.
        seed: the run's seed.
        tasks: int64 [N], the tasks; each `TASKS` of them, in order, belong to a shard.
    """

    Config: ClassVar[type[Part] | None] = None
    """Its own section of the configuration; None if it has none."""

    @classmethod
    @abstractmethod
    def check(cls, spec: EnvSpec) -> None:
        """Raise ValueError with the reason if it cannot learn in that environment."""

    @classmethod
    def memory(cls, config: HistoriesConfig, spec: EnvSpec) -> int:
        """Minimum bytes that it needs per task."""
        return 0

    @abstractmethod
    def __init__(self, config: HistoriesConfig, env: VectorEnv, seed: int, tasks: NDArray[np.int64]) -> None: ...

    @abstractmethod
    def begin(self, number: int) -> None:
        """Episode `number` begins in every task."""

    @abstractmethod
    def act(self, obs: Observation, random: NDArray[np.float64]) -> NDArray[Any]:
        """The next action of each task, int64 [N] or float32 [N, D].

        random: float64 [N, 1 + D] in [0, 1), functions of task and step alone; D is 1 for discrete actions.
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
        """Learn from a step of tasks `at` [n], whose episodes had not ended; all other arguments are for all tasks [N].

        obs: the observation after it, in the same episode.
        """


LEARNERS = Room[type[HistoryLearner]](__name__, "LEARNER")
names, learner = LEARNERS.names, LEARNERS.get


def parts() -> dict[str, type[Part]]:
    """The learners' own sections of the configuration, by name."""
    return {name: part for name in names() if (part := learner(name).Config) is not None}


def training_tasks(spec: EnvSpec) -> int:
    """Number of tasks of the training seeds, which are the first ones."""
    return spec.tasks - spec.held_out


def kept_fields(spec: EnvSpec) -> dict[str, Field]:
    """Fields of a step that are stored and that a learner may read: all that are not privileged."""
    return {name: field for name, field in spec.fields.items() if not field.privileged}
