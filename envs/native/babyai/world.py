"""The world: BabyAI over rows, behind the contract.

    seeds ──> level (compiled generator, or Minigrid's) ──> rows ──> advance ──> look ──> image, caption, mission ids

A seed names one level, whoever asks: below `DRAWN_FIRST` the one that Minigrid's generator makes of it, from there on
the one that the compiled generator draws. With `levels=exact` episodes follow each other by seeds of the first kind,
with `levels=native` by seeds of the second, where the level has a compiled generator.

On one core, 1,024 worlds of GoToLocal make some millions of steps a second, resets included; see `benchmarks babyai`.
The limit is the observation: 49 cells to read and 147 bytes to write, 0.06 us.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.api import Observation
from envs.babyai.levels import build
from envs.babyai.symbols import VIEW
from envs.babyai.world import DONE, DRAWN_FIRST, BabyAI
from envs.native.babyai import motion
from envs.native.babyai.exact import ExactLevels
from envs.native.babyai.generators import Generator
from envs.native.babyai.layout import CARRYING, CODE, DIRECTION, KIND, KNOWN, LIMIT, MAP, NONE, THING, Index, empty_rows
from envs.native.babyai.packing import unpack
from envs.native.babyai.sight import look
from envs.native.babyai.target import cells_to_targets
from envs.native.babyai.texts import Captions, Missions
from envs.native.random import episode_seeds


class NativeBabyAI(BabyAI):
    """N worlds of one level; arguments as `BabyAI`.

    Attributes:
        rows: int16 [N, K], the worlds, as `layout` says.
        drawn: whether episodes that nobody named come from the compiled generator.
    """

    def __init__(self, *args: Any, **rest: Any) -> None:
        super().__init__(*args, **rest)
        self._max_steps, wants_drawn = self.config.max_steps, self.config.levels == "native"
        simulator = build(self.level, self._max_steps)
        self.rows = empty_rows(self.num_envs, simulator.width, simulator.height)
        self.room = simulator.width + simulator.height
        self._generator = Generator.of(simulator)
        self._exact = ExactLevels(self.level, self._max_steps, self.config.level_workers)
        self.drawn = wants_drawn and self._generator is not None
        if wants_drawn and not self.drawn:
            text = f"{self.env_spec.id} has no compiled generator: Minigrid's makes its levels, as with levels=exact"
            warnings.warn(text, stacklevel=3)
        self._starts_carrying = bool(getattr(simulator, "start_carrying", False))
        self._limit = np.zeros(self.num_envs, np.int32)
        self._missions = Missions(self.texts, self.language)
        self._captions: Captions | None = None
        if "caption" in self.env_spec.fields:
            self._captions = Captions(self.texts, self.language, self.config.fix_captions)
        self._mission = np.zeros(self.num_envs, np.int32)
        self._shadows: dict[int, tuple[int, int, Any]] = {}  # env -> (episode begun, step, its Minigrid environment)

    def begin(self, seeds: NDArray[np.int64] | None = None) -> Observation:
        """As `VectorEnv.begin`."""
        if seeds is not None:
            self._exact.forget()
        return super().begin(seeds)

    # ---- episodes -----------------------------------------------------------------------------------------------

    def _derived_seeds(self, index: Index, episode: NDArray[np.int64]) -> NDArray[np.int64]:
        return episode_seeds(self._root[index], self._streams[index], episode) + self.drawn * DRAWN_FIRST

    def _start(self, index: Index, seeds: NDArray[np.int64]) -> None:
        drawn = seeds >= DRAWN_FIRST
        if drawn.any():
            if self._generator is None:
                raise ValueError(f"seed {seeds[drawn][0]} names a drawn level, but {self.env_spec.id} has no generator")
            self._generator.fill(self.rows, index[drawn], seeds[drawn])
        if not drawn.all():
            self.rows[index[~drawn]] = self._exact.take(seeds[~drawn])
        if not self.drawn:
            self._exact.expect(self._derived_seeds(index, self._episode[index] + 1))
        self._limit[index] = self._max_steps or self.rows[index, LIMIT]
        self._mission[index] = self._missions.ids(self.rows, index)
        self.started[index] += 1

    # ---- steps --------------------------------------------------------------------------------------------------

    def _advance(self, actions: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.bool_], NDArray[np.bool_]]:
        n = self.num_envs
        reward, terminated, truncated = np.empty(n, np.float32), np.empty(n, np.bool_), np.empty(n, np.bool_)
        actions = np.ascontiguousarray(actions, np.int64)
        motion.advance(self.rows, self._length, self._limit, actions, self._usable, reward, terminated, truncated)
        return reward, terminated, truncated

    def _replay(self, lengths: NDArray[np.int32], log: NDArray[Any]) -> None:
        motion.replay(self.rows, lengths, np.ascontiguousarray(log), self._usable)

    @property
    def _usable(self) -> int:
        return min(self._actions, DONE)

    # ---- observations -------------------------------------------------------------------------------------------

    def _observe(self, index: Index | slice) -> Observation:
        rows = self._rows[index]
        image = np.empty((len(rows), VIEW, VIEW, 3), np.uint8)
        look(self.rows, rows, image)
        if self._starts_carrying:
            self._look_at_starts(rows, image)
        obs: Observation = {
            "image": image,
            "direction": self.rows[rows, DIRECTION].astype(np.int64),
            "mission": self._mission[rows],
        }
        if self._captions is not None:
            obs["caption"] = self._captions.ids(image)
        if self.config.distance:
            cells = np.empty(len(rows), np.int32)
            cells_to_targets(self.rows, rows, cells)
            obs["distance"] = self.share_of_room(cells)
        return obs

    def _look_at_starts(self, index: Index, image: NDArray[np.uint8]) -> None:
        """Minigrid draws the first image of some levels before it puts an object into the agent's hands."""
        begun = np.flatnonzero((self._length[index] == 0) & (self.rows[index, CARRYING] != NONE))
        if len(begun):
            before = self.rows[index[begun]]
            each, thing = np.arange(len(begun)), before[:, CARRYING].copy()
            before[each, MAP + before[each, KNOWN + thing]] = before[each, CODE + thing] + THING * (thing + 1)
            before[:, CARRYING] = NONE
            first = np.empty((len(begun), VIEW, VIEW, 3), np.uint8)
            look(before, each, first)
            image[begun] = first

    def _kinds(self) -> NDArray[np.int16]:
        return self.rows[:, KIND].copy()

    # ---- pictures and experts -----------------------------------------------------------------------------------

    def simulator(self, i: int) -> Any:
        """A Minigrid environment in the state of env i; asked for after every step, it is the same one each time."""
        step, taken = self.last_step(i)
        begun, at, shadow = self._shadows.get(i) or (-1, -1, build(self.level, self._max_steps))
        if begun == self.started[i] and at == step - 1:
            shadow.step(taken)
        elif begun != self.started[i] or at != step:
            unpack(self.rows[i], step, int(self._limit[i]), shadow)
        self._shadows[i] = int(self.started[i]), step, shadow
        return shadow

    def close_extras(self, **kwargs: Any) -> None:
        """End the processes that make levels, and release the copies."""
        self._exact.close()
        for _, _, shadow in self._shadows.values():
            shadow.close()
