"""PPO on chunks (Schulman et al. 2017).

    chunks ──> Batch (texts interned, rewards summed, arrays side by side)
           ──> values and importance ratios of the current policy (a forward pass, only if a chunk is stale)
           ──> advantages (V-trace; GAE when nothing is stale)
           ──> epochs of shuffled minibatches: loss, gradients averaged over ranks, Adam

On stale chunks the loss is the decoupled one (Hilton et al. 2021): the ratio is relative to the policy at the start of
the update, and each step is weighted by the clipped ratio of that policy to the behaviour policy.

Every random choice is a function of (seed, version, rank), so the counters are the only random state to save.
"""

from learner.algorithms.ppo.config import PPOConfig
from learner.algorithms.ppo.update import PPO

__all__ = ["ALGORITHM", "PPO", "PPOConfig"]

ALGORITHM = PPO
