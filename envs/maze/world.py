"""Mazes with hidden goals that are to be visited in order. N of them behind the contract of `envs.api`. Published for
learning in context: who plays a maze again and again can do better each time.

Actions: 0 west, 1 north, 2 east, 3 south, 4 stay; at a wall, one stays.
Observation: `sensors` float32 [6] in [0, 1]: row, column, and how many cells are free to the west, north, east and
south, each divided by the maze's size. Goals are not seen.
Reward: 1 for each of the 1 to 3 goals, in the step that ends there when its turn has come.
Termination: at the last goal. Truncation: after `Config.length` steps.
Success: all goals were visited.
Task: walls and goals, as the episode's seed says: see `Config.split` and `EnvSpec.task`.
Ids: maze/Runner-N, N x N cells, N odd and from 7 to 51. The published ones have 15.

A step of N mazes is a look-up in tables that each maze brings along.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.api import EnvSpec, Observation, VectorEnv
from envs.maze.mazes import MOST_GOALS, STEPS, Maze
from envs.native.random import episode_seeds
from envs.picture import draw

ACTION_NAMES = ("west", "north", "east", "south", "stay")
_FLOOR, _WALL = (245, 245, 240), (48, 48, 54)
_GOALS = ((200, 60, 60), (226, 130, 60), (232, 190, 90))  # first, second, third


class Runner(VectorEnv):
    """N mazes of one size.

    Args:
        args: as `VectorEnv`.
        size: N, cells a side.
        maze: the maze of a task.
        length: steps after which an episode is truncated.

    Attributes:
        task: int64 [N], of the running episodes.
        mazes: theirs.
        cell: int64 [N], where the players are, row * size + column.
        found: int64 [N], how many goals they have visited.
        goals: int64 [N, 4], cells of the goals, -1 for none.
    """

    def __init__(
        self,
        env_spec: EnvSpec,
        num_envs: int,
        seed: int = 0,
        first_index: int = 0,
        *,
        size: int,
        maze: Callable[[int], Maze],
        length: int,
    ) -> None:
        super().__init__(env_spec, num_envs, seed, first_index)
        self._maze, self._limit = maze, length
        self.task, self.cell, self.found = np.full(num_envs, -1), *np.zeros((2, num_envs), np.int64)
        self.goals = np.full((num_envs, MOST_GOALS + 1), -1, np.int64)
        self.mazes: list[Maze] = [maze(0)] * num_envs
        self._count = np.zeros(num_envs, np.int64)
        self._moves = np.zeros((num_envs, size * size, len(STEPS)), np.int16)
        self._sensors = np.zeros((num_envs, size * size, 6), np.float32)

    # ---- episodes and steps -------------------------------------------------------------------------------------

    def _derived_seeds(self, index: NDArray[np.intp], episode: NDArray[np.int64]) -> NDArray[np.int64]:
        return episode_seeds(self._root[index], self._streams[index], episode)

    def _start(self, index: NDArray[np.intp], seeds: NDArray[np.int64]) -> None:
        for i, task in zip(index.tolist(), self.env_spec.task(seeds).tolist(), strict=True):
            if task != self.task[i]:
                maze = self.mazes[i] = self._maze(task)
                self.task[i], self._count[i] = task, len(maze.goals)
                self.goals[i] = -1
                self.goals[i, : len(maze.goals)] = maze.goals
                self._moves[i], self._sensors[i] = maze.moves, maze.sensors
            self.cell[i], self.found[i] = self.mazes[i].start, 0

    def _advance(self, actions: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.bool_], NDArray[np.bool_]]:
        reward = self._move(self._rows, actions)
        terminated = self.found == self._count
        return reward, terminated, (self._length + 1 >= self._limit) & ~terminated

    def _move(self, index: NDArray[np.intp], actions: NDArray[Any]) -> NDArray[np.float32]:
        """Envs `index` take their actions; what that pays."""
        cell, found = self._moves[index, self.cell[index], actions], self.found[index]
        reached = cell == self.goals[index, found]
        self.cell[index], self.found[index] = cell, found + reached
        paid: NDArray[np.float32] = reached.astype(np.float32)
        return paid

    def _replay(self, lengths: NDArray[np.int32], log: NDArray[Any]) -> None:
        for step in range(int(lengths.max())):
            index = np.flatnonzero(lengths > step)
            self._total[index] += self._move(index, log[index, step])

    def _check_state(self, state: dict[str, NDArray[Any]]) -> None:
        super()._check_state(state)
        if (longest := state["length"].max()) >= self._limit:
            raise ValueError(f"the state has an episode of {longest} steps, but those of this env have {self._limit}")

    def _observe(self, index: NDArray[np.intp] | slice) -> Observation:
        rows = self._rows[index]
        return {"sensors": self._sensors[rows, self.cell[rows]]}

    # ---- pictures -----------------------------------------------------------------------------------------------

    def frame(self, i: int) -> NDArray[np.uint8]:
        """RGB picture of env i, uint8 [k size, k size, 3]: walls, the player, and the goals that are left."""
        self._require_begun()
        maze = self.mazes[i]
        colours = np.where(maze.walls[..., None], _WALL, _FLOOR).astype(np.uint8)
        for k in range(len(maze.goals) - 1, int(self.found[i]) - 1, -1):
            colours.reshape(-1, 3)[maze.goals[k]] = _GOALS[k]
        return draw(colours, *divmod(int(self.cell[i]), len(maze.walls)))
