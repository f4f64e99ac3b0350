"""The house as a world: a robot on two wheels that feels and ranges. N of them behind the contract of `envs.api`.

Mission: none is said; the goal of the map is to be found.
Actions: (left, right), how far each wheel moves in the step, world units, clipped to [-4, 4]. (4, 4) drives straight
on, (-1, 1) turns clockwise on the spot, as y grows downwards; a move that would touch a wall only turns.
Observation: `sensors` float32 [5]: distances of three lasers at +45 (to the right), 0 and -45 degrees, at most 100, and
the left and right bumper, 0 or 1. With `Config.captions` also `caption` text: the tile that the robot is on, and where
it is as seen from what stands near, which its sensors do not tell.
Reward: 1 when its centre comes within `Config.goal_radius` of the goal, else 0.
Termination: with that. Truncation: after `Config.length` steps.
Ids: navigation/House

What moves the robots is `envs.native.navigation`. Nothing in a step is drawn by chance; a seed matters to
`Config.start=anywhere` alone.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from envs.api import EnvSpec, Observation, VectorEnv
from envs.native.navigation import loops
from envs.native.navigation.floor import REACH, floor
from envs.native.navigation.robot import FASTEST, HEADING, LEFT_BUMPER, RIGHT_BUMPER, SENSORS, X, Y
from envs.navigation.house import Map
from envs.navigation.picture import draw
from envs.navigation.scene import Scene
from envs.navigation.simulation import check_starts


class Navigation(VectorEnv):
    """N robots in copies of one house.

    Args:
        args: as `VectorEnv`.
        house: the map.
        start, length, goal_radius: as `Config`.

    Attributes:
        pose: float32 [N, 3], x, y in world units and heading in [-pi, pi].
        sensors: float32 [N, 5], as observed.

    Raises:
        ValueError: the map's start is in or at a wall, or there is no free place.
    """

    def __init__(
        self,
        env_spec: EnvSpec,
        num_envs: int,
        seed: int = 0,
        first_index: int = 0,
        *,
        house: Map,
        start: str,
        length: int,
        goal_radius: float,
    ) -> None:
        super().__init__(env_spec, num_envs, seed, first_index)
        self.house, self._length_limit, self._goal_radius = house, length, goal_radius
        self._floor = floor(house.walls, house.world_size)
        self._free = np.flatnonzero(~self._floor.touching) if start == "anywhere" else None
        if self._free is None:
            check_starts(self._floor, np.array([house.start], np.float32))
        elif not len(self._free):
            raise ValueError("no place in the map is as far from every wall as a robot's radius: enlarge the rooms")
        self.pose, self.sensors = np.zeros((num_envs, 3), np.float32), np.zeros((num_envs, SENSORS), np.float32)
        self._scene = Scene(house)
        self._said: dict[bytes, int] = {}  # text id by situation
        self._sensed = spaces.Box(0, np.array([REACH] * 3 + [1] * 2, np.float32), dtype=np.float32)
        self.single_observation_space = spaces.Dict(
            self.env_spec.observation_space().spaces | {"sensors": self._sensed}
        )
        self.single_action_space = spaces.Box(-FASTEST, FASTEST, (2,), np.float32)
        self.action_space = batch_space(self.single_action_space, num_envs)

    @cached_property
    def observation_space(self) -> spaces.Dict:  # type: ignore[override]
        """As of `VectorEnv`, with the sensors' bounds."""
        return spaces.Dict(super().observation_space.spaces | {"sensors": batch_space(self._sensed, self.num_envs)})

    # ---- episodes and steps -------------------------------------------------------------------------------------

    def _start(self, index: NDArray[np.intp], seeds: NDArray[np.int64]) -> None:
        self.pose[index] = self.house.start
        if self._free is not None:
            for i, seed in zip(index.tolist(), seeds.tolist(), strict=True):
                generator = np.random.default_rng(seed)
                row, column = divmod(int(generator.choice(self._free)), self._floor.width)
                x, y, heading = generator.uniform(-1, 1, 3)  # within the pixel, less a margin for rounding
                self.pose[i] = (
                    (column + 0.49 * x) / self.house.scale,
                    (row + 0.49 * y) / self.house.scale,
                    np.pi * heading,
                )
        loops.begin(self._floor, self.pose, self.sensors, index)

    def _checked(self, actions: NDArray[Any]) -> NDArray[Any]:
        actions = super()._checked(actions)
        if actions.dtype.kind not in "iuf" or np.isnan(actions).any():
            raise ValueError(f"actions of {self.env_spec.id} are numbers: one is not")
        return actions

    def _advance(self, actions: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.bool_], NDArray[np.bool_]]:
        loops.advance(self._floor, self.pose, self.sensors, np.ascontiguousarray(actions, np.float32))
        far = np.hypot(self.pose[:, X] - self.house.goal[0], self.pose[:, Y] - self.house.goal[1])
        reached = far <= self._goal_radius
        return reached.astype(np.float32), reached, self._length + 1 >= self._length_limit

    def _replay(self, lengths: NDArray[np.int32], log: NDArray[Any]) -> None:
        loops.replay(self._floor, self.pose, self.sensors, lengths, np.ascontiguousarray(log, np.float32))

    # ---- what is seen and said ----------------------------------------------------------------------------------

    def _observe(self, index: NDArray[np.intp] | slice) -> Observation:
        obs: Observation = {"sensors": self.sensors[index].copy()}
        if "caption" in self.env_spec.fields:
            obs["caption"] = self._captions(self.pose[index], self.sensors[index])
        return obs

    def _captions(self, pose: NDArray[np.float32], sensors: NDArray[np.float32]) -> NDArray[np.int32]:
        """Ids of the texts that tell situations; a text is written when its situation occurs for the first time."""
        places, pixels = self._scene.pixels(pose)
        tile = self._scene.tiles[pixels[:, 1], pixels[:, 0]]
        touch = sensors[:, [LEFT_BUMPER, RIGHT_BUMPER]].astype(np.int8)
        situations = np.column_stack([tile, self._scene.sides(places)[0], touch])
        ids = np.empty(len(pose), np.int32)
        for i, situation in enumerate(situations):
            key = situation.tobytes()
            if key not in self._said:
                self._said[key] = self.texts.intern(". ".join(self._scene.sentences(situation.tolist())))
            ids[i] = self._said[key]
        return ids

    def captions(self, obs: Observation) -> list[list[str]]:
        """Sentences of the captions of N observations, dense or as strings.

        Raises:
            LookupError: they were not observed; says what to do.
        """
        return self._sentences(obs, ("caption",), "set env.captions=true")

    def frame(self, i: int) -> NDArray[np.uint8]:
        """RGB picture of env i, uint8 [H, W, 3]: the house, the robot and its lasers."""
        return draw(
            self._scene, float(self.pose[i, X]), float(self.pose[i, Y]), float(self.pose[i, HEADING]), self.sensors[i]
        )
