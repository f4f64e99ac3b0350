"""Crafter: gather, build and survive in a wilderness of 64 x 64 cells. N of them behind the contract of `envs.api`.

Actions: `standard`: the simulator's 17, where "do" is whatever can be done to what is in front. `named`: the 27 events
of `rules.NAMED`. `combined`: every verb with every noun, 139. An event acts only if what it names is in front: "mine
stone" before coal does nothing, as does "drink tree".
Observation: the fields of `Config.observe`; `mission` text where there is a task.
Reward: see `Config.reward`. A task's own reward is added, see `tasks`.
Termination: health is 0 (`Rules.dying`), or the task is reached and `end_on_success`. Truncation: at `Rules.length`.
Success: the task was reached; without a task, and in the task "survival", the player lives at the end.
Events: what the player did, if it succeeded: see `Config.success`. `loose` is that of Du et al. 2023; who sleeps
does nothing. Tasks count strict success only.
Ids: crafter/Standard, crafter/Text, crafter/Named.

What moves the worlds is another matter: `envs.crafter.reference` is Crafter's own simulator, `envs.native.crafter` is
compiled and equal to it. Here is what both share.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from envs.api import CELLS, FACTS, EnvSpec, Observation, VectorEnv
from envs.crafter import captions
from envs.crafter.captions import TEXTS, Captions, called
from envs.crafter.knowledge import possible
from envs.crafter.rules import (
    ACHIEVEMENTS,
    COMBINED,
    DO,
    GAME_ACTIONS,
    ITEMS,
    MATERIALS,
    MOST,
    NAMED,
    NOOP,
    NOUNS,
    OBJECTS,
    SENSIBLE,
    VIEW,
    Actions,
    Rules,
)
from envs.crafter.tasks import GOALS, Pursuit, Subgoals, Task

Reward = Literal["achievements", "crafter", "none"]
Success = Literal["strict", "loose", "any"]
Index = NDArray[np.intp]
Numbers = NDArray[np.int64]

SEEN, SHOWN = 64, 126  # pixels a side of pictures: what players see, as in the simulator, and what people are shown

# Events are numbered as in `COMBINED`, nouns as in `NOUNS`. Tables by event or noun end in a row for -1, none.
ATTACK_COW, EAT_COW = COMBINED.index("attack cow"), COMBINED.index("eat cow")
EATEN = ACHIEVEMENTS.index("eat_cow")


def _noun(name: str) -> int:
    return NOUNS.index(name) if name in NOUNS else -1


def _front(material: int, thing: int) -> int:
    """The noun that a cell is called by, ripe plants by that of plants."""
    return _noun(called(material, thing).removeprefix("ripe "))


def _item(noun: str) -> int:
    item = "sapling" if noun == "plant" else noun.replace(" ", "_")
    return ITEMS.index(item) if item in ITEMS else -1


FRONT = np.array([[_front(m, o) for o in range(len(OBJECTS))] for m in range(len(MATERIALS))])
"""Noun by (material, object), -1 for what no event names."""
_ITEM_OF_NOUN = np.array([_item(noun) for noun in NOUNS] + [-1])
_NOUN_OF_EVENT = np.array([_noun(event.partition(" ")[2]) for event in COMBINED] + [-1])
_ACTS = [SENSIBLE.get(event, ("noop", "")) for event in COMBINED] + [("noop", "")]
_GAME_OF_EVENT = np.array([GAME_ACTIONS.index(action) for action, _ in _ACTS])
_NEEDED_IN_FRONT = np.array([_noun(noun) for _, noun in _ACTS])
_EVENT_OF_NAMED = np.array([COMBINED.index(event) for event in NAMED])
_EVENTS = {SENSIBLE[event]: COMBINED.index(event) for event in NAMED}  # by (the simulator's action, the noun in front)
_EVENT_OF_GAME = np.array([_EVENTS.get((action, ""), -1) for action in GAME_ACTIONS])
_EVENT_OF_DO = np.array([_EVENTS.get(("do", noun), -1) for noun in NOUNS] + [-1])
_GOALS = [NAMED.index(goal) for goal in GOALS]


class Crafter(VectorEnv):
    """N worlds. An engine is a subclass that writes `_generate`, `_act`, `_night` and `_pictures`, and keeps the
    attributes up to date for the envs that they are called for.

    Args:
        args: as `VectorEnv`.
        rules: variant of the game.
        actions, reward, success: see the module.
        task: what is to be done, if anything.
        subgoals: how it is said and paid, as `Pursuit`.
        end_on_success: an episode ends when its task is reached.

    Attributes:
        symbols: uint8 [N, 9, 7, 3], the view at [column, row]: (material, object, facing); (0, 0, 0) beyond the map.
        inventory: int16 [N, 16], as `rules.ITEMS`; health is the first.
        achieved: int16 [N, 22], how often in this episode, as `rules.ACHIEVEMENTS`.
        ahead: int16 [N, 2], (material, object) of the cell in front.
        sleeping: bool [N].
        effect: bool [N], whether the last game action changed the game as it was meant.
    """

    def __init__(
        self,
        env_spec: EnvSpec,
        num_envs: int,
        seed: int = 0,
        first_index: int = 0,
        *,
        rules: Rules,
        actions: Actions = "standard",
        reward: Reward = "crafter",
        success: Success = "strict",
        task: Task | None = None,
        subgoals: Subgoals = "none",
        end_on_success: bool = False,
    ) -> None:
        super().__init__(env_spec, num_envs, seed, first_index)
        self.rules = rules
        self.symbols = np.zeros((num_envs, *VIEW, 3), np.uint8)
        self.inventory = np.zeros((num_envs, len(ITEMS)), np.int16)
        self.achieved = np.zeros((num_envs, len(ACHIEVEMENTS)), np.int16)
        self.ahead = np.zeros((num_envs, 2), np.int16)
        self.sleeping = np.zeros(num_envs, np.bool_)
        self.effect = np.zeros(num_envs, np.bool_)
        self._actions, self._reward, self._told = actions, reward, success
        self._end_on_success = end_on_success
        self._captions = Captions(self.texts)
        self._said_of_event = np.array([self.texts.intern(name) for name in COMBINED] + [-1], np.int32)
        self._pursuit = Pursuit(task, subgoals, num_envs) if task else None
        names = self._pursuit.names if self._pursuit else ()
        self._missions = np.array([self.texts.intern(name) for name in names], np.int32)

    # ---- what an engine writes ----------------------------------------------------------------------------------

    def _generate(self, index: Index, seeds: Numbers) -> None:
        """New worlds for envs `index` [M]."""
        raise NotImplementedError

    def _act(self, index: Index, actions: Numbers) -> None:
        """One step of envs `index` [M] by the simulator's actions [M]."""
        raise NotImplementedError

    def _night(self, index: Index) -> NDArray[np.bool_]:
        """Whether it is night in envs `index`, [M]."""
        raise NotImplementedError

    def _pictures(self, index: Index, side: int) -> NDArray[np.uint8]:
        """The simulator's pictures of envs `index`, [M, side, side, 3]."""
        raise NotImplementedError

    # ---- steps --------------------------------------------------------------------------------------------------

    def _start(self, index: Index, seeds: Numbers) -> None:
        self._generate(index, seeds)
        if self._pursuit:
            self._pursuit.begin(index)

    def _advance(self, actions: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.bool_], NDArray[np.bool_]]:
        reward, terminated = self._move(self._rows, actions)
        return reward, terminated, (self._length + 1 >= self.rules.length) & ~terminated

    def _replay(self, lengths: NDArray[np.int32], log: NDArray[Any]) -> None:
        for step in range(int(lengths.max())):
            index = np.flatnonzero(lengths > step)
            self._total[index] += self._move(index, log[index, step])[0]

    def _check_state(self, state: dict[str, NDArray[Any]]) -> None:
        super()._check_state(state)
        if state["length"].max() >= self.rules.length:
            longest = state["length"].max()
            raise ValueError(f"the state has an episode of {longest} steps, but env.length is {self.rules.length}")

    def _move(self, index: Index, actions: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Envs `index` [M] take `actions` [M]: reward and termination."""
        front = FRONT[self.ahead[index, 0], self.ahead[index, 1]]
        meant, game = self._meant(actions.astype(np.int64), front)
        tried = self._tried(index, meant, front)
        health, achieved = self.inventory[index, 0].astype(np.float64), self.achieved[index]
        self._act(index, game)
        new = ((self.achieved[index] > 0) & (achieved == 0)).any(1)
        done = self._done(index, meant, achieved[:, EATEN])
        reward = np.zeros(len(index)) if self._reward == "none" else new.astype(np.float64)
        if self._reward == "crafter":
            reward += (self.inventory[index, 0] - health) / 10
        terminated = (self.inventory[index, 0] <= 0) & self.rules.dying
        if self._pursuit:
            paid, reached = self._pursuit.advance(index, done, self.inventory[index], self.symbols[index])
            reward += paid
            terminated |= reached & self._end_on_success
        self.events[index] = self._said_of_event[self._named(meant, done, tried)]
        return reward.astype(np.float32), terminated

    def _meant(self, actions: Numbers, front: Numbers) -> tuple[Numbers, Numbers]:
        """The events [M] that actions mean before what is in front, -1 for none, and the simulator's actions [M]."""
        if self._actions == "standard":
            return np.where(actions == DO, _EVENT_OF_DO[front], _EVENT_OF_GAME[actions]), actions
        meant = _EVENT_OF_NAMED[actions] if self._actions == "named" else actions
        needed = _NEEDED_IN_FRONT[meant]
        return meant, np.where((needed < 0) | (needed == front), _GAME_OF_EVENT[meant], NOOP)

    def _tried(self, index: Index, meant: Numbers, front: Numbers) -> NDArray[np.bool_]:
        """Is the noun of what is meant in front of an awake player, or held?"""
        noun = _NOUN_OF_EVENT[meant]
        item = _ITEM_OF_NOUN[noun]
        held = (item >= 0) & (self.inventory[index, item] > 0)
        named: NDArray[np.bool_] = (noun == front) | held
        return named & (noun >= 0) & ~self.sleeping[index]

    def _done(self, index: Index, meant: Numbers, eaten: NDArray[np.int16]) -> Numbers:
        """The events [M] that succeeded strictly, -1 for none; a cow is eaten if it died, else attacked."""
        cow = (meant == ATTACK_COW) | (meant == EAT_COW)
        died = self.achieved[index, EATEN] > eaten
        return np.where(self.effect[index], np.where(cow, np.where(died, EAT_COW, ATTACK_COW), meant), -1)

    def _named(self, meant: Numbers, done: Numbers, tried: NDArray[np.bool_]) -> Numbers:
        """The events [M] that are told: by the player's own word for it, if it was an event of text."""
        if self._told == "any":
            return meant
        told = done
        if self._actions != "standard":
            told = np.where((done == meant) | ((done == EAT_COW) & (meant == ATTACK_COW)), meant, -1)
        return np.where((told < 0) & tried, meant, told) if self._told == "loose" else told

    def _success(self, reward: NDArray[np.float32], terminated: NDArray[np.bool_]) -> NDArray[np.bool_]:
        if self._pursuit and self._pursuit.can_be_reached:
            return self._pursuit.reached.copy()
        return self.inventory[:, 0] > 0

    def _counts(self) -> NDArray[np.int32]:
        return self.achieved.astype(np.int32)

    # ---- observations -------------------------------------------------------------------------------------------

    def _observe(self, index: Index | slice) -> Observation:
        rows = self._rows[index]
        return {name: self._field(name, rows) for name in self.env_spec.fields}

    def _field(self, name: str, rows: Index) -> NDArray[Any]:
        if name == "symbols":
            return self.symbols[rows]
        if name == "counts":
            return self.inventory[rows] / np.float32(MOST)
        if name == "pixels":
            return self._pictures(rows, SEEN)
        if name == FACTS:
            state = self.symbols[rows], self.ahead[rows], self.inventory[rows], self.sleeping[rows]
            return captions.facts(*state, self._night(rows)).astype(np.float32)
        if name == CELLS:
            return captions.cells(self.symbols[rows]).astype(np.float32)
        if name == "view":
            return self._captions.view(self.symbols[rows], self.ahead[rows])
        if name == "items":
            return self._captions.items(self.inventory[rows])
        if name == "feelings":
            return self._captions.feelings(self.inventory[rows])
        if name == "around":
            return self._captions.around(
                self.symbols[rows], self.ahead[rows], self.inventory[rows], self.sleeping[rows]
            )
        assert name == "mission"
        assert self._pursuit is not None
        return self._missions[self._pursuit.said(rows)]

    def frame(self, i: int) -> NDArray[np.uint8]:
        """The simulator's picture of env i, uint8 [126, 126, 3]: larger than players see it, so that people can read
        the numbers in it."""
        self._require_begun()
        picture: NDArray[np.uint8] = self._pictures(self._rows[[i]], SHOWN)[0]
        return picture

    # ---- language -----------------------------------------------------------------------------------------------

    def captions(self, obs: Observation) -> list[list[str]]:
        """Sentences of the text fields of N observations, dense or as strings.

        Raises:
            LookupError: none is observed; says what to do.
        """
        return self._sentences(obs, TEXTS, "add view, items or around to env.observe")

    def situations(self) -> NDArray[np.int32]:
        """See `VectorEnv`: what is in view and faced, what is held, and whether the player is sleepy."""
        self._require_begun()
        return self._captions.situation(self.symbols, self.ahead, self.inventory)

    def tell(self, facts: NDArray[np.int64]) -> dict[str, NDArray[np.int32]]:
        """See `VectorEnv`: `view`, `items`, `feelings` and `situation`."""
        return self._captions.tell(facts)

    def possible_goals(self) -> NDArray[np.bool_]:
        """See `VectorEnv`: what they are about is in view, what they take is held, nothing speaks against them."""
        self._require_begun()
        return possible(self.inventory, self.symbols, self.rules)[:, _GOALS]
