"""Housekeep: a house in which things lie where nobody would want them; see `world` for its contract.

The compiled engine is `envs.native.housekeep`, what people want is `people`, the home of the tasks `home`.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field as Option
from pydantic import model_validator

from envs.api import EnvSpec, Field
from envs.config import Part
from envs.housekeep import detector, home, imported
from envs.housekeep.expert import Expert
from envs.housekeep.knowledge import ACTION_NAMES, knowledge
from envs.housekeep.labels import labelled
from envs.housekeep.names import NAMES, OBJECTS
from envs.housekeep.people import table
from envs.housekeep.people.episodes import Episode, chosen
from envs.housekeep.texts import TEXTS, words
from envs.knowledge import Labels

if TYPE_CHECKING:
    from envs.housekeep.world import Housekeep
    from envs.native.housekeep.layout import Houses

__all__ = ["Config", "Expert", "has", "knowledge", "labels", "make", "names", "spec"]

HOUSE = "House"
Observed = Literal["rgb", "boxes", "hand", "pose", "view", "seen", "held", "published"]
_SENTENCES: list[Observed] = ["view", "seen", "held"]


class Config(Part):
    """Options of every house."""

    observe: Annotated[list[Observed], Option(min_length=1)] = Option(default_factory=_SENTENCES.copy)
    """Fields of an observation. `rgb`: what the player sees; texts: `view`, what is in the picture and what lies where;
    `seen`, the objects and places of the episode so far; `held`; `published`, the line that ELLM was told; numbers
    `boxes`, `hand` and `pose`, as a detector and a compass would tell (`detector`), where objects stay the same."""
    size: Annotated[int, Option(ge=8, le=256)] = 64
    """Pixels of a side of the picture. What has no pixel in it is not seen, whatever is observed."""
    length: Annotated[int, Option(ge=1, lt=2**31)] = 1000
    """Steps after which an episode is truncated."""
    reward: Literal["none", "benchmark", "placed"] = "placed"
    """`placed`: 1/M when one of M objects comes to lie right, -1/M when one that lay right is gripped, so that a return
    is the share that lies right in the end. `benchmark`, as published: 2.5 for the first grip of an object that lies
    wrong and for the first time that it is put right, -0.25 for gripping what lies right and putting what is held
    wrong, -0.2 for grips that fail. `none`: 0."""
    preferences: str = "own"
    """Where people want things: `own`, a table of ours, or the path of the published file `data.npy`."""
    spawn: Literal["misplaced", "all"] = "misplaced"
    """Which objects a house by seed or of `episode` has: those that lie wrong, or beside them those that lie right."""
    see_through: bool = False
    """What is gripped may be behind a wall, as published."""
    starts: Literal["fixed", "seed", "exploring"] = "fixed"
    """Where the player of a task or of `episode` begins: where it says, or anywhere, by seed, as in houses by seed.
    `exploring`: anywhere and in any state of the work, with some objects away, some on other pieces and perhaps one in
    hand: for training, beside `evaluate.env` (exploring starts: Sutton and Barto 2018, section 5.3)."""
    episode: str = ""
    """`House`: PATH:NUMBER, a published file of episodes, <Scene>_int.json.gz, and which of them is played, always."""
    numbering: Literal["published", "file"] = "published"
    """What NUMBER counts: as the published commands do, which play the episodes of a file in an order of their own; or
    as they stand in the file."""
    engine: Literal["embedded", "habitat"] = "embedded"
    """What moves and draws: our own engine, or habitat-sim, one child process for each player; it needs `episode`,
    `data` and `python`. Our adapter was tested on a stand-in that records calls, not run on habitat-sim."""
    data: str = ""
    """`habitat`: the folder `data` of Housekeep, with scenes and objects."""
    python: str = ""
    """`habitat`: the Python that has habitat-sim 0.3.3, such as PATH/envs/habitat/bin/python."""

    @model_validator(mode="after")
    def _check_engine(self) -> Config:
        """What habitat-sim needs is named, and what only our own houses can tell is not."""
        needed = {name: getattr(self, name) for name in ("episode", "data", "python")}
        if self.engine == "habitat":
            if lacking := [f"env.{name}" for name, value in needed.items() if not value]:
                raise ValueError(
                    f"env.engine=habitat needs {' and '.join(lacking)}: docs/housekeep.md says what they are"
                )
            if self.starts != "fixed":
                raise ValueError(
                    f"env.starts={self.starts} is for our own houses, and habitat-sim begins where the episode says: "
                    "leave env.starts out, or env.engine"
                )
            if senses := [field for field in self.observe if field in detector.SENSES]:
                raise ValueError(f"env.observe names {senses[0]}, which only our own houses tell: leave it out")
        return self


def names() -> list[str]:
    """Task1 to Task4: a home with five objects each. House: another house in each episode."""
    return [*home.TASKS, HOUSE]


def has(name: str) -> bool:
    """Is there one of this name?"""
    return name in names()


def spec(name: str, config: Config) -> EnvSpec:
    """What a policy must know of it.

    Raises:
        ValueError: a field is observed that needs the same objects in each episode; habitat-sim is to play a task of
            ours; or the file of episodes cannot be read.
    """
    if name != HOUSE and config.engine == "habitat":
        raise ValueError(f"env.engine=habitat plays published episodes, not housekeep/{name}: choose housekeep/{HOUSE}")
    if _is_seeded(name, config) and (numbers := [field for field in config.observe if field in detector.SENSES[:2]]):
        raise ValueError(
            f"env.observe names {numbers[0]}, but housekeep/{name} has other objects in each episode: choose a task"
        )
    places, objects = _called(name, config)
    goals = [f"pick {thing}" for thing in objects] + [f"{thing} in {place}" for thing in objects for place in places]
    return EnvSpec(
        id=f"housekeep/{name}",
        fields={field: _field(field, config, len(objects), len(places)) for field in config.observe},
        action_names=ACTION_NAMES,
        words=tuple(sorted(words(places, objects, config.observe))),
        task_kinds=("put in order",),
        captioned=any(field in TEXTS for field in config.observe),
        score="share of objects in place" if config.reward == "placed" else "",
        eventful=True,
        goals=() if _is_seeded(name, config) else tuple(goals),
        expert=config.engine == "embedded",
    )


def _field(field: str, config: Config, objects: int, places: int) -> Field:
    if field in detector.SENSES:
        return detector.field(field, objects, places)
    return Field("text") if field in TEXTS else Field("pixels", (config.size, config.size, 3))


def labels(name: str, config: Config) -> Labels:
    """What people say of the questions that a language model is asked about it.

    Raises:
        ValueError: the file of preferences cannot be read.
    """
    return labelled(name, config.preferences)


def _called(name: str, config: Config) -> tuple[list[str], list[str]]:
    """Names of pieces of furniture in alphabetical order, and of objects in the order of their numbers."""
    if name != HOUSE:
        if config.episode:
            raise ValueError(f"housekeep/{name} has objects of its own: play env.episode in housekeep/{HOUSE}")
        return home.places(), list(home.TASKS[name])
    if config.episode:
        episode = chosen(config.episode, config.numbering)
        return imported.places(episode), [OBJECTS[k] for k in imported.contents(episode, config.spawn)[0].tolist()]
    return sorted(set(NAMES)), list(OBJECTS)


def _is_seeded(name: str, config: Config) -> bool:
    """Is it another house in each episode?"""
    return name == HOUSE and not config.episode


def compile_further() -> None:
    """Pictures in colour, boxes, and the planner."""
    env = make("Task1", 1, 0, 0, Config(observe=["rgb", *detector.SENSES]))
    env.begin()
    env.advance(Expert().act(env))


def make(name: str, num_envs: int, seed: int, first_index: int, config: Config) -> Housekeep:
    """Build N players.

    Raises:
        ValueError: the file of preferences cannot be read, or no house suits it; or habitat-sim, a scene or an episode
            is not there.
    """
    if config.engine == "habitat":
        return _in_habitat(name, num_envs, seed, first_index, config)
    from envs.housekeep.sources import at_home, by_seed  # here, because they bring the compiler along
    from envs.housekeep.world import Housekeep as World

    described, people = spec(name, config), table(config.preferences)
    if _is_seeded(name, config):
        suits = people.plain
        houses, furnish = by_seed(num_envs, suits, config.spawn == "misplaced")
    else:
        suits = people.suits(_called(name, config)[0])
        build = partial(home.build, task=name)
        if config.episode:
            episode = chosen(config.episode, config.numbering)
            imported.check(episode, config.spawn, suits)
            build = partial(imported.build, episode=episode, spawn=config.spawn)
        houses, furnish = at_home(build, num_envs, config.starts)
    return World(
        described,
        num_envs,
        seed,
        first_index,
        houses=houses,
        furnish=furnish,
        suits=suits,
        size=config.size,
        length=config.length,
        reward=config.reward,
        see_through=config.see_through,
    )


def missing(config: Config) -> str:
    """What to do where habitat-sim or a file of its scene is missing; empty where all is there, or it is not played."""
    if config.engine != "habitat":
        return ""
    from envs.housekeep.habitat.children import Children, HabitatEnded

    try:
        _, _, data, _ = _scene(config)
        Children(config.python, 1, data.parent).end()
    except (ValueError, HabitatEnded) as reason:
        return str(reason)
    return ""


def _scene(config: Config) -> tuple[Episode, Houses, Path, dict[str, Any]]:
    """Of habitat-sim: the episode, the row that belongs to it, the folder of scenes, and what is loaded.

    Raises:
        ValueError: a file cannot be read or is missing.
    """
    from envs.housekeep.habitat import scene  # here, because it brings the compiler along

    episode, data = chosen(config.episode, config.numbering), Path(config.data).absolute()
    count = len(imported.contents(episode, config.spawn)[0])
    houses = scene.row(episode, count)
    return episode, houses, data, scene.scene(data, episode, count, config.size, rgb="rgb" in config.observe)


def _in_habitat(name: str, num_envs: int, seed: int, first_index: int, config: Config) -> Housekeep:
    """N players of a published episode in habitat-sim."""
    from envs.housekeep.habitat.children import Children  # here, because they bring the compiler along
    from envs.housekeep.habitat.engine import Habitat
    from envs.housekeep.world import Housekeep as World

    env_spec = spec(name, config)
    episode, houses, data, loaded = _scene(config)
    suits = table(config.preferences).suits(episode.pieces)
    children = Children(config.python, num_envs, data.parent)
    return World(
        env_spec,
        num_envs,
        seed,
        first_index,
        houses=houses,
        furnish=None,
        suits=suits,
        size=config.size,
        length=config.length,
        reward=config.reward,
        see_through=config.see_through,
        engine=Habitat(children, loaded, houses, config.see_through),
    )
