"""BabyAI: language instructions in grid rooms. N of them behind the contract of `envs.api`.

Mission: a sentence of the grammar in `envs.babyai.missions`, for example "go to the red ball" or "pick up a grey box,
then put the blue key next to a door". English or French.
Actions: 0 turn left, 1 turn right, 2 go forward, 3 pick up, 4 drop, 5 toggle, 6 done (does nothing). `Config.actions`
keeps the first of them only; `Config.idle_actions` adds names of actions that do nothing.
Observation: `image` uint8 [7, 7, 3], the agent's view as (object, colour, state) at [column, row]; `direction`
category in [0, 4); `mission` text; with `Config.captions` also `caption` text, the sentences of `describe`; with
`Config.distance` also `distance`, float32 [1] in [0, 1], which no policy sees.
Reward: 1 - 0.9 * steps / limit when the mission is accomplished, else 0.
Termination: the mission is accomplished, or has become impossible where a level is strict. Truncation: at the level's
limit of steps, which depends on the mission, or at `Config.max_steps`.
Ids: `babyai/<Name>` for every `BabyAI-<Name>-v<n>` of Minigrid, and the levels of `envs.babyai.levels.OWN`.

What moves the worlds is another matter: `envs.babyai.reference` is Minigrid itself, `envs.native.babyai` is compiled
and equal to it. Here is what both share.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field as Option

from envs.api import EnvSpec, Observation, VectorEnv
from envs.babyai.grammar import Language, describe
from envs.config import Part

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

DRAWN_FIRST = 1 << 40
"""Seeds below are Minigrid's. From here on they name levels of the compiled generator."""

FAR = 1 << 15
"""Cells to what is nowhere."""

TASK_KINDS = ("go to", "pick up", "open", "put next", "sequence")
_KIND_OF_INSTRUCTION = {"GoToInstr": 0, "PickupInstr": 1, "OpenInstr": 2, "PutNextInstr": 3}


def kind_of_mission(instruction: Any) -> int:
    """Index into TASK_KINDS of a Minigrid instruction."""
    return _KIND_OF_INSTRUCTION.get(type(instruction).__name__, len(TASK_KINDS) - 1)


class Config(Part):
    """Options of every BabyAI level."""

    captions: bool = False
    """Observe also `caption`: the sentences that describe the image, as one text."""
    distance: bool = False
    """Observe also `distance`: cells to the nearest thing that the mission is about now, as a share of the world's
    width plus height. No policy sees it: it is for `method.shaping.potential=oracle`."""
    language: Literal["en", "fr"] | None = None
    """Language of missions, captions and action names. None: English, except in the levels named French."""
    fix_captions: bool = False
    """Correct the slips of the published captions: "a open" door, and English words in French "Tu portes une"."""
    actions: Annotated[int, Option(ge=1, le=7)] = 7
    """How many actions there are, of: turn left, turn right, go forward, pick up, drop, toggle, done."""
    idle_actions: list[str] = Option(default_factory=list)
    """Names of further actions, which do nothing."""
    max_steps: Annotated[int, Option(ge=1, lt=2**31)] | None = None
    """Steps after which an episode is truncated, which also scale its reward. None: the level's own limit."""
    engine: Literal["native", "minigrid"] = "native"
    """What moves the worlds: compiled code, or Minigrid itself, the reference, which is some hundred times slower."""
    levels: Literal["exact", "native"] = "exact"
    """Where the native engine's episodes come from. `exact`: from Minigrid's own generator, so that every episode is
    the very one that Minigrid would play; it bounds the speed, to some 100,000 steps a second on a core. `native`: from
    a compiled generator of the same distribution (where a level has none, as `exact`, with a warning). Seeds given to
    `reset` name Minigrid's own levels either way, so evaluations do not depend on this."""
    level_workers: Annotated[int, Option(ge=0)] = 0
    """Processes that run Minigrid's generator ahead of time, for exact levels; 0: each is made when it is needed. A
    script needs `if __name__ == "__main__":` then, as with all processes that Python starts."""


class BabyAI(VectorEnv):
    """N worlds of one level.

    Args:
        args: as `VectorEnv`.
        level: its name.
        language: of missions and captions.
        config: how it is played. Actions of `env_spec` beyond `config.actions` do nothing.

    Attributes:
        started: int64 [N], how many episodes each world has begun. Tells followers (experts, engines) apart two
            episodes that carry the same counter.
        room: width plus height of the largest map of the level, in cells.
    """

    room: int

    def __init__(
        self,
        env_spec: EnvSpec,
        num_envs: int,
        seed: int = 0,
        first_index: int = 0,
        *,
        level: str,
        language: Language,
        config: Config,
    ) -> None:
        super().__init__(env_spec, num_envs, seed, first_index)
        self.level, self.language, self.config = level, language, config
        self.started = np.zeros(num_envs, np.int64)
        self._actions = config.actions

    def minigrid_action(self, action: int) -> int:
        """Index of one of our actions -> Minigrid's."""
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

    # ---- language and pictures ----------------------------------------------------------------------------------

    def captions(self, obs: Observation) -> list[list[str]]:
        """Sentences that describe each of N images, in the world's language."""
        return describe(np.asarray(obs["image"]), self.language, fix=self.config.fix_captions)

    def share_of_room(self, cells: NDArray[np.int32]) -> NDArray[np.float32]:
        """Cells [n] as the field `distance`, [n, 1]; 1 for what is nowhere."""
        return np.minimum(cells[:, None] / np.float32(self.room), 1).astype(np.float32)

    def simulator(self, i: int) -> Any:
        """A Minigrid environment in the state of env i, for what works on one only: pictures and the expert. It may be
        a copy, in that state until the env is stepped."""
        raise NotImplementedError

    def frame(self, i: int) -> NDArray[np.uint8]:
        """RGB picture of the whole map of env i with the agent's view lit, uint8 [H, W, 3]."""
        self._require_begun()
        return np.asarray(self.simulator(i).get_frame(), np.uint8)
