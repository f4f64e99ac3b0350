"""BabyAI levels, their captions and missions as language, and an expert.

world       the world: N simulators behind `VectorEnv`            (mission, actions, observation, ... in its docstring)
levels      names -> simulators; the levels that Minigrid lacks
view        observations of N worlds at once
grammar     images -> sentences
missions    the mission grammar, and missions in French
expert      a policy that knows the whole map
knowledge   what a language model may know of these levels
symbols     grid cells as numbers
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field as Option

from envs.api import EnvSpec, Field, VectorEnv
from envs.babyai import levels
from envs.babyai.expert import Expert
from envs.babyai.grammar import Language, caption_words, describe
from envs.babyai.knowledge import knowledge
from envs.babyai.levels import names
from envs.babyai.missions import mission_words, parse, translate
from envs.babyai.symbols import VIEW
from envs.babyai.world import ACTION_NAMES, TASK_KINDS, BabyAI
from envs.config import Part

__all__ = ["BabyAI", "Config", "Expert", "describe", "has", "knowledge", "make", "names", "parse", "spec", "translate"]


class Config(Part):
    """Options of every BabyAI level."""

    captions: bool = False
    """Observe also `caption`: the sentences that describe the image, as one text."""
    language: Literal["en", "fr"] | None = None
    """Language of missions, captions and action names. None: English, except in the levels named French."""
    fix_captions: bool = False
    """Correct the slips of the published captions: "a open" door, and English words in French "Tu portes une"."""
    actions: Annotated[int, Option(ge=1, le=7)] = 7
    """How many actions there are, of: turn left, turn right, go forward, pick up, drop, toggle, done."""
    idle_actions: list[str] = Option(default_factory=list)
    """Names of further actions, which do nothing."""
    max_steps: Annotated[int, Option(ge=1)] | None = None
    """Steps after which an episode is truncated, which also scale its reward. None: the level's own limit."""
    engine: Literal["minigrid"] = "minigrid"
    """What moves the worlds."""


def has(name: str) -> bool:
    """Is there a level of this name?"""
    return name in levels.OWN or name in levels.published()


def spec(name: str, config: Config) -> EnvSpec:
    """What a policy must know of a level."""
    language = _language(name, config)
    fields = {"image": Field("grid", (VIEW, VIEW, 3)), "direction": Field("category", size=4), "mission": Field("text")}
    if config.captions:
        fields["caption"] = Field("text")
    return EnvSpec(
        id=f"babyai/{name}",
        fields=fields,
        action_names=ACTION_NAMES[language][: config.actions] + tuple(config.idle_actions),
        words=tuple(sorted(mission_words(language) | caption_words(language))),
        task_kinds=TASK_KINDS,
        captioned=True,
        expert=True,
    )


def make(name: str, num_envs: int, seed: int, first_index: int, config: Config) -> VectorEnv:
    """Build N simulators of a level."""
    return BabyAI(
        spec(name, config),
        num_envs,
        seed,
        first_index,
        level=name,
        actions=config.actions,
        language=_language(name, config),
        fix_captions=config.fix_captions,
        max_steps=config.max_steps,
    )


def _language(name: str, config: Config) -> Language:
    return config.language or ("fr" if name in levels.FRENCH else "en")
