"""Crafter: a wilderness in which to gather, build and survive, as a world of language; see `world` for its contract.

The compiled engine, which is the default, is in `envs.native.crafter`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated, Literal

from pydantic import Field as Option

from envs.api import CELLS, FACTS, EnvSpec, Field, VectorEnv
from envs.config import Part
from envs.crafter import captions
from envs.crafter.captions import TEXTS, words
from envs.crafter.knowledge import knowledge, possible
from envs.crafter.rules import ACHIEVEMENTS, ACTION_NAMES, CRAFTER, ELLM, ITEMS, VIEW, Actions, Rules
from envs.crafter.tasks import GOALS, TASKS, Subgoals, Task, sayings, task
from envs.crafter.world import Crafter, Reward, Success

__all__ = ["TASKS", "Config", "Crafter", "has", "knowledge", "make", "names", "possible", "spec"]

Observed = Literal["symbols", "counts", "pixels", "view", "items", "feelings", "around", "facts", "cells"]

_NAMES: dict[str, tuple[Actions, Rules, Reward, tuple[Observed, ...]]] = {
    "Standard": ("standard", CRAFTER, "crafter", ("pixels",)),
    "Text": ("combined", ELLM, "achievements", ("view", "items", "feelings")),
    "Named": ("named", ELLM, "achievements", ("view", "items", "feelings")),
}
_PICTURE = 64  # pixels of a side


class Config(Part):
    """Options of every Crafter."""

    engine: Literal["native", "crafter"] = "native"
    """What moves the worlds: compiled code, or Crafter's own simulator, the reference, which is far slower."""
    observe: Annotated[list[Observed], Option(min_length=1)] | None = None
    """Fields of an observation. `symbols`: the view as numbers; `counts`: the inventory in ninths; `pixels`: the
    simulator's picture; texts: `view`, `items`, `feelings` and `around`, which tells nearly all. A task adds `mission`.
    `facts`: what the sentences but `around` are made of, for noise on captions and for captioners, which also learn
    from `cells`: what is where in the picture; no policy reads these.
    None: the name's own, `pixels` for Standard, else `view`, `items` and `feelings`."""
    damage: Annotated[int, Option(ge=1, le=8)] | None = None
    """Of a bare hand. None: the name's own, 1 for Standard; else 5, which kills every creature at once."""
    table_wood: Annotated[int, Option(ge=1, le=9)] | None = None
    """Wood that a crafting table takes. None: the name's own, 2 for Standard, else 1."""
    dying: bool = True
    """Episodes end when health is 0."""
    length: Annotated[int, Option(ge=1, le=32_767)] | None = None
    """Steps after which an episode is truncated. None: the name's own, 10,000 for Standard, else 400."""
    start: Literal["middle", "anywhere"] = "middle"
    """Where episodes begin. `middle`: as the game does. `anywhere`: somewhere on the map, at some time of the day, hurt
    and hungry, with things in hand and rare ones around: what captioners learn from. Compiled engine only."""
    reward: Reward | None = None
    """`achievements`: 1 in a step that makes one for the first time in the episode; `crafter`: that, and a tenth of the
    change of health; `none`: 0. A task's reward comes on top. None: `none` where there is a task; else the name's own,
    `crafter` for Standard, else `achievements`."""
    success: Success = "strict"
    """When `events` reports an event. `strict`: it changed the game as intended; `loose`: or what it names was in front
    or held; `any`: it was tried, by an action of text, whatever the result. Tasks are always strict."""
    task: str | None = None
    """What is to be done: an event such as "mine stone", or one of those that have a name, such as "gardening"."""
    subgoals: Subgoals = "none"
    """`none`: the mission is the task, and its end pays 1. `rewarded`: the mission is the next part of the way there,
    and each part pays 1. `shown`: the mission is the next part, but only the end pays."""
    end_on_success: bool = False
    """An episode ends when its task is reached."""


_SCORES = {"achievements": "achievements unlocked", "crafter": "points of Crafter's reward", "none": ""}
"""What an episode's return counts, by reward, where no task is given."""


def names() -> list[str]:
    """Standard: Crafter's actions and rules. Text: every verb with every noun, and Named: the 27 events, both with the
    rules of Du et al. 2023."""
    return list(_NAMES)


def has(name: str) -> bool:
    """Is there a Crafter of this name?"""
    return name in _NAMES


def spec(name: str, config: Config) -> EnvSpec:
    """What a policy must know of it.

    Raises:
        ValueError: there is no such task, options of a task without one, or actions that are no events are to be told.
    """
    actions, _, default, own = _NAMES[name]
    if config.start == "anywhere" and config.engine != "native":
        raise ValueError("env.start=anywhere is of the compiled engine: use env.engine=native, or env.start=middle")
    if actions == "standard" and config.success == "any":
        raise ValueError(
            f"env.success=any tells every action as an event, and the 17 of crafter/{name} are none: "
            "use crafter/Text or crafter/Named, or success=loose"
        )
    observed, pursued = config.observe or own, _task(name, config)
    kinds: dict[str, Field] = {
        "symbols": Field("grid", (*VIEW, 3)),
        "counts": Field("vector", (len(ITEMS),)),
        "pixels": Field("pixels", (_PICTURE, _PICTURE, 3)),
        FACTS: Field("vector", (len(captions.FACTS),), captions.UNNAMED + 1, privileged=True),
        CELLS: Field("vector", (VIEW[0] * VIEW[1],), captions.UNNAMED + 1, privileged=True),
    }
    told = (*observed, "mission") if pursued else observed
    return EnvSpec(
        id=f"crafter/{name}",
        fields={field: kinds.get(field, Field("text")) for field in told},
        action_names=ACTION_NAMES[actions],
        # Of every task and goal, so that a policy may go on with another: its vocabulary is the same.
        words=words(observed, (*GOALS, *sayings(_rules(name, config)))),
        task_kinds=(config.task or "survive",),
        captioned=any(field in TEXTS for field in observed),
        score="" if pursued else _SCORES[config.reward or default],
        eventful=True,
        counts=ACHIEVEMENTS,
        goals=GOALS,
        facts=captions.FACTS,
    )


def make(name: str, num_envs: int, seed: int, first_index: int, config: Config) -> VectorEnv:
    """Build N worlds.

    Raises:
        ValueError: as `spec`.
    """
    actions, _, reward, _ = _NAMES[name]
    pursued = _task(name, config)
    engine: Callable[..., Crafter]
    if config.engine == "crafter":
        from envs.crafter.reference import SimulatedCrafter  # here, because it brings the simulator along

        engine = SimulatedCrafter
    else:
        from envs.native.crafter.world import NativeCrafter  # here, because it brings the compiler along

        engine = partial(NativeCrafter, scattered=config.start == "anywhere")
    return engine(
        spec(name, config),
        num_envs,
        seed,
        first_index,
        rules=_rules(name, config),
        actions=actions,
        reward=config.reward or ("none" if pursued else reward),
        success=config.success,
        task=pursued,
        subgoals=config.subgoals,
        end_on_success=config.end_on_success,
    )


def _rules(name: str, config: Config) -> Rules:
    given = {"damage": config.damage, "table_wood": config.table_wood, "length": config.length}
    return replace(_NAMES[name][1], dying=config.dying, **{k: v for k, v in given.items() if v is not None})


def _task(name: str, config: Config) -> Task | None:
    found = None if config.task is None else task(config.task, _rules(name, config))
    if found and found.parts:
        return found
    option = "subgoals" if config.subgoals != "none" else "end_on_success" if config.end_on_success else ""
    if option and found:
        raise ValueError(f"env.{option}: the task {config.task!r} has no end and no parts; leave it out")
    if option:
        raise ValueError(f"env.{option} of crafter/{name} is about a task: name one with env.task, or leave it out")
    return found
