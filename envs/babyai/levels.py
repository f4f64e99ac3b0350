"""Levels: names -> Minigrid environments.

Three sources share one list of names:

    Minigrid's own        every `BabyAI-<Name>-v<n>` that Minigrid registers
    grounded-language     MixedTrainLocal and its kin: one room, several kinds of task, some (colour, noun) pairs held
                          out of training and kept for testing
    background-knowledge  `Text-...`: one large room and a named target

Everything about an episode is drawn from the environment's own generator, the kind of task too: `reset(seed=s)` says
all there is to know.
"""

# mypy: allow-untyped-calls
# Minigrid says that it is typed; most of its functions are not.

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, Literal

os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")  # Minigrid imports pygame, which greets on stdout

import gymnasium
import minigrid  # noqa: F401  (registers its levels)
from minigrid.envs.babyai.core import roomgrid_level
from minigrid.envs.babyai.core.levelgen import LevelGen
from minigrid.envs.babyai.core.roomgrid_level import RejectSampling, RoomGridLevel
from minigrid.envs.babyai.core.verifier import (
    AfterInstr,
    BeforeInstr,
    GoToInstr,
    ObjDesc,
    OpenInstr,
    PickupInstr,
    PutNextInstr,
)
from minigrid.envs.babyai.goto import GoToLocal

# It reports every rejected draw on stdout, about one per two resets. A name of its own hides the builtin from that
# module alone; redirecting stdout around a reset would swallow what other threads print.
vars(roomgrid_level)["print"] = lambda *args, **kwargs: None

Kind = Literal["go to", "pick up", "open", "put next", "pick up, go to", "pick up, pick up"]
ALL_KINDS: tuple[Kind, ...] = ("go to", "pick up", "open", "put next", "pick up, go to")
Order = Literal["then", "after"]

HELD_OUT = frozenset({("yellow", "box"), ("red", "key"), ("red", "door"), ("green", "ball"), ("grey", "door")})
"""(colour, noun) pairs that no training mission names, and that test missions are made of."""

TRAIN_DOORS = ("yellow", "green", "blue", "purple")
TEST_DOORS = ("red", "grey")
EXTRA_OBJECTS = 8
"""In rooms of `Local`, beside those that the mission needs."""


class Local(RoomGridLevel):
    """One room with objects, and a task drawn per episode; "open" adds a second room behind a locked door.

    Args:
        kinds: what the task is drawn from, each as likely.
        held_out: False: missions name no held-out pair. True: they name nothing else.
        orders: how two actions are told: "A, then B" or "B after you A".
    """

    def __init__(
        self,
        kinds: Sequence[Kind] = ALL_KINDS,
        held_out: bool = False,
        orders: Sequence[Order] = ("then", "after"),
        **options: Any,
    ) -> None:
        self.kinds, self.orders, self.held_out = tuple(kinds), tuple(orders), held_out
        self.kind: Kind = self.kinds[0]
        super().__init__(room_size=8, num_rows=1, num_cols=2 if "open" in kinds else 1, **options)

    def _gen_grid(self, width: int, height: int) -> None:
        # Before the loop that rejects rooms: a kind that is rejected more often must not become rarer.
        self.kind = self._rand_elem(self.kinds)
        self.num_cols = 2 if self.kind == "open" else 1
        self.width = (self.room_size - 1) * self.num_cols + 1
        super()._gen_grid(self.width, self.height)

    def gen_mission(self) -> None:
        if self.kind == "open":
            self.instrs = self._open()
        else:
            self.place_agent()
            needed = 1 if self.kind in ("go to", "pick up") else 2
            objects = self.add_distractors(num_distractors=needed + EXTRA_OBJECTS, all_unique=False)
            things = [ObjDesc(o.type, o.color) for o in self._rand_subset(objects, needed)]
            self.instrs = self._instruct(things)
            if any(((thing.color, thing.type) in HELD_OUT) != self.held_out for thing in things):
                raise RejectSampling("the mission is of the other vocabulary")
        self.check_objs_reachable()

    def _instruct(self, things: list[Any]) -> Any:
        if self.kind == "go to":
            return GoToInstr(things[0])
        if self.kind == "pick up":
            return PickupInstr(things[0])
        if self.kind == "put next":
            return PutNextInstr(*things)
        earlier = PickupInstr(things[0])
        later = GoToInstr(things[1]) if self.kind == "pick up, go to" else PickupInstr(things[1])
        if self._rand_elem(self.orders) == "then":
            return BeforeInstr(earlier, later)
        return AfterInstr(later, earlier)

    def _open(self) -> Any:
        """A locked door between two rooms; its key, the agent and all else are on one side of it."""
        locked = self._rand_int(0, 2)
        colour = self._rand_elem(TEST_DOORS if self.held_out else TRAIN_DOORS)
        self.add_door(locked, 0, color=colour, locked=True)
        self.add_object(1 - locked, 0, "key", colour)
        self.add_distractors(1 - locked, 0, num_distractors=EXTRA_OBJECTS, all_unique=False)
        self.place_agent(1 - locked, 0)
        unnamed = not self.held_out and self._rand_bool()
        return OpenInstr(ObjDesc("door", None if unnamed else colour))


class PickupLocal(LevelGen):
    """Pick up an object in one room; the mission always names its colour."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            num_rows=1,
            num_cols=1,
            num_dists=8,
            locked_room_prob=0,
            locations=False,
            unblocking=False,
            action_kinds=["pickup"],
            instr_kinds=["action"],
            **options,
        )

    def rand_obj(self, *args: Any, **kwargs: Any) -> Any:
        while True:
            thing = super().rand_obj(*args, **kwargs)
            if thing.color is not None:
                return thing


class Targets(RoomGridLevel):
    """Reach, in order, one thing of each list of (colour, noun), in a large room with distractors.

    Args:
        targets: for each action, what its thing is drawn from.
        action: "go to" or "pick up".
        num_dists: objects beside the targets; they may be like a target.
    """

    def __init__(
        self,
        targets: Sequence[Sequence[tuple[str, str]]],
        room_size: int,
        num_dists: int,
        action: Literal["go to", "pick up"] = "go to",
        **options: Any,
    ) -> None:
        self.targets, self.num_dists, self.action = targets, num_dists, action
        super().__init__(room_size=room_size, num_rows=1, num_cols=1, **options)

    def gen_mission(self) -> None:
        self.place_agent()
        instruct = GoToInstr if self.action == "go to" else PickupInstr
        actions: list[Any] = []
        for choice in self.targets:
            colour, noun = self._rand_elem(choice)
            self.add_object(0, 0, noun, colour)
            actions.append(instruct(ObjDesc(noun, colour)))
        self.add_distractors(num_distractors=self.num_dists, all_unique=False)
        self.check_objs_reachable()
        if len(actions) == 1:
            self.instrs = actions[0]
        elif self._rand_bool():
            self.instrs = BeforeInstr(*actions)
        else:
            self.instrs = AfterInstr(*reversed(actions))


def _background_knowledge() -> dict[str, Callable[..., Any]]:
    red_ball, purple_ball = [("red", "ball")], [("purple", "ball")]
    red_key, purple_key = [("red", "key")], [("purple", "key")]
    seen = [(colour, noun) for colour in ("red", "green", "blue") for noun in ("ball", "box")]

    def go(*targets: list[tuple[str, str]], size: int = 20, others: int = 7) -> Callable[..., Any]:
        return partial(Targets, targets, size, others)

    levels: dict[str, Callable[..., Any]] = {
        "Text-GoToLocal-Pretraining-S20": go(seen),
        "Text-GoToLocal-PurpleBall-S20": go(purple_ball),
        "Text-GoToLocal-RedKey-S20": go(red_key),
        "Text-GoTo-RedBallBlueBox-S20": go(red_ball, [("blue", "box")]),
        "Text-GoTo-PurpleBallPurpleBox-S20": go(purple_ball, [("purple", "box")]),
        "Text-PickUp-RedBall-S20": partial(Targets, (red_ball,), 20, 8, "pick up"),
        "Text-PickUp-PurpleKey-S20": partial(Targets, (purple_key,), 20, 8, "pick up"),
    }
    for size, others in ((20, 7), (23, 12), (25, 15), (28, 20), (30, 25)):
        levels[f"Text-GoToLocal-RedBall-S{size}"] = go(red_ball, size=size, others=others)
        levels[f"Text-GoToLocal-PurpleKey-S{size}"] = go(purple_key, size=size, others=others)
    return levels


OWN: dict[str, Callable[..., Any]] = {
    "MixedTrainLocal": Local,
    "MixedTestLocal": partial(Local, held_out=True),
    "MixedTrainLocalFrench": Local,
    "PickUpSeqGoToLocal": partial(Local, ("pick up, go to",)),
    "PickUpThenGoToLocal": partial(Local, ("pick up, go to",), orders=("then",)),
    "GoToAfterPickUpLocal": partial(Local, ("pick up, go to",), orders=("after",)),
    "PickUpSeqPickUpLocal": partial(Local, ("pick up, pick up",)),
    "GoToFrench": GoToLocal,
    "GoToLocalS8N16": partial(GoToLocal, room_size=8, num_dists=16),
    "PickupLocal": PickupLocal,
    **_background_knowledge(),
}
"""Levels that Minigrid lacks."""

FRENCH = frozenset({"GoToFrench", "MixedTrainLocalFrench"})
"""Levels that speak French unless told otherwise."""


@cache
def published() -> dict[str, str]:
    """Minigrid's own levels: {name: Gymnasium id}, the newest version of each."""
    newest: dict[str, tuple[int, str]] = {}
    for gymnasium_id in gymnasium.registry:
        match = re.fullmatch(r"BabyAI-(.+)-v(\d+)", gymnasium_id)
        if match:
            version = int(match[2])
            newest[match[1]] = max(newest.get(match[1], (-1, "")), (version, gymnasium_id))
    return {name: gymnasium_id for name, (_, gymnasium_id) in newest.items()}


def names() -> list[str]:
    """All levels, sorted."""
    return sorted({*published(), *OWN})


def build(name: str, max_steps: int | None = None) -> Any:
    """A bare simulator of a level, a `RoomGridLevel`; `max_steps` replaces the level's own limit.

    Raises:
        LookupError: there is no such level.
    """
    options = {} if max_steps is None else {"max_steps": max_steps}
    if name in OWN:
        return OWN[name](**options)
    if name not in published():
        raise LookupError(f"no level {name!r}; envs.babyai.names() lists them")
    return gymnasium.make(published()[name], disable_env_checker=True, **options).unwrapped
