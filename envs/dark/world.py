"""Dark rooms: something is hidden in a room, and only its reward tells where. N of them behind the contract of
`envs.api`. Published for learning in context: who plays a task again and again can do better each time.

Actions: 0 north, 1 east, 2 south, 3 west, 4 stay; at a wall, one stays.
Observation: `row` category in [0, height), `column` category in [0, width), counted from the top left; or with
`observe=coordinates` both in `position` float32 [2], as they are, not scaled: a step changes it alike in every room.
Reward: Room: 1 for each step that ends on the goal. KeyDoor: 1 for the step that ends on the key, which is taken then;
after that, also from that very step on, 1 for each step that ends at the door.
Termination: never. Truncation: after `Config.length` steps, without it as many as there are cells.
Success: the goal, or the door with the key, was reached.
Task: the goal's cell, and the key's, as the episode's seed says: see `tasks` and `EnvSpec.task`.
Ids: dark/Room-WxH and dark/KeyDoor-WxH, W columns and H rows of 3 to 100 each, as in the published names: 40x20 has 40
columns.

With `rules=legacy` a key is taken for good: env i keeps it in all later episodes of the same task, where the door pays
without it, and it pays nothing more. So it was in the published system. What an episode pays is no function of its seed
then.

A step of 1,024 rooms is a look-up of cells and three comparisons of arrays; most of its time is the contract's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.api import EnvSpec, Observation, VectorEnv
from envs.dark.tasks import Tasks
from envs.native.random import episode_seeds
from envs.picture import draw

ACTION_NAMES = ("north", "east", "south", "west", "stay")
NORTH, EAST, SOUTH, WEST, STAY = range(len(ACTION_NAMES))
_STEPS = ((-1, 0), (0, 1), (1, 0), (0, -1), (0, 0))  # rows and columns, by action
_FLOOR, _GOAL, _DOOR, _KEY = (60, 60, 66), (96, 176, 96), (168, 112, 56), (232, 200, 72)


class Dark(VectorEnv):
    """N rooms of one size.

    Args:
        args: as `VectorEnv`.
        width, height: of the room.
        tasks: what is hidden where.
        keyed: there is a key, and the goal is a door.
        legacy: keys are taken for good.
        start: cell where episodes begin.
        length: steps of an episode.

    Attributes:
        task: int64 [N], of the running episodes.
        cell, goal, key: int64 [N], cells of the player, the goal or door, and the key, row * width + column.
        holding: bool [N], the goal pays; without a key, always.
        reached: bool [N], it has paid in this episode.
        row_of, column_of: int64 [cells].
        position_of: float32 [cells, 2], row and column.
    """

    def __init__(
        self,
        env_spec: EnvSpec,
        num_envs: int,
        seed: int = 0,
        first_index: int = 0,
        *,
        width: int,
        height: int,
        tasks: Tasks,
        keyed: bool,
        legacy: bool,
        start: int,
        length: int,
    ) -> None:
        super().__init__(env_spec, num_envs, seed, first_index)
        self._tasks, self._keyed, self._place, self._limit = tasks, keyed, start, length
        self.row_of, self.column_of = np.divmod(np.arange(width * height), width)
        self.position_of = np.stack([self.row_of, self.column_of], 1).astype(np.float32)
        self._moved = np.stack(  # cell by action and cell
            [
                np.clip(self.row_of + down, 0, height - 1) * width + np.clip(self.column_of + right, 0, width - 1)
                for down, right in _STEPS
            ]
        )
        self.task, self.cell, self.goal, self.key = np.zeros((4, num_envs), np.int64)
        self.holding, self.reached = np.zeros((2, num_envs), np.bool_)
        # Whether env i held the key of a task in an episode before the running one.
        self._kept = np.zeros((num_envs, len(tasks.goal)), np.bool_) if legacy else None

    # ---- episodes and steps -------------------------------------------------------------------------------------

    def _derived_seeds(self, index: NDArray[np.intp], episode: NDArray[np.int64]) -> NDArray[np.int64]:
        return episode_seeds(self._root[index], self._streams[index], episode)

    def _start(self, index: NDArray[np.intp], seeds: NDArray[np.int64]) -> None:
        before, task = self.task[index], self.env_spec.task(seeds)
        if self._kept is not None:
            self._kept[index, before] |= self.holding[index]
            self.holding[index] = self._kept[index, task]
        else:
            self.holding[index] = not self._keyed
        self.task[index], self.cell[index], self.reached[index] = task, self._place, False
        self.goal[index], self.key[index] = self._tasks.goal[task], self._tasks.key[task]

    def _advance(self, actions: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.bool_], NDArray[np.bool_]]:
        reward = self._move(slice(None), actions)
        return reward, np.zeros(self.num_envs, np.bool_), self._length + 1 >= self._limit

    def _move(self, index: NDArray[np.intp] | slice, actions: NDArray[Any]) -> NDArray[np.float32]:
        """Envs `index` take their actions; what that pays."""
        cell, held = self._moved[actions, self.cell[index]], self.holding[index]
        taken = ~held & (cell == self.key[index])
        held = held | taken
        paid = held & (cell == self.goal[index])
        self.cell[index], self.holding[index] = cell, held
        self.reached[index] |= paid
        reward: NDArray[np.float32] = np.add(taken, paid, dtype=np.float32)
        return reward

    def _replay(self, lengths: NDArray[np.int32], log: NDArray[Any]) -> None:
        for step in range(int(lengths.max())):
            index = np.flatnonzero(lengths > step)
            self._total[index] += self._move(index, log[index, step])

    def _success(self, reward: NDArray[np.float32], terminated: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return self.reached

    def _observe(self, index: NDArray[np.intp] | slice) -> Observation:
        cell = self.cell[index]
        if "position" in self.env_spec.fields:
            return {"position": self.position_of[cell]}
        return {"row": self.row_of[cell], "column": self.column_of[cell]}

    # ---- state between two steps --------------------------------------------------------------------------------

    def state(self) -> dict[str, NDArray[Any]]:
        """As of `VectorEnv`; with `rules=legacy` also `kept`, bool [N, tasks], as it was when the episode began."""
        kept = {} if self._kept is None else {"kept": self._kept.copy()}
        return super().state() | kept

    def restore(self, state: dict[str, NDArray[Any]]) -> Observation:
        """As of `VectorEnv`."""
        if self._kept is not None:
            self._check_state(state)
            self._kept[:] = state["kept"]
            self.holding[:] = False  # what is held here is forgotten
        return super().restore(state)

    def _check_state(self, state: dict[str, NDArray[Any]]) -> None:
        super()._check_state(state)
        if (longest := state["length"].max()) >= self._limit:
            raise ValueError(f"the state has an episode of {longest} steps, but those of this env have {self._limit}")
        if (self._kept is None) != ("kept" not in state):
            here, there = ("strict", "legacy") if self._kept is None else ("legacy", "strict")
            raise ValueError(f"the state is of env.rules={there}, this env has rules={here}: use {there}")
        if self._kept is not None and (state["kept"].shape != self._kept.shape or state["kept"].dtype != np.bool_):
            raise ValueError("the state is of another env.split: it keeps the keys of other tasks")

    # ---- pictures -----------------------------------------------------------------------------------------------

    def frame(self, i: int) -> NDArray[np.uint8]:
        """RGB picture of env i, uint8 [k H, k W, 3]: the player, the goal or door, and a key that is not taken."""
        self._require_begun()
        cells = np.full((len(self.row_of), 3), _FLOOR, np.uint8)
        cells[self.goal[i]] = _DOOR if self._keyed else _GOAL
        if not self.holding[i]:
            cells[self.key[i]] = _KEY
        cell = int(self.cell[i])
        row, column = int(self.row_of[cell]), int(self.column_of[cell])
        return draw(cells.reshape(int(self.row_of[-1]) + 1, -1, 3), row, column)
