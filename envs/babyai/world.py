"""BabyAI: language instructions in grid rooms. N Minigrid simulators behind the contract of `envs.api`.

Mission: a sentence of the grammar in `envs.babyai.missions`, for example "go to the red ball" or "pick up a grey box,
then put the blue key next to a door". English or French.
Actions: 0 turn left, 1 turn right, 2 go forward, 3 pick up, 4 drop, 5 toggle, 6 done (does nothing). `Config.actions`
keeps the first of them only; `Config.idle_actions` adds names of actions that do nothing.
Observation: `image` uint8 [7, 7, 3], the agent's view as (object, colour, state) at [column, row]; `direction`
category in [0, 4); `mission` text; with `Config.captions` also `caption` text, the sentences of `describe`.
Reward: 1 - 0.9 * steps / limit when the mission is accomplished, else 0.
Termination: the mission is accomplished, or has become impossible where a level is strict. Truncation: at the level's
limit of steps, which depends on the mission, or at `Config.max_steps`.
Ids: `babyai/<Name>` for every `BabyAI-<Name>-v<n>` of Minigrid, and the levels of `envs.babyai.levels.OWN`.

Speed: Minigrid makes an observation cell by cell, which is most of a step. Here its simulators only move; what they
change (the agent, and the cell it faces) is copied into arrays from which `envs.babyai.view` makes all observations at
once. What remains of a step is Minigrid's own bookkeeping.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.api import EnvSpec, Observation, VectorEnv
from envs.babyai.grammar import NOTHING, Language, describe
from envs.babyai.levels import build
from envs.babyai.missions import translate
from envs.babyai.symbols import VIEW
from envs.babyai.view import Views

ACTION_NAMES: dict[Language, tuple[str, ...]] = {
    "en": ("turn left", "turn right", "go forward", "pick up", "drop", "toggle", "done"),
    "fr": (
        "tourner à gauche",
        "tourner à droite",
        "aller tout droit",
        "attraper",
        "lâcher",
        "basculer",
        "ne rien faire",
    ),
}
PICK_UP, DROP, TOGGLE, DONE = 3, 4, 5, 6

TASK_KINDS = ("go to", "pick up", "open", "put next", "sequence")
_KIND_OF_INSTRUCTION = {"GoToInstr": 0, "PickupInstr": 1, "OpenInstr": 2, "PutNextInstr": 3}

_REMEMBERED_CAPTIONS = 50_000


class BabyAI(VectorEnv):
    """N simulators of one level.

    Args:
        env_spec, num_envs, seed, first_index: as `VectorEnv`.
        level: name of the level, as `envs.babyai.levels.build` takes it.
        actions: how many of Minigrid's seven actions there are; those of `env_spec` beyond do nothing.
        language: of missions and captions.
        fix_captions: correct the slips of the published captions.
        max_steps: limit of an episode, None for the level's own.

    Attributes:
        simulators: N Minigrid environments; move them through this class only.
        started: int64 [N], how many episodes each simulator has begun. Tells followers (experts, engines) apart two
            episodes that carry the same counter.
    """

    def __init__(
        self,
        env_spec: EnvSpec,
        num_envs: int,
        seed: int = 0,
        first_index: int = 0,
        *,
        level: str,
        actions: int = 7,
        language: Language = "en",
        fix_captions: bool = False,
        max_steps: int | None = None,
    ) -> None:
        super().__init__(env_spec, num_envs, seed, first_index)
        self.language = language
        self.fix_captions = fix_captions
        self.simulators = [build(level, max_steps) for _ in range(num_envs)]
        self.started = np.zeros(num_envs, np.int64)
        self.views = Views(num_envs, self.simulators[0].width, self.simulators[0].height)
        self._actions = actions
        self._image = np.zeros((num_envs, VIEW, VIEW, 3), np.uint8)
        self._stale = np.zeros(num_envs, np.bool_)  # the env has moved since its row of _image was made
        self._mission = np.zeros(num_envs, np.int32)
        self._kind = np.zeros(num_envs, np.int16)
        self._caption_of_image: dict[bytes, int] = {}

    # ---- one env at a time --------------------------------------------------------------------------------------

    def _start_one(self, i: int, seed: int) -> None:
        simulator = self.simulators[i]
        simulator.__dict__.pop("gen_obs", None)
        obs, _ = simulator.reset(seed=seed)
        simulator.gen_obs = _no_observation
        self.views.load(i, simulator)
        # Minigrid's own first image: some levels put an object into the agent's hands only after they have drawn it.
        self._image[i] = obs["image"]
        self._stale[i] = False
        mission = obs["mission"] if self.language == "en" else translate(obs["mission"])
        self._mission[i] = self.texts.intern(mission)
        self._kind[i] = _KIND_OF_INSTRUCTION.get(type(simulator.instrs).__name__, len(TASK_KINDS) - 1)
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

    def minigrid_action(self, action: int) -> int:
        """Index of one of our actions -> Minigrid's.

        Raises:
            ValueError: there is no such action.
        """
        if not 0 <= action < len(self.env_spec.action_names):
            raise ValueError(f"actions of {self.env_spec.id} are 0 to {len(self.env_spec.action_names) - 1}: {action}")
        return action if action < self._actions else DONE

    # ---- what an expert asks ------------------------------------------------------------------------------------

    def last_step(self, i: int) -> tuple[int, int]:
        """Steps of env i's running episode, and the last action in it as Minigrid's (of no meaning at step 0)."""
        step = int(self._length[i])
        return step, self.minigrid_action(int(self._log[i, max(step - 1, 0)]))

    def has_action(self, minigrid_action: int) -> bool:
        """Is Minigrid's action one of ours?"""
        return minigrid_action < self._actions

    @property
    def idle_action(self) -> int | None:
        """An action of ours that does nothing, None if all do something."""
        if self._actions > DONE:
            return DONE
        return self._actions if len(self.env_spec.action_names) > self._actions else None

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
        return obs

    def _kinds(self) -> NDArray[np.int16]:
        return self._kind.copy()

    # ---- language and pictures ----------------------------------------------------------------------------------

    def captions(self, obs: Observation) -> list[list[str]]:
        """Sentences that describe each of N images, in the world's language."""
        fixes = {"fix_open": self.fix_captions, "fix_carried": self.fix_captions}
        return describe(np.asarray(obs["image"]), self.language, **fixes)

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

    def frame(self, i: int) -> NDArray[np.uint8]:
        """RGB picture of the whole map of env i with the agent's view lit, uint8 [H, W, 3]."""
        return np.asarray(self.simulators[i].get_frame(), np.uint8)

    def close_extras(self, **kwargs: Any) -> None:
        """Release the simulators."""
        for simulator in self.simulators:
            simulator.close()


def _no_observation() -> dict[str, Any]:
    """Stands in for `gen_obs` of a simulator while it is stepped: `Views` makes the observations."""
    return {}
