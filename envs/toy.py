"""Toy: three states in a row, for tests and for reading first.

Mission: "go left" if the episode's seed is even, else "go right". The agent starts in the middle of three cells.
Actions: 0 left, 1 stay, 2 right.
Observation: `position` category in [0, 3), `mission` text.
Reward: 1 at the end that the mission names, 0 at the other end.
Termination: at either end. Truncation: after 8 steps.
Ids: toy/Line
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field as Option

from envs.api import EnvSpec, Field, Observation, VectorEnv
from envs.config import Part
from envs.knowledge import Knowledge

MISSIONS = ("go left", "go right")
PLACES = ("on the left", "in the middle", "on the right")
MAX_STEPS = 8


class Config(Part):
    """Options of toy."""

    step_seconds: float = Option(default=0.0, ge=0.0, le=60.0)
    """Seconds that a step of the batch takes, slept: a world that computes elsewhere, such as a robot or a game."""


def names() -> list[str]:
    return ["Line"]


def has(name: str) -> bool:
    return name in names()


def spec(name: str, config: Config) -> EnvSpec:
    return EnvSpec(
        id=f"toy/{name}",
        fields={"position": Field("category", size=3), "mission": Field("text")},
        action_names=("left", "stay", "right"),
        words=("go", "left", "right"),
        task_kinds=MISSIONS,
        captioned=True,
    )


def make(name: str, num_envs: int, seed: int, first_index: int, config: Config) -> VectorEnv:
    return Line(spec(name, config), num_envs, seed, first_index, step_seconds=config.step_seconds)


def knowledge(name: str = "") -> Knowledge:
    """The whole world: two ends, each a goal until one stands there."""
    return {
        "name": "toy",
        "about": "Three cells in a row. You start in the middle one; a step left or right brings you to an end.",
        "actions": ["left", "stay", "right"],
        "goals": [
            {"goal": f"go {way}", "seen": ["You stand"], "unless": [f"You stand on the {way}"]}
            for way in ("left", "right")
        ],
        "progress": [{"seen": f"You stand on the {way}", "worth": 1.0} for way in ("left", "right")],
        "facts": {"can you walk past an end": False, "can you stay where you are": True},
        "corpus": [*(f"You stand {place}" for place in PLACES), *MISSIONS],
    }


class Line(VectorEnv):
    """The whole world as three arrays."""

    def __init__(
        self, env_spec: EnvSpec, num_envs: int, seed: int = 0, first_index: int = 0, *, step_seconds: float = 0.0
    ) -> None:
        super().__init__(env_spec, num_envs, seed, first_index)
        self.step_seconds = step_seconds
        for mission in MISSIONS:
            self.texts.intern(mission)  # so that text id == task kind
        self.position = np.ones(num_envs, np.int64)
        self.mission = np.zeros(num_envs, np.int32)
        self.clock = np.zeros(num_envs, np.int32)

    def _start_one(self, i: int, seed: int) -> None:
        self.position[i], self.clock[i] = 1, 0
        self.mission[i] = seed % len(MISSIONS)

    def _advance(self, actions: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.bool_], NDArray[np.bool_]]:
        if self.step_seconds:
            time.sleep(self.step_seconds)
        return super()._advance(actions)

    def _step_one(self, i: int, action: int) -> tuple[float, bool, bool]:
        place = min(max(int(self.position[i]) + int(action) - 1, 0), 2)
        clock = int(self.clock[i]) + 1
        self.position[i], self.clock[i] = place, clock
        at_end = place != 1
        return float(place == 2 * self.mission[i]), at_end, not at_end and clock >= MAX_STEPS

    def _observe(self, index: NDArray[np.intp] | slice) -> Observation:
        return {"position": self.position[index].copy(), "mission": self.mission[index].copy()}

    def _kinds(self) -> NDArray[np.int16]:
        return self.mission.astype(np.int16)

    def captions(self, obs: Observation) -> list[list[str]]:
        """One sentence: where the agent stands."""
        return [[f"You stand {PLACES[p]}"] for p in obs["position"]]

    def frame(self, i: int) -> NDArray[np.uint8]:
        """RGB picture of env i, uint8 [32, 96, 3]: three cells, the agent's filled."""
        picture = np.full((32, 96, 3), 235, np.uint8)
        left = 32 * int(self.position[i])
        picture[4:28, left + 4 : left + 28] = (40, 90, 200)
        return picture
