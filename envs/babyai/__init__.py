"""BabyAI levels, their captions and missions as language, and an expert; see `world` for actions and observations.

The compiled engine, which is the default, is in `envs.native.babyai`.
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
from envs.babyai.reference import SimulatedBabyAI
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
    """Build N worlds of a level."""
    engine: type[BabyAI] = SimulatedBabyAI
    if config.engine == "native":
        from envs.native.babyai.world import NativeBabyAI  # here, because it brings the compiler along

        engine = NativeBabyAI
    language = _language(name, config)
    return engine(spec(name, config), num_envs, seed, first_index, level=name, language=language, config=config)


def _language(name: str, config: Config) -> Language:
    return config.language or ("fr" if name in levels.FRENCH else "en")
