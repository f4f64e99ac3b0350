"""PPO of many tasks side by side, each with small networks of its own: the published recipe of learning histories.

    act   ──> the last `steps` steps of each task: observations, actions, rewards
    learn ──> once a task has as many: GAE, `epochs` passes over shuffled minibatches, clipped objective, Adam

Schulman et al. 2017 (arXiv 1707.06347); sizes, step size and the rest as in Schmied et al. 2024 (arXiv 2410.07071), who
ran Stable-Baselines3. The networks of up to 16 tasks are one tensor [tasks, in, out], and one product computes them.
Tasks of a shard stay together, so that results do not depend, bit for bit, on the other tasks of an actor.

The limit is the arithmetic of small products, `epochs` forward and backward passes per step. All tasks of an actor are
updated at the same step, which takes about a second per 16 tasks.
"""

from learner.histories.ppo.config import PPOHistoriesConfig
from learner.histories.ppo.learner import PPO

__all__ = ["LEARNER", "PPO", "PPOHistoriesConfig"]

LEARNER = PPO
