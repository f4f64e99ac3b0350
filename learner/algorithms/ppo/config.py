"""PPO's options, and a check that PPO can learn with them."""

from __future__ import annotations

from typing import Literal

from envs.api import EnvSpec
from envs.config import Part
from learner.config import Configuration, assert_suits
from learner.optim.precision import assert_arithmetic
from learner.parts import GuideConfig


class PPOConfig(Part):
    """PPO (Schulman et al. 2017). Step size, discount, minibatch and gradient clipping are keys of `learner`."""

    epochs: int = 4
    """Passes over each batch of chunks."""
    gae_lambda: float = 0.95
    """Lambda of GAE (Schulman et al. 2016), and of V-trace's corrected form of it."""
    clip: float = 0.2
    """Clip range of the probability ratio."""
    value_clip: float | None = 0.2
    """Clip range of the value update; none switches it off."""
    value_coefficient: float = 0.5
    """Weight of the value loss."""
    entropy_coefficient: float = 0.01
    """Weight of the entropy bonus."""
    target_kl: float | None = None
    """Stop the epochs of an update once the approximate KL exceeds this; none never stops."""
    normalise_advantage: bool = True
    """Normalise advantages to zero mean and unit variance over each batch (over all ranks)."""
    advantage: Literal["gae", "grpo", "rloo", "gigpo"] = "gae"
    """What an action is credited with. `gae`: rewards and a critic's values, in V-trace's form on stale chunks; by
    turns, that is by actions: every token of an action shares its turn's advantage. `grpo`, `rloo`, `gigpo`: an
    episode's outcome beside those of others that began alike, without a critic (`learner/algorithms/ppo/groups.py`)."""
    omega: float = 1.0
    """`gigpo`: weight of the comparison of steps in equal states, beside that of episodes."""
    max_lag: int = 4
    """Chunks made more than this many versions ago, in the mean over their steps, are dropped; younger stale ones are
    corrected by V-trace."""
    ratio: Literal["action", "token"] = "action"
    """Language models: whether the ratio is clipped for the whole action, or for each token of its name, with the
    token's probability among the names of the state's actions, or of a written answer."""
    reference_kl: float = 0.0
    """Weight of KL(policy || initial policy): the penalty for moving away from the policy that training began with."""
    critic_warmup: int = 0
    """Env steps at the start in which only values are learned and the policy is held in place, for policies that are
    already useful before training (`Origin` in `update`)."""
    normalise_value: bool = False
    """Learn values normalised by their own mean and standard deviation (`value_scale`)."""


def check_ppo(config: Configuration, spec: EnvSpec) -> None:
    """This PPO needs a discrete action space and a network that can read the environment.

    Raises:
        ValueError: one of these is missing, or keys contradict each other.
    """
    assert_suits("ppo", config, spec, head="actor_critic", stack=1)
    if config.method.part(GuideConfig).policy:
        raise ValueError("method.guide acts where epsilon says so, which PPO does not have: use learner.algorithm=dqn")
    policy = config.policy
    spelt = policy.network == "language_model" and policy.lm.head in ("scores", "generated")
    if config.learner.part(PPOConfig).ratio == "token" and not spelt:
        raise ValueError(
            "learner.ppo.ratio=token needs actions that are spelt: policy.network=language_model and lm.head=scores or "
            "generated"
        )
    if policy.lm.newest and (policy.lm.placement != "server" or config.sync):
        raise ValueError(
            "policy.lm.newest=true lets weights change while actors act: set policy.lm.placement=server and sync=false"
        )
    if config.learner.part(PPOConfig).advantage != "gae":
        _check_groups(config)
    elif config.actors.group > 1:
        raise ValueError("actors.group is for learner.ppo.advantage=grpo, rloo or gigpo: with gae, set it to 1")
    assert_arithmetic(config.learner.autocast, config.learner.device)


def _check_groups(config: Configuration) -> None:
    """Can episodes be compared with others of their group?"""
    ppo, actors = config.learner.part(PPOConfig), config.actors
    key = f"learner.ppo.advantage={ppo.advantage}"
    if actors.group < 2 or actors.envs % actors.group:
        raise ValueError(
            f"{key} compares episodes that began alike: set actors.group to 2 or more, a divisor of actors.envs="
            f"{actors.envs}; got {actors.group}"
        )
    if ppo.critic_warmup or ppo.normalise_value:
        raise ValueError(f"{key} has no critic: learner.ppo.critic_warmup and normalise_value are for gae")
    if config.policy.memory != "none":
        raise ValueError(f"{key} begins all episodes anew with each chunk: policy.memory=gru is for gae")
    longest = config.env.options.get("max_steps")
    if longest is not None and actors.steps < longest:
        raise ValueError(
            f"{key} learns from episodes that end within a chunk: actors.steps={actors.steps} is less than "
            f"env.max_steps={longest}"
        )
