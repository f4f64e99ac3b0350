"""What an intrinsic reward is made of, and whether it can be had in a world."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field as Option

from envs.api import Field
from envs.config import Part
from learner.goals import FIELD

COLUMN = "intrinsic"
"""The reward column that it pays."""


class IntrinsicConfig(Part):
    """Reward for what is new, made by the learner of the observations themselves, and summed with the other columns of
    rewards by their weights (`learner.reward_weights`)."""

    name: Literal["none", "rnd", "noveld", "apt"] = "none"
    """`rnd`: how badly a network repeats a random one (Burda et al. 2019). `noveld`: how much more badly after a step
    than before it (Zhang et al. 2021). `apt`: how far from its neighbours a state is (Liu & Abbeel 2021)."""
    scale: float = 1.0
    """The reward is multiplied by this."""
    reads: list[str] = Option(default=[])
    """Observation fields that are judged, of those that the policy reads; empty means all but the goals it is told."""
    language: Literal["both", "none", "only"] = "both"
    """`both`: texts are judged as well as the rest, by networks of their own. `none` leaves the texts out, `only` the
    rest."""
    language_weight: float = 0.5
    """What texts earn is multiplied by this before the sum with what the rest earns (published: 0.5, `apt` 1)."""
    first_visit: bool = True
    """`noveld`: pay for an observation only when it is met for the first time in an episode."""
    alpha: float = 1.0
    """`noveld`: how much of the novelty before the step counts."""
    neighbours: int = 12
    """`apt`: how many neighbours."""
    particles: int = 1024
    """`apt`: neighbours are looked for among so many states at most, drawn anew each time."""
    hidden: int = 512
    """Width of the networks; where `apt` widens, it is twice this."""
    learning_rate: float = 1e-4
    """Adam step size."""


def views(config: IntrinsicConfig, fields: Mapping[str, Field]) -> list[tuple[dict[str, Field], float]]:
    """What of the policy's `fields` is judged together, each with its weight: texts apart from the rest.

    Raises:
        ValueError: nothing is left to judge, or a field is not there.
    """
    for name in config.reads:
        if name not in fields:
            raise ValueError(f"intrinsic.reads names {name!r}, but the policy reads {', '.join(fields)}")
    chosen = {name: fields[name] for name in config.reads or fields if config.reads or name != FIELD}
    texts = {name: field for name, field in chosen.items() if field.kind == "text" and config.language != "none"}
    rest = {name: field for name, field in chosen.items() if field.kind != "text" and config.language != "only"}
    if not texts and not rest:
        raise ValueError(
            f"intrinsic.language={config.language} leaves nothing to judge of {', '.join(chosen) or 'no field'}"
        )
    return [(part, weight) for part, weight in ((rest, 1.0), (texts, config.language_weight if rest else 1.0)) if part]


def check_intrinsic(config: Any, fields: Mapping[str, Field]) -> None:
    """Can this configuration have its intrinsic reward, with a policy that reads `fields`?

    Raises:
        ValueError: no; one sentence.
    """
    intrinsic: IntrinsicConfig = config.intrinsic
    if intrinsic.name == "none":
        return
    views(intrinsic, fields)
    learner, actors = config.learner, config.actors
    of_chunks = (learner.chunks or actors.n) * actors.envs * actors.steps
    found = (learner.minibatch if learner.algorithm == "dqn" else of_chunks) // learner.n
    if intrinsic.name == "apt" and intrinsic.neighbours >= min(intrinsic.particles, found):
        raise ValueError(
            f"intrinsic.neighbours={intrinsic.neighbours} must be less than the states among which they are looked"
            f" for: {found} a rank here, and at most intrinsic.particles={intrinsic.particles}"
        )
