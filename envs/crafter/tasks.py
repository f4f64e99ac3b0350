"""Tasks of Crafter: what is to be done, and the way there.

A task is an ordered list of parts, most often one: an event, and perhaps a condition that holds when it succeeds. The
way to it is a list of parts too, made from what each event needs. A player follows both at once: a part counts when its
turn has come and its event succeeds; the task is reached when its own parts are done, however far the way was followed.

    mine stone:  chop tree, place crafting table, chop tree, make wood pickaxe │ mine stone
                 └──────────────────────── the way ─────────────────────────┘ └ the task ┘
"""

from __future__ import annotations

import difflib
from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from envs.crafter.rules import COMBINED, FACINGS, ITEMS, NAMED, PLANT, RIPE, SYNONYMS, TABLE, VIEW, Rules

Subgoals = Literal["none", "rewarded", "shown"]

GOALS = tuple(name for name in NAMED if name == "sleep" or not name.startswith(("do ", "move ")))
"""The 22 events that are worth setting out for."""
BASE = (*NAMED[1:], *SYNONYMS)
"""Events that are tasks by themselves: all but "do nothing"."""

# ---- what events need ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Need:
    """What must be so for a goal to make sense."""

    seen: tuple[str, ...] = ()
    """Names in view, as captions have them."""
    items: dict[str, int] = field(default_factory=dict)
    """How many of which items are held, what takes longest to get first."""
    unseen: tuple[str, ...] = ()
    """Names that are not in view."""
    sleepy: bool = False
    """Energy is below its most."""


def needs(table_wood: int) -> dict[str, Need]:
    """What each of `GOALS` needs, where a table takes so much wood."""
    table, both = ("crafting table",), ("crafting table", "furnace")
    return {
        "sleep": Need(sleepy=True),
        "eat plant": Need(("ripe plant",)),
        **{f"attack {name}": Need((name,)) for name in ("zombie", "skeleton", "cow")},
        **{f"chop {name}": Need((name,)) for name in ("tree", "grass")},
        "mine stone": Need(("stone",), {"wood_pickaxe": 1}),
        "mine coal": Need(("coal",), {"wood_pickaxe": 1}),
        "mine iron": Need(("iron",), {"stone_pickaxe": 1}),
        "mine diamond": Need(("diamond",), {"iron_pickaxe": 1}),
        "drink water": Need(("water",)),
        "place stone": Need(items={"stone": 1}),
        "place crafting table": Need(items={"wood": table_wood}, unseen=table),
        "place furnace": Need(items={"stone": 4}),
        "place plant": Need(items={"sapling": 1}),
        **{f"make wood {tool}": Need(table, {"wood": 1}) for tool in ("pickaxe", "sword")},
        **{f"make stone {tool}": Need(table, {"stone": 1, "wood": 1}) for tool in ("pickaxe", "sword")},
        **{f"make iron {tool}": Need(both, {"iron": 1, "coal": 1, "wood": 1}) for tool in ("pickaxe", "sword")},
    }


_SOURCES = {  # the event that gives an item
    "wood": "chop tree",
    "sapling": "chop grass",
    **{item: f"mine {item}" for item in ("stone", "coal", "iron", "diamond")},
    **{item: f"make {item.replace('_', ' ')}" for item in ITEMS if "_" in item},
}
_MAKERS = {"crafting table": "place crafting table", "furnace": "place furnace", "ripe plant": "place plant"}

# ---- tasks ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """An event that must succeed, and what must be so then."""

    event: str
    item: str = ""
    """An item of which `amount` are held once it is done."""
    amount: int = 0
    beside: Literal["", "plant", "crafting table"] = ""
    """What was placed lies beside another of these, in one of the 8 cells around."""
    called: str = ""
    """Its name, if it is not the event's."""

    @property
    def name(self) -> str:
        """What a mission says."""
        return self.called or self.event


@dataclass(frozen=True)
class Task:
    """What is to be done. `parts` is the task, `way` leads there; both in order."""

    name: str
    parts: tuple[Part, ...]
    way: tuple[Part, ...] = ()
    each_step: float = 0.0
    """Reward of each step that the player lives."""


def way_to(event: str, table_wood: int) -> tuple[Part, ...]:
    """The events, in order, that enable a player with an empty inventory to do `event`. Items are collected when they
    are needed. What only lies about, such as ore, has to be found."""
    required, held, made, way = needs(table_wood), Counter[str](), set[str](), list[Part]()

    def prepare(goal: str) -> None:
        need = required.get(goal, Need())
        for name in need.seen:
            if name in _MAKERS and name not in made:
                do(Part(_MAKERS[name]))
                made.add(name)
        while lacking := [item for item, amount in need.items.items() if held[item] < amount]:
            amount = need.items[lacking[0]]
            do(Part(_SOURCES[lacking[0]], lacking[0], amount))
            held[lacking[0]] = amount

    def do(part: Part) -> None:
        prepare(part.event)
        for item, amount in required[part.event].items.items():
            held[item] -= 0 if "_" in item else amount  # tools are kept
        way.append(part)

    prepare(SYNONYMS.get(event, event))
    return tuple(way)


def _own(table_wood: int) -> list[Task]:
    """The tasks that are more than an event."""
    chop, place, table = Part("chop grass"), Part("place plant"), Part("place crafting table")
    wood = Part("chop tree", "wood", table_wood)
    with_pickaxe = Part("chop grass", "wood_pickaxe", 1, called="chop grass with wood pickaxe")
    row = Part("place plant", beside="plant", called="place plant next to plant")
    second = Part("place crafting table", beside="crafting table", called="place crafting table next to crafting table")
    pickaxe = Part("make wood pickaxe")
    return [
        Task("plant row", (row,), (chop, place, chop)),
        Task("make workshop", (second,), (wood, table, wood)),
        Task("chop grass with wood pickaxe", (with_pickaxe,), (*way_to(pickaxe.event, table_wood), pickaxe)),
        Task("vegetarianism", (Part("drink water"), chop)),
        Task("deforestation", (Part("chop tree"),) * 5),
        Task("gardening", (chop, Part("chop tree"), place)),
        Task("work and sleep", (wood, table, Part("sleep"))),
        Task("wilderness survival", (Part("sleep"), chop, Part("attack zombie"))),
        Task("survival", (), each_step=0.05),
    ]


OWN = tuple(task.name for task in _own(1))
TASKS = (*BASE, *OWN)
"""Every task's name."""


def task(name: str, rules: Rules) -> Task:
    """The task of this name.

    Raises:
        ValueError: there is none; suggests a near one.
    """
    if name in BASE:
        return Task(name, (Part(name),), way_to(name, rules.table_wood))
    found = next((own for own in _own(rules.table_wood) if own.name == name), None)
    if found is None:
        near = difflib.get_close_matches(name, TASKS, 1)
        raise ValueError(f"crafter has no task {name!r}: " + (f"did you mean {near[0]}?" if near else ", ".join(TASKS)))
    return found


def sayings(rules: Rules) -> tuple[str, ...]:
    """All that missions may say, whatever the task."""
    every = [task(name, rules) for name in TASKS]
    return tuple(dict.fromkeys([*TASKS, *(part.name for one in every for part in (*one.way, *one.parts))]))


# ---- following them -------------------------------------------------------------------------------------------------


def _counts_as(done: str, asked: str) -> bool:
    """Is the event that was done one that was asked for? Eating a cow is also attacking it, but not the reverse."""
    names = {done, SYNONYMS.get(done, done)}
    return asked in names or (asked != "eat cow" and SYNONYMS.get(asked) in names)


class Pursuit:
    """How far N players are with a task.

    Args:
        task: what they do.
        subgoals: `none`: nothing is paid before the end; `rewarded`: every part of way and task pays 1; `shown`: only
            the last part of the task pays, and it is said which part is next.
        num_envs: N.

    Attributes:
        reached: bool [N], whether the task was reached in this episode.
        can_be_reached: False for a task without parts, which goes on.
        names: what missions may say.
    """

    def __init__(self, task: Task, subgoals: Subgoals, num_envs: int) -> None:
        self._task, self._subgoals = task, subgoals
        self.reached = np.zeros(num_envs, np.bool_)
        self.can_be_reached = bool(task.parts)
        self._on_way = np.zeros(num_envs, np.int64)  # parts of the way that are behind each
        self._on_task = np.zeros(num_envs, np.int64)  # parts of the task
        self._parts = (*task.way, *task.parts)
        self.names = (task.name, *(part.name for part in self._parts))
        # A row for each part and one of no part, a column for each event and one of no event.
        self._wanted = np.zeros((len(self._parts) + 1, len(COMBINED) + 1), np.bool_)
        for row, part in enumerate(self._parts):
            self._wanted[row, :-1] = [_counts_as(done, part.event) for done in COMBINED]
        self._item = np.array([ITEMS.index(part.item or ITEMS[0]) for part in self._parts] + [0])
        self._amount = np.array([part.amount for part in self._parts] + [0])

    def begin(self, index: NDArray[np.intp]) -> None:
        """Envs `index` start anew."""
        self.reached[index] = False
        self._on_way[index] = self._on_task[index] = 0

    def advance(
        self, index: NDArray[np.intp], done: NDArray[np.int64], inventory: NDArray[np.int16], symbols: NDArray[np.uint8]
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Count what envs `index` [M] have done in a step.

        Args:
            done: [M] place among `COMBINED` of the event that succeeded, -1 for none.
            inventory, symbols: [M, 16] and [M, 9, 7, 3], after it.

        Returns:
            reward [M], and whether the task was reached just now [M].
        """
        way, nowhere = len(self._task.way), len(self._parts)
        on_way, on_task = self._on_way[index], self._on_task[index]
        open_task = np.where(self.reached[index], nowhere, way + on_task)
        advanced = self._met(open_task, done, inventory, symbols)
        open_way = np.where(self.reached[index] | advanced | (on_way == way), nowhere, on_way)
        prepared = self._met(open_way, done, inventory, symbols)
        self._on_task[index] = on_task + advanced
        self._on_way[index] = on_way + prepared
        reached = advanced & (on_task + 1 == len(self._task.parts))
        self.reached[index] |= reached
        paid = advanced | prepared if self._subgoals == "rewarded" else reached
        return paid + self._task.each_step * (inventory[:, 0] > 0), reached

    def _met(
        self,
        part: NDArray[np.int64],
        done: NDArray[np.int64],
        inventory: NDArray[np.int16],
        symbols: NDArray[np.uint8],
    ) -> NDArray[np.bool_]:
        met = self._wanted[part, done]
        met &= inventory[np.arange(len(part)), self._item[part]] >= self._amount[part]
        for i in np.flatnonzero(met):
            met[i] = _lies_beside(symbols[i], self._parts[part[i]].beside)
        return met

    def said(self, index: NDArray[np.intp]) -> NDArray[np.int64]:
        """Place among `names` [M] of what envs `index` are told: the task, or the part that is next."""
        if self._subgoals == "none" or not self._parts:
            return np.zeros(len(index), np.int64)
        way, on_way = len(self._task.way), self._on_way[index]
        on_task = np.minimum(self._on_task[index], len(self._task.parts) - 1)
        return 1 + np.where((on_way < way) & ~self.reached[index], on_way, way + on_task)


def _lies_beside(symbols: NDArray[np.uint8], beside: str) -> bool:
    """Does what lies in front of the player have one of its kind around it? True if none is asked for."""
    if not beside:
        return True
    x, y = VIEW[0] // 2, VIEW[1] // 2
    across, down = FACINGS[symbols[x, y, 2]]
    around = symbols[x + across - 1 : x + across + 2, y + down - 1 : y + down + 2]
    alike = around[..., 0] == TABLE if beside == "crafting table" else np.isin(around[..., 1], (PLANT, RIPE))
    return int(alike.sum()) > 1  # itself and another
