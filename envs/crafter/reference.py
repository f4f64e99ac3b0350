"""Crafter moved by its own simulator: the reference that the compiled engine is held to.

N of upstream's `crafter.Env` behind the contract, with three differences, each said where it is made: which creature a
chunk loses does not depend on memory addresses, pictures do not draw from the stream that moves the world, and two
numbers of the game are options.
"""

from __future__ import annotations

from typing import Any

import crafter
import numpy as np
from crafter import constants, engine, objects
from numpy.typing import NDArray

from envs.crafter.rules import (
    ACHIEVEMENTS,
    AREA,
    CRAFTER,
    FACINGS,
    GAME_ACTIONS,
    ITEMS,
    MOST,
    NONE,
    OBJECTS,
    PLANT,
    RIPE,
    VIEW,
    Rules,
)
from envs.crafter.world import Crafter
from envs.native.crafter.picture import noise

_COLUMNS, _LINES = VIEW[0] // 2, VIEW[1] // 2  # of the view on each side of the player


class World(engine.World):  # type: ignore[misc]
    """Upstream's world."""

    @property
    def chunks(self) -> dict[Any, list[Any]]:
        """Objects by chunk, oldest first. Upstream has them in sets, whose order is that of memory addresses, and draws
        the creature that disappears by its place there."""
        return {chunk: sorted(members, key=self._age) for chunk, members in self._chunks.items()}

    def _age(self, thing: Any) -> int:
        return int(self._obj_map[tuple(thing.pos)])  # objects are numbered as they come


class Player(objects.Player):  # type: ignore[misc]
    """Upstream's player, which can be given other rules, and tells whether its last action changed the game.

    Attributes:
        rules: the damage of a bare hand and the price of a table are taken from here. Upstream has them as a constant,
            and in a table that all its environments share.
        effect: whether the last action changed the game as it was meant to.
    """

    rules: Rules = CRAFTER
    effect: bool = False

    def update(self) -> None:
        """A turn."""
        place, held, counts = tuple(self.pos), dict(self.inventory), dict(self.achievements)
        ahead = self.world[self.pos + self.facing][1]
        tired = held["energy"] < MOST
        awake = not (self.sleeping and tired)
        super().update()
        done = {name for name, count in self.achievements.items() if count > counts[name]}
        if self.action == "sleep":
            self.effect = tired
        elif self.action.startswith("move_"):
            self.effect = awake and tuple(self.pos) != place
        elif self.action == "do":
            collected = {item for item in ITEMS if f"collect_{item}" in done and held[item] < MOST}
            hit = isinstance(ahead, objects.Zombie | objects.Skeleton | objects.Cow)
            self.effect = awake and (hit or "eat_plant" in done or bool(collected))
        else:
            self.effect = self.action in done

    def _do_object(self, thing: Any) -> None:
        if isinstance(thing, objects.Zombie | objects.Skeleton | objects.Cow):
            # Upstream takes the best of 1 and the swords': what our hand does more is taken before.
            strengths = {"wood_sword": 2, "stone_sword": 3, "iron_sword": 5}
            best = max([1, *(damage for sword, damage in strengths.items() if self.inventory[sword])])
            thing.health -= max(self.rules.damage, best) - best
        super()._do_object(thing)

    def _place(self, name: str, target: Any, material: str | None) -> None:
        # Upstream's price of a table is paid, and the difference to ours lent before.
        lent = constants.place["table"]["uses"]["wood"] - self.rules.table_wood if name == "table" else 0
        tables = self.achievements["place_table"]
        self.inventory["wood"] += lent
        super()._place(name, target, material)
        if self.achievements["place_table"] == tables:
            self.inventory["wood"] -= lent


class Simulator(crafter.Env):  # type: ignore[misc]
    """One of upstream's environments that is only drawn when asked for a picture."""

    def __init__(self, rules: Rules) -> None:
        super().__init__(seed=0, length=None)
        self._rules = rules
        self._world.__class__ = World  # upstream names its classes where it makes them
        self._sem_view = tuple  # of the whole map: nobody looks

    def begin(self, seed: int) -> None:
        """The first episode of `crafter.Env(seed=seed)`."""
        self._seed, self._episode = seed, 0
        self.reset()
        self._player.__class__ = Player
        self._player.rules = self._rules

    def picture(self, side: int) -> NDArray[np.uint8]:
        """What upstream draws, [side, side, 3]. Its noise at night is drawn from the stream that moves the world, so
        that looking at a game would change it: ours follows from the seed and the step."""
        random, self._world.random = self._world.random, _Noise(self._seed, self._step)
        try:
            return np.asarray(self.render((side, side)), np.uint8)
        finally:
            self._world.random = random

    def _obs(self) -> None:
        """Nothing is drawn in a step."""


class _Noise:
    """Stands in for the random numbers of the world while it is drawn."""

    def __init__(self, seed: int, step: int) -> None:
        self._seed, self._step = seed, step

    def uniform(self, low: float, high: float, shape: tuple[int, int]) -> NDArray[np.float64]:
        numbers = np.empty(shape)
        noise(self._seed, self._step, numbers)
        return numbers


class SimulatedCrafter(Crafter):
    """N simulators; arguments as `Crafter`.

    Attributes:
        simulators: N of upstream's environments; move them through this class only.
    """

    def __init__(self, *args: Any, **rest: Any) -> None:
        super().__init__(*args, **rest)
        self.simulators = [Simulator(self.rules) for _ in range(self.num_envs)]

    def _generate(self, index: NDArray[np.intp], seeds: NDArray[np.int64]) -> None:
        for i, seed in zip(index.tolist(), seeds.tolist(), strict=True):
            self.simulators[i].begin(seed)
            self._see(i)

    def _act(self, index: NDArray[np.intp], actions: NDArray[np.int64]) -> None:
        for i, action in zip(index.tolist(), actions.tolist(), strict=True):
            self.simulators[i].step(action)
            self._see(i)

    def _see(self, i: int) -> None:
        world, player = self.simulators[i]._world, self.simulators[i]._player
        x, y = player.pos.tolist()
        materials = np.zeros((AREA + 2 * _COLUMNS, AREA + 2 * _LINES), np.uint8)
        materials[_COLUMNS:-_COLUMNS, _LINES:-_LINES] = world._mat_map
        symbols = self.symbols[i]
        symbols[:] = 0
        symbols[..., 0] = materials[x : x + VIEW[0], y : y + VIEW[1]]
        for thing in world.objects:
            column, line = thing.pos[0] - x + _COLUMNS, thing.pos[1] - y + _LINES
            if 0 <= column < VIEW[0] and 0 <= line < VIEW[1]:
                symbols[column, line, 1] = _kind(thing)
                if hasattr(thing, "facing"):
                    symbols[column, line, 2] = FACINGS.index(tuple(thing.facing))
        material, thing = world[player.pos + player.facing]
        self.ahead[i] = world._mat_ids[material], _kind(thing)
        self.inventory[i] = [player.inventory[item] for item in ITEMS]
        self.achieved[i] = [player.achievements[name] for name in ACHIEVEMENTS]
        self.sleeping[i] = player.sleeping
        self.effect[i] = player.effect

    def _night(self, index: NDArray[np.intp]) -> NDArray[np.bool_]:
        return np.array([self.simulators[i]._world.daylight < 0.5 for i in index.tolist()], np.bool_)

    def _pictures(self, index: NDArray[np.intp], side: int) -> NDArray[np.uint8]:
        return np.stack([self.simulators[i].picture(side) for i in index.tolist()])


def _kind(thing: Any) -> int:
    """Of OBJECTS, as it looks."""
    if thing is None:
        return NONE
    kind = OBJECTS.index(type(thing).__name__.lower())
    return RIPE if kind == PLANT and thing.ripe else kind


assert tuple(constants.actions) == GAME_ACTIONS, "upstream's actions are ours"
