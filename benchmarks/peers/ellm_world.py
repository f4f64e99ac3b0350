"""Crafter as the published loop sees it: one of upstream's simulators, described in words and played with 139 actions.

Our sentences and the rules of Du et al. 2023, written here once more without arrays of worlds: sets, strings and a
dictionary. `benchmarks.ellm` checks that both sides give the same words. Pictures are drawn only on request.

Limit: upstream's simulator, some 0.5 ms a step and 40 ms a new world.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from crafter import engine
from numpy.typing import NDArray

from envs.crafter.captions import held
from envs.crafter.reference import Simulator
from envs.crafter.rules import (
    COMBINED,
    ELLM,
    GAME_ACTIONS,
    ITEMS,
    MATERIALS,
    MOST,
    NOOP,
    NOUNS,
    SENSIBLE,
    SYNONYMS,
    VIEW,
    VITALS,
)
from envs.crafter.tasks import needs

UNTOLD = {"nothing", "sand"}
UNFACED = {"", "path", "lava"}
GROUND = ["" if name in UNTOLD else "crafting table" if name == "table" else name for name in MATERIALS]
MATERIAL: dict[str | None, str] = {None: "", **dict(zip(MATERIALS, GROUND, strict=True))}
HELD = sorted(((held(item), item) for item in ITEMS[VITALS:]), key=lambda pair: pair[0].partition(" ")[2])
FEELINGS = tuple(zip(("hurt", "hungry", "thirsty", "sleepy"), ITEMS[:VITALS], strict=True))
NEEDS = needs(ELLM.table_wood)
ACROSS, DOWN = VIEW[0] // 2, VIEW[1] // 2
THRESHOLD = 0.95  # of cosine similarity, as our own `method.goals.threshold`


@dataclass(frozen=True)
class Event:
    """One of the 139 actions."""

    name: str
    noun: str  # "" for a verb alone
    item: str  # the inventory item that the noun names, or ""
    game: int  # the simulator's action
    needed: str  # what must be in front

    @classmethod
    def called(cls, name: str) -> Event:
        noun = name.partition(" ")[2]
        noun = noun if noun in NOUNS else ""
        game, needed = SENSIBLE.get(name, ("noop", ""))
        item = "sapling" if noun == "plant" else noun.replace(" ", "_")
        return cls(name, noun, item if item in ITEMS else "", GAME_ACTIONS.index(game), needed)


EVENTS = tuple(Event.called(name) for name in COMBINED)


def listed(words: Sequence[str]) -> str:
    """ "a, b and c" """
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


class World:
    """One Crafter env.

    Args:
        seed: seed of the first episode.
        ordered: the creatures' age decides which of them a full chunk loses, as in our engines. Otherwise memory
            addresses decide, as upstream, which is faster.
    """

    def __init__(self, seed: int, ordered: bool = False) -> None:
        self.simulator = Simulator(ELLM)
        if not ordered:
            self.simulator._world.__class__ = engine.World
        self.begin(seed)

    def begin(self, seed: int) -> None:
        """Begin the first episode of upstream's `crafter.Env(seed=seed)`."""
        self.simulator.begin(seed)
        self.world, self.player = self.simulator._world, self.simulator._player
        self.steps = 0
        self.look()

    @property
    def over(self) -> bool:
        """Whether the episode has reached its step limit."""
        return self.steps >= ELLM.length

    def look(self) -> tuple[str, str]:
        """The situation for the language model, and the state for the agent, which adds all feelings."""
        world, (x, y) = self.world, self.player.pos.tolist()
        cells = slice(max(0, x - ACROSS), x + ACROSS + 1), slice(max(0, y - DOWN), y + DOWN + 1)
        things = world._obj_map[cells]
        names = {GROUND[material] for material in world._mat_map[cells][things == 0].tolist()}
        names.update(_called(world._objects[i]) for i in things[things > 0].tolist())
        self.names = names - {""}
        material, thing = world[self.player.pos + self.player.facing]
        front = MATERIAL[material] if thing is None else _called(thing)
        self.front = "" if front in UNFACED else front
        inventory = self.player.inventory
        faced = f". You face the {self.front}" if self.front else ""
        view = f"You see {listed([f'the {name}' for name in sorted(self.names)]) or 'nothing'}{faced}"
        items = f"You have {listed([said for said, item in HELD if inventory[item]]) or 'nothing'}"
        feelings = [said for said, vital in FEELINGS if inventory[vital] < MOST]
        sleepy = ". You feel sleepy" if "sleepy" in feelings else ""
        return f"{view}. {items}{sleepy}", f"{view}. {items}. You feel {listed(feelings) or 'fine'}"

    def sensible(self) -> tuple[str, ...]:
        """The goals that make sense in the situation of the last `look`."""
        inventory = self.player.inventory
        return tuple(
            goal
            for goal, need in NEEDS.items()
            if self.names.issuperset(need.seen)
            and self.names.isdisjoint(need.unseen)
            and all(inventory[item] >= amount for item, amount in need.items.items())
            and (not need.sleepy or inventory["energy"] < MOST)
        )

    def act(self, action: int) -> tuple[str, bool]:
        """Take one of the 139 actions, after `look`.

        Returns its name if it succeeded loosely, otherwise "", and whether the player died.
        """
        event, player = EVENTS[action], self.player
        front = self.front.removeprefix("ripe ")
        tried = event.noun and not player.sleeping
        tried = tried and (event.noun == front or bool(event.item and player.inventory[event.item]))
        self.simulator.step(event.game if event.needed in ("", front) else NOOP)
        self.steps += 1
        return event.name if player.effect or tried else "", bool(player.health <= 0)

    def picture(self, side: int = 64) -> NDArray[np.uint8]:
        """Upstream's picture, uint8 [side, side, 3]."""
        return np.asarray(self.simulator.render((side, side)), np.uint8)


def _called(thing: Any) -> str:
    name = type(thing).__name__.lower()
    if name == "plant":
        return "ripe plant" if thing.ripe else name
    return "" if name in ("player", "arrow") else name


class Payment:
    """Reward by meaning: the cosine of an event and the most similar goal, if it is above the threshold.

    Args:
        encode: texts -> float32 [N, D], unit length. Names are embedded once, pairs compared once.
    """

    def __init__(self, encode: Callable[[Sequence[str]], NDArray[np.float32]]) -> None:
        self.encode = encode
        self.vectors: dict[str, NDArray[np.float32]] = {}
        self.known: dict[tuple[str, str], float] = {}

    def __call__(self, event: str, goals: Sequence[str], achieved: set[str]) -> float:
        """The reward of `event` ("": no event). Reached goals and the event are added to `achieved`."""
        event = SYNONYMS.get(event, event)
        if not event or event in achieved:
            return 0.0
        reached = {goal: likeness for goal in goals if (likeness := self.likeness(event, goal)) > THRESHOLD}
        if reached:
            achieved.update(reached, {event})
        return max(reached.values(), default=0.0)

    def likeness(self, event: str, goal: str) -> float:
        """Cosine similarity."""
        if (event, goal) not in self.known:
            self.known[event, goal] = float(self.vector(event) @ self.vector(goal))
        return self.known[event, goal]

    def vector(self, name: str) -> NDArray[np.float32]:
        """The embedding of a name."""
        if name not in self.vectors:
            self.vectors[name] = self.encode([name])[0]
        return self.vectors[name]
