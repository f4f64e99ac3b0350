"""What DQN is told, and whether it can learn as told."""

from __future__ import annotations

from typing import Literal

from envs.api import EnvSpec
from envs.config import Part
from learner.config import Configuration, assert_suits
from learner.optim.precision import assert_arithmetic


class DQNConfig(Part):
    """Action values from a replay. Step size, discount, minibatch and the clipping of gradients are `learner`'s."""

    n_step: int = 3
    """Rewards are summed over so many steps before the rest is estimated."""
    double: bool = True
    """The policy says which action is best, the target what it is worth; false: the target says both."""
    target_every: int = 2000
    """Gradient steps between two copies of the policy to the target."""
    capacity: int = 1_000_000
    """Rows of the replay, over all envs of a learner rank; the end of an episode takes one too."""
    keep: Literal["disk", "memory"] = "disk"
    """Where the replay is: files in the run's folder, which outlive a crash and a stop, or the learner's memory."""
    samples_per_insert: float = 16.0
    """Rows replayed for each env step that came: 16 are a minibatch of 64 every 4 steps."""
    start_steps: int = 5000
    """Env steps before learning begins."""
    reward_clip: float | None = 1.0
    """Each step's reward is cut to [-reward_clip, reward_clip], before an intrinsic one is added; none leaves it."""
    epsilon_start: float = 1.0
    """Share of random actions at the start."""
    epsilon_end: float = 0.01
    """Share of random actions in the end."""
    decay_steps: int = 1_000_000
    """Env steps over which the first becomes the second."""
    train_after_reward: bool = False
    """Do not learn until rewards of 1 in all have been seen."""
    decay_after_reward: bool = False
    """Let epsilon stand at its start until rewards of 1 in all have been seen."""
    prioritised: bool = False
    """Draw rows by how wrong their value was, not all equally often."""
    alpha: float = 0.5
    """`prioritised`: the power of the error that a row is drawn in proportion to."""
    beta: float = 0.4
    """`prioritised`: how far importance weights correct for it at the start; wholly in the end."""
    fit: Literal["train_all", "linear", "critic"] = "train_all"
    """Which layers learn: all, the last ones of the two streams, or both streams whole; the others stay as they are."""
    reinit: bool = False
    """`linear`, `critic`: draw these layers anew after weights were loaded with `from`."""


def check_dqn(config: Configuration, spec: EnvSpec) -> None:
    """DQN here needs discrete actions, a head of action values without memory, and lanes that hold some chunks.

    Raises:
        ValueError: one of these is missing, or keys of `learner.dqn` contradict each other.
    """
    assert_suits("dqn", config, spec, head="dueling", memory="none")
    policy, learner, actors = config.policy, config.learner, config.actors
    dqn = learner.part(DQNConfig)
    assert_arithmetic(learner.autocast, learner.device)
    if policy.atoms > 1 and policy.v_min >= policy.v_max:
        raise ValueError(f"policy.v_min must be less than policy.v_max, got {policy.v_min} and {policy.v_max}")
    lanes = actors.n * actors.envs // learner.n
    lane = dqn.capacity // max(1, lanes)
    drawn = lane - lane // 10 - dqn.n_step  # a tenth is kept out of draws, and the newest rows wait
    if drawn < 4 * actors.steps:
        raise ValueError(
            f"learner.dqn.capacity={dqn.capacity} gives each of {lanes} envs {lane} rows: fewer can be drawn than four"
            f" chunks of {actors.steps} steps have"
        )
    most = min(drawn * lanes * learner.n, learner.env_steps)
    if learner.minibatch > most:
        raise ValueError(
            f"learner.minibatch={learner.minibatch} is more than the {most} rows that can ever be drawn from, by"
            f" learner.dqn.capacity={dqn.capacity} and learner.env_steps={learner.env_steps}: nothing would be learned"
        )
    if dqn.start_steps >= learner.env_steps:
        raise ValueError(
            f"learner.dqn.start_steps={dqn.start_steps} leaves nothing of learner.env_steps={learner.env_steps}"
        )
    if dqn.reinit and dqn.fit == "train_all":
        raise ValueError(
            "learner.dqn.reinit=true draws layers of a policy anew: learner.dqn.fit=linear or critic says which"
        )
    if dqn.fit != "train_all" and not config.from_:
        raise ValueError(
            f"learner.dqn.fit={dqn.fit} trains a part of a finished policy: name it by from=run:NAME/train"
        )
