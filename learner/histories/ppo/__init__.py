"""PPO of many tasks side by side, each with small networks of its own: the published recipe of learning histories.

    act   ──> the last `steps` steps of each task: what was observed, done, paid
    learn ──> a task has that many: GAE, `epochs` passes over shuffled minibatches, clipped objective, Adam

Schulman et al. 2017 (arXiv 1707.06347); sizes, step size and the rest as in Schmied et al. 2024 (arXiv 2410.07071),
who ran Stable-Baselines3. The networks of up to 16 tasks are one tensor [tasks, in, out], and multiplied by one
product. Tasks of a shard are always together, so that whoever else is played beside them does not show, to the bit.

Limit: arithmetic of small products, `epochs` passes forward and back for each step. All tasks that an actor plays side
by side come to their update in the same step, about a second of it for each 16 of them.
"""

from learner.histories.ppo.config import PPOHistoriesConfig
from learner.histories.ppo.learner import PPO

__all__ = ["LEARNER", "PPO", "PPOHistoriesConfig"]

LEARNER = PPO
