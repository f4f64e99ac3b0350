"""Goals in words, in addition to an environment's reward: their definition and options (Du et al. 2023, section 3).

    situation ──> suggested goals ──> those not reached yet in this episode ──> given to the policy (field `goals`)
    event of a step ──> the most similar given goal ──> reward, column `goal`

Actors produce and reward goals (`actors/wrappers/goals.py`); here is what learners and configurations must know about
them.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field as Option

import envs
from envs.api import EnvSpec
from envs.config import Part
from learner.config import Configuration

FIELD = "goals"
"""The observation field with the goals: a set of texts."""
COLUMN = "goal"
"""The reward column of goals."""
MISSION = "mission"
"""The observation field with the environment's own task."""
NO_GOAL = "no goal"
"""Fills the empty places of the field."""

ANSWERED, HELD, MISSING = 1, 2, 3
"""Values of `Chunk.llm_status` for a step: the goals belong to the current situation; they still belong to an earlier
one, because no answer had come; there are none, for the same reason."""


class GoalsConfig(Part):
    """Goals in addition to the environment's reward."""

    source: Literal["none", "model", "choice", "likeness", "oracle", "any", "actions", "task"] = "none"
    """The source of goals. `model`: the language model writes a list. `choice`: it says yes or no to each goal of the
    environment. `likeness`: the environment's goals whose sentences MiniLM finds most like that of the situation; no
    model is asked. `oracle`: the environment's goals that make sense now. `any`: all reachable goals, sensible or not,
    in environments whose goals have premises. `actions`: the name of every action, always. `task`: the environment's
    own task, which the environment rewards: given here instead of as `mission`, to policies that were trained on
    goals."""
    prompt: Literal["open", "listed"] = "open"
    """`model`: what the question shows. `open`: the verbs of the environment and two examples of another game, as Du et
    al. ask; `listed`: a description of the environment and a list of its goals."""
    told_reached: bool = False
    """`model`: the question also says what was rewarded in this episode, so that the model can suggest other goals
    instead. There are more questions then, since each situation is asked about with whatever was reached before it."""
    novelty: bool = True
    """A goal is given and rewarded once per episode; false: as often as it is suggested and reached."""
    shuffled: bool = False
    """`model`, `choice`: each situation gets the answer to another one. A control: do answers need to make sense?"""
    limit: int | None = None
    """`model`, `likeness`, `oracle`: maximum number of goals in a situation, from which what was reached is then left
    out. `task`: the number of places that the policy was trained with. Unset: 5; for `oracle`, all."""
    order: Literal["depth", "name", "random"] = "depth"
    """`oracle`: which goals are given where more than `limit` are possible. `depth`: those to which the way is longest;
    `name`: the first by the alphabet; `random`: drawn once for each situation."""
    threshold: float = 0.95
    """Cosine similarity above which the name of an action or event counts as reaching a goal."""
    probability: float = 0.5
    """`choice`: a goal is suggested if yes is more probable than this."""
    penalties: dict[Literal["unwanted", "failed"], Annotated[float, Option(le=0)]] = Option(default_factory=dict)
    """Penalties: `unwanted`, for an event that nobody suggested; `failed`, for a failed attempt, in environments that
    report these. Du et al. used 0.25 and 0.2 in Housekeep, and none in Crafter."""
    told: bool = True
    """The policy reads the goals; false: they are only rewarded."""

    @property
    def most(self) -> int:
        """`limit`, or its default for a model."""
        return 5 if self.limit is None else self.limit

    @property
    def asks(self) -> bool:
        """Whether goals need a language model."""
        return self.source in ("model", "choice")


def check_goals(config: Configuration, spec: EnvSpec) -> None:
    """Check that this environment and configuration can produce and reward goals.

    Raises:
        ValueError: they cannot; one sentence.
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
    if goals.source in ("oracle", "choice", "any", "likeness") and not spec.goals:
        raise ValueError(f"method.goals.source={goals.source} needs a world that publishes goals: {spec.id} does not")
    if goals.source == "any" and not any("premise" in goal for goal in envs.knowledge(spec.id).get("goals", ())):
        raise ValueError(f"method.goals.source=any needs goals that have premises, which {spec.id} does not publish")
    if goals.told and config.policy.network not in ("texts", "resnet"):
        raise ValueError("method.goals.told=true needs policy.network=texts or resnet, which read sets of texts")
    if goals.told_reached and goals.source != "model":
        raise ValueError(
            f"method.goals.told_reached adds to questions of source=model: method.goals.source={goals.source} asks none"
        )
    if goals.shuffled and not goals.asks:
        raise ValueError(
            f"method.goals.shuffled mixes a language model's answers: method.goals.source={goals.source} asks none"
        )
    if goals.shuffled and config.sync:
        raise ValueError("method.goals.shuffled=true depends on the order of answers: it cannot be sync=true")
    away = config.llm.when_away
    if goals.asks and config.sync and away != "wait":
        raise ValueError(f"sync=true needs llm.when_away=wait: with {away}, goals depend on how fast answers come")
