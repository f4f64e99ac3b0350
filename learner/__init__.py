"""The learner: turns chunks into better weights.

Learner, LearnerSetup    one rank of the learner group, a role                 (group)
PPO, LearnerConfig       the update                                            (ppo)
vtrace, next_values      advantages and value targets                          (advantages)
losses                   pure functions of tensors                             (losses)
models                   policies and networks                                 (models/)
methods                  what is trained, as data                              (methods/)
checkpoint               complete or absent                                    (checkpoint)
"""

from learner.group import Learner, LearnerSetup, Weights
from learner.ppo import PPO, LearnerConfig

__all__ = ["PPO", "Learner", "LearnerConfig", "LearnerSetup", "Weights"]
