"""DQN on a replay: double, dueling, n-step, optionally prioritised and distributional.

    chunks ──> Replay ──> Sample [B] ──> target: reward + discount * Q_target(following, argmax Q(following))
           ──> loss of Q(obs, action), gradients averaged over ranks, Adam ──> every so often, target := policy

Mnih et al. 2015; double: van Hasselt et al. 2016; dueling: Wang et al. 2016; prioritised: Schaul et al. 2016;
distributional: Bellemare et al. 2017. `samples_per_insert` fixes how many rows are replayed, whatever the speeds of
actors and learner. The target is a whole policy, encoder included, and does not change between two copies.

Every random choice is a function of (seed, number of the gradient step, rank), so the counters are the only random
state.
"""

from learner.algorithms.dqn.config import DQNConfig
from learner.algorithms.dqn.update import DQN

__all__ = ["ALGORITHM", "DQN", "DQNConfig"]

ALGORITHM = DQN
