"""DQN: learn action values from a replay by the asynchronous actor-learner loop, then evaluate (Mnih et al. 2015).

    train ──> evaluate

The update is `learner/dqn.py`; actors play epsilon-greedily, the evaluation takes the best action.
"""

from __future__ import annotations

from typing import Any, Literal

from envs.api import EnvSpec
from envs.config import Part
from learner.methods import Stage
from learner.precision import halves


class Config(Part):
    """DQN has no fields of its own: `dqn` and `learner` are its."""

    name: Literal["dqn"] = "dqn"
    """The module of `learner/methods`."""


def stages(config: Any) -> list[Stage]:
    return [Stage("train", "train"), Stage("evaluate", "evaluate")]


def check(config: Any, spec: EnvSpec) -> None:
    """DQN here needs discrete actions, a head of action values without memory, and lanes that hold some chunks."""
    if not spec.discrete:
        raise ValueError(
            f"method dqn needs a discrete action space, but {spec.id} takes vectors of {spec.action_shape}"
        )
    policy, learner, actors, dqn = config.policy, config.learner, config.actors, config.dqn
    for key, found, needed in (
        ("learner.algorithm", learner.algorithm, "dqn"),
        ("policy.head", policy.head, "dueling"),
        ("policy.memory", policy.memory, "none"),
    ):
        if found != needed:
            raise ValueError(f"method dqn needs {key}={needed}, got {found}")
    halves(learner.autocast)
    if policy.atoms > 1 and policy.v_min >= policy.v_max:
        raise ValueError(f"policy.v_min must be less than policy.v_max, got {policy.v_min} and {policy.v_max}")
    lanes = actors.n * actors.envs // learner.n
    lane = dqn.capacity // max(1, lanes)
    drawn = lane - lane // 10 - dqn.n_step  # a tenth is kept out of draws, and the newest rows wait
    if drawn < 4 * actors.steps:
        raise ValueError(
            f"dqn.capacity={dqn.capacity} gives each of {lanes} envs {lane} rows: fewer can be drawn than four chunks"
            f" of {actors.steps} steps have"
        )
    most = min(drawn * lanes * learner.n, learner.env_steps)
    if learner.minibatch > most:
        raise ValueError(
            f"learner.minibatch={learner.minibatch} is more than the {most} rows that can ever be drawn from, by"
            f" dqn.capacity={dqn.capacity} and learner.env_steps={learner.env_steps}: nothing would be learned"
        )
    if dqn.start_steps >= learner.env_steps:
        raise ValueError(f"dqn.start_steps={dqn.start_steps} leaves nothing of learner.env_steps={learner.env_steps}")
    if dqn.reinit and dqn.fit == "train_all":
        raise ValueError("dqn.reinit=true draws layers of a finished policy anew: dqn.fit=linear or critic says which")
    if dqn.fit != "train_all" and not config.from_:
        raise ValueError(f"dqn.fit={dqn.fit} trains a part of a finished policy: name it by from=run:NAME/train")
