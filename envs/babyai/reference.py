"""BabyAI moved by Minigrid itself: the reference that the compiled engine is held to.

N Minigrid environments behind the contract. Minigrid makes an observation cell by cell, which is most of a step. Here
its simulators only move; what they change (the agent, and the cell it faces) is copied into arrays from which
`envs.babyai.view` makes all observations at once. What remains of a step is Minigrid's own bookkeeping.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from minigrid.envs.babyai.core.verifier import AfterInstr, AndInstr, BeforeInstr, PutNextInstr
from numpy.typing import NDArray

from envs.api import Observation
from envs.babyai.grammar import NOTHING
from envs.babyai.levels import build
from envs.babyai.missions import translate
from envs.babyai.symbols import VIEW
from envs.babyai.view import Views
from envs.babyai.world import DRAWN_FIRST, FAR, PICK_UP, TOGGLE, BabyAI, kind_of_mission

_REMEMBERED_CAPTIONS = 50_000


class SimulatedBabyAI(BabyAI):
    """N simulators of one level; arguments as `BabyAI`.

    Attributes:
        simulators: N Minigrid environments; move them through this class only.
    """

    def __init__(self, *args: Any, **rest: Any) -> None:
        super().__init__(*args, **rest)
        num_envs = self.num_envs
        self.simulators = [build(self.level, self.config.max_steps) for _ in range(num_envs)]
        self.views = Views(num_envs, self.simulators[0].width, self.simulators[0].height)
        self.room = self.simulators[0].width + self.simulators[0].height
        self._image = np.zeros((num_envs, VIEW, VIEW, 3), np.uint8)
        self._stale = np.zeros(num_envs, np.bool_)  # the env has moved since its row of _image was made
        self._mission = np.zeros(num_envs, np.int32)
        self._kind = np.zeros(num_envs, np.int16)
        self._caption_of_image: dict[bytes, int] = {}

    # ---- one env at a time --------------------------------------------------------------------------------------

    def _start_one(self, i: int, seed: int) -> None:
        if seed >= DRAWN_FIRST:
            raise ValueError(f"seed {seed} names a level of the compiled generator: engine=native plays it")
        simulator = self.simulators[i]
        simulator.__dict__.pop("gen_obs", None)
        obs, _ = simulator.reset(seed=seed)
        simulator.gen_obs = dict  # `Views` makes the observations
        self.views.load(i, simulator)
        # Minigrid's own first image: some levels put an object into the agent's hands only after they have drawn it.
        self._image[i] = obs["image"]
        self._stale[i] = False
        mission = obs["mission"] if self.language == "en" else translate(obs["mission"])
        self._mission[i] = self.texts.intern(mission)
        self._kind[i] = kind_of_mission(simulator.instrs)
        self.started[i] += 1

    def _step_one(self, i: int, action: Any) -> tuple[float, bool, bool]:
        action = self.minigrid_action(int(action))
        simulator = self.simulators[i]
        x, y = self.views.front(i)
        _, reward, terminated, truncated, _ = simulator.step(action)
        if PICK_UP <= action <= TOGGLE:
            self.views.put(i, x, y, simulator.grid.get(x, y))
        self.views.follow(i, simulator)
        self._stale[i] = True
        return float(reward), bool(terminated), bool(truncated)

    # ---- all at once --------------------------------------------------------------------------------------------

    def _observe(self, index: NDArray[np.intp] | slice) -> Observation:
        stale = np.flatnonzero(self._stale)
        if len(stale):
            self._image[stale] = self.views.images(stale)
            self._stale[stale] = False
        rows = np.arange(self.num_envs)[index]
        obs: Observation = {
            "image": self._image[rows],
            "direction": self.views.direction[rows],
            "mission": self._mission[rows],
        }
        if "caption" in self.env_spec.fields:
            obs["caption"] = self._captions(obs["image"])
        if self.config.distance:
            cells = [cells_to_target(self.simulators[i]) for i in rows]
            obs["distance"] = self.share_of_room(np.array(cells, np.int32))
        return obs

    def _kinds(self) -> NDArray[np.int16]:
        return self._kind.copy()

    def _captions(self, images: NDArray[np.uint8]) -> NDArray[np.int32]:
        """Text ids [N] of whole captions: sentences joined by ". "; the same image is described once."""
        known = self._caption_of_image
        keys = [image.tobytes() for image in images]
        new = [i for i, key in enumerate(keys) if key not in known]
        if new:
            if len(known) > _REMEMBERED_CAPTIONS:
                known.clear()
                new = list(range(len(keys)))
            for i, sentences in zip(new, self.captions({"image": images[new]}), strict=True):
                known[keys[i]] = self.texts.intern(". ".join(sentences) or NOTHING[self.language])
        return np.array([known[key] for key in keys], np.int32)

    def simulator(self, i: int) -> Any:
        """The Minigrid environment that is env i."""
        return self.simulators[i]

    def close_extras(self, **kwargs: Any) -> None:
        """Release the simulators."""
        for simulator in self.simulators:
            simulator.close()


def cells_to_target(simulator: Any) -> int:
    """How many cells lie between the agent and the nearest thing that the mission is about now, 0 where it is carried.

    Walls and doors on the way do not count. Things are where the verifier believes them to be; `FAR` if nowhere.
    """
    turn, success = simulator.instrs, cast(Any, "success")  # Minigrid says that what is done is a bool
    if isinstance(turn, BeforeInstr):
        turn = turn.instr_b if turn.a_done == success else turn.instr_a
    elif isinstance(turn, AfterInstr):
        turn = turn.instr_a if turn.b_done == success else turn.instr_b
    if isinstance(turn, AndInstr):
        turn = turn.instr_b if turn.a_done == success else turn.instr_a
    puts = isinstance(turn, PutNextInstr)
    meant = turn.desc_move if puts else turn.desc
    if any(simulator.carrying is thing for thing in meant.obj_set):
        if not puts:
            return 0
        meant = turn.desc_fixed
    x, y = simulator.agent_pos
    places = [at for at in meant.obj_poss if simulator.grid.get(*at) is None or simulator.grid.get(*at).type != "wall"]
    return min((max(abs(i - x) + abs(j - y) - 1, 0) for i, j in places), default=FAR)
