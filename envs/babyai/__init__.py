"""BabyAI levels, their captions and missions as language, and an expert; see `world` for actions and observations.

The compiled engine, which is the default, is in `envs.native.babyai`.
"""

from __future__ import annotations

from envs.api import EnvSpec, Field, VectorEnv
from envs.babyai import levels
from envs.babyai.expert import Expert
from envs.babyai.grammar import Language, caption_words, describe
from envs.babyai.knowledge import knowledge
from envs.babyai.levels import names
from envs.babyai.missions import mission_words, parse, translate
from envs.babyai.reference import SimulatedBabyAI
from envs.babyai.symbols import VIEW
from envs.babyai.world import ACTION_NAMES, TASK_KINDS, BabyAI, Config

__all__ = ["BabyAI", "Config", "Expert", "describe", "has", "knowledge", "make", "names", "parse", "spec", "translate"]


def has(name: str) -> bool:
    """Is there a level of this name?"""
    return name in levels.OWN or name in levels.published()


def spec(name: str, config: Config) -> EnvSpec:
    """What a policy must know of a level."""
    language = _language(name, config)
    fields = {"image": Field("grid", (VIEW, VIEW, 3)), "direction": Field("category", size=4), "mission": Field("text")}
    if config.captions:
        fields["caption"] = Field("text")
    if config.distance:
        fields["distance"] = Field("vector", (1,), privileged=True)
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


def compile_further() -> None:
    """What only an option needs."""
    make("GoToLocal", 1, 0, 0, Config(distance=True)).begin()


def _language(name: str, config: Config) -> Language:
    return config.language or ("fr" if name in levels.FRENCH else "en")
