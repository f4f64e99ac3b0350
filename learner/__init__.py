"""The learner: turns chunks into better weights.

group          Learner, one rank of the learner group: a role; weights in and out
ppo            PPO, the update, and LearnerConfig
advantages     V-trace and GAE in one recursion
losses         PPO's loss and its gradient
adam           the optimiser
collective     averages over the ranks
models/        policies and networks
methods/       what is trained, as data
checkpoint     complete or absent
"""
