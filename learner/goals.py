"""Goals in words beside a world's reward: what they are, before anybody acts on them (Du et al. 2023, section 3).

    situation ──> suggested goals ──> those not reached yet in this episode ──> given to the policy (field `goals`)
    event of a step ──> the likeliest of the told goals ──> reward, column `goal`

How goals are had and paid is the actors' work (`actors/wrappers/goals.py`); what stands here is what learners and
configurations must know of them.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field as Option

import envs
from envs.api import EnvSpec
from envs.config import Part
from learner.config import Configuration

FIELD = "goals"
"""The observation field that tells them: a set of texts."""
COLUMN = "goal"
"""The reward column that pays them."""
MISSION = "mission"
"""The observation field that says what the world's own task is."""
NO_GOAL = "no goal"
"""Stands in the empty places of the field."""

ANSWERED, HELD, MISSING = 1, 2, 3
"""What `Chunk.llm_status` says of a step: the goals are those of the situation; they are still those of an earlier one,
since no answer was there; there are none, for the same reason."""


class GoalsConfig(Part):
    """Goals beside the world's reward."""

    source: Literal["none", "model", "choice", "oracle", "any", "actions", "task"] = "none"
    """Who suggests them. `model`: the language model writes a list. `choice`: it says yes or no to each goal of the
    world. `oracle`: the goals of the world that make sense now. `any`: those that can be reached, sensible or not, in
    worlds whose goals have premises. `actions`: the name of every action, always. `task`: the world's own task, which
    the world pays: told here instead of as `mission`, to policies that learned goals."""
    novelty: bool = True
    """A goal is told and paid once in an episode; false: as often as it is suggested and reached."""
    shuffled: bool = False
    """`model`, `choice`: each situation gets the answer to another one. The control arm for the sense of answers."""
    limit: int = 5
    """`model`: so many goals at most. `task`: as many places as the policy knows from its training."""
    threshold: float = 0.95
    """Cosine similarity above which the name of what was done is taken for a goal."""
    probability: float = 0.5
    """`choice`: a goal counts if yes is more probable than this."""
    penalties: dict[Literal["unwanted", "failed"], Annotated[float, Option(le=0)]] = Option(default_factory=dict)
    """Taken from the reward: `unwanted`, for what was done and nobody suggested; `failed`, for what was tried in vain,
    in worlds that tell. Du et al. took 0.25 and 0.2 in Housekeep, and nothing in Crafter."""
    told: bool = True
    """The policy reads the goals; false: they are only paid."""

    @property
    def asks(self) -> bool:
        """Whether a language model is asked."""
        return self.source in ("model", "choice")


def check_goals(config: Configuration, spec: EnvSpec) -> None:
    """Can goals be had and paid in this world, by this configuration?

    Raises:
        ValueError: no; one sentence.
    """
    goals = config.method.part(GoalsConfig)
    if goals.source == "none":
        return
    if goals.source == "task" and (MISSION not in spec.fields or not goals.told):
        raise ValueError(
            f"method.goals.source=task tells the world's task as a goal: {spec.id} has none (env.task)"
            if MISSION not in spec.fields
            else "method.goals.source=task only tells the world's task: method.goals.told=false leaves nothing of it"
        )
    if goals.source != "task" and not spec.eventful:
        raise ValueError(
            f"method.goals.source={goals.source} needs a world that tells events, as crafter/Text: {spec.id} does not"
        )
    if goals.source in ("oracle", "choice", "any") and not spec.goals:
        raise ValueError(f"method.goals.source={goals.source} needs a world that publishes goals: {spec.id} does not")
    if goals.source == "any" and not any("premise" in goal for goal in envs.knowledge(spec.id).get("goals", ())):
        raise ValueError(f"method.goals.source=any needs goals that have premises, which {spec.id} does not publish")
    if goals.told and config.policy.network != "texts":
        raise ValueError("method.goals.told=true needs policy.network=texts, the only network that reads sets of texts")
    if goals.shuffled and not goals.asks:
        raise ValueError(
            f"method.goals.shuffled mixes a language model's answers: method.goals.source={goals.source} asks none"
        )
    if goals.shuffled and config.sync:
        raise ValueError("method.goals.shuffled=true depends on the order of answers: it cannot be sync=true")
    away = config.llm.when_away
    if goals.asks and config.sync and away != "wait":
        raise ValueError(f"sync=true needs llm.when_away=wait: with {away}, goals depend on how fast answers come")
