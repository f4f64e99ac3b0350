"""DQN's options, and a check that DQN can learn with them."""

from __future__ import annotations

from typing import Literal

from envs.api import EnvSpec
from envs.config import Part
from learner.config import Configuration, assert_suits
from learner.optim.precision import assert_arithmetic


class DQNConfig(Part):
    """Action values from a replay. Step size, discount, minibatch and gradient clipping are keys of `learner`."""

    n_step: int = 3
    """Number of steps over which rewards are summed before the value is bootstrapped."""
    double: bool = True
    """The policy selects the best action and the target network evaluates it; false: the target does both."""
    target_every: int = 8000
    """Env steps between two copies of the policy to the target network, as gradient steps of what is replayed for
    them; at least one of these."""
    capacity: int = 1_000_000
    """Rows of the replay, over all envs of a learner rank; the end of an episode takes one row too."""
    keep: Literal["disk", "memory"] = "disk"
    """Where the replay is kept: in files in the run's folder, which survive a crash and a stop, or in the learner's
    memory."""
    samples_per_insert: float = 16.0
    """Rows replayed per inserted env step: 16 means a minibatch of 64 every 4 steps."""
    start_steps: int = 5000
    """Env steps before training begins."""
    reward_clip: float | None = 1.0
    """Clip each step's reward to [-reward_clip, reward_clip], before adding an intrinsic reward; none: no clipping."""
    epsilon_start: float = 1.0
    """Share of random actions at the start."""
    epsilon_end: float = 0.01
    """Share of random actions at the end."""
    decay_steps: int = 1_000_000
    """Env steps over which the share of random actions falls from its first to its last value."""
    train_after_reward: bool = False
    """Do not train until the rewards seen add up to 1."""
    decay_after_reward: bool = False
    """Keep epsilon at its start value until the rewards seen add up to 1."""
    prioritised: bool = False
    """Sample rows in proportion to a power of their value's error, instead of uniformly."""
    alpha: float = 0.5
    """`prioritised`: exponent of the error; a row's probability is proportional to this power."""
    beta: float = 0.4
    """`prioritised`: exponent of the importance weights at the start; it rises to 1, full correction, at the end."""
    fit: Literal["train_all", "linear", "critic"] = "train_all"
    """Which layers are trained: all, the last ones of the two streams, or both whole streams; the others are frozen."""
    reinit: bool = False
    """`linear`, `critic`: reinitialise these layers after weights were loaded with `from`."""


def check_dqn(config: Configuration, spec: EnvSpec) -> None:
    """This DQN needs discrete actions, a head of action values without memory, and lanes that can hold several chunks.

    Raises:
        ValueError: one of these is missing, or keys of `learner.dqn` contradict each other.
    """
    assert_suits("dqn", config, spec, head="dueling", memory="none")
    policy, learner, actors = config.policy, config.learner, config.actors
    dqn = learner.part(DQNConfig)
    if actors.group > 1:
        raise ValueError(f"actors.group={actors.group} is for PPO that compares episodes: set it to 1 for dqn")
    assert_arithmetic(learner.autocast, learner.device)
    if policy.atoms > 1 and policy.v_min >= policy.v_max:
        raise ValueError(f"policy.v_min must be less than policy.v_max, got {policy.v_min} and {policy.v_max}")
    lanes = actors.n * actors.envs // learner.n
    lane = dqn.capacity // max(1, lanes)
    drawn = lane - lane // 10 - dqn.n_step  # a tenth is never sampled, and the newest rows not yet
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
