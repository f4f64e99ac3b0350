"""The learner: turns chunks into better weights.

group          Learner, one rank of the learner group: a role; weights in and out
ppo            PPO, the update, and LearnerConfig
dqn            DQN on a replay, and DQNConfig
replay         rows on disk, drawn again as n-step returns (its columns, its priorities)
store/         what was lived, on disk: episodes, archives of behaviours
novelty        novelty search as functions: parents, mutation, novelty, survivors
search         novelty search by ask and tell, in generations that may overlap
behaviours/    from its archives to texts, groups, trials and judgements
sequence       a transformer fitted to them (its data: sequences)
fit            Fitter, one rank of supervised learning from a store, and FitConfig
advantages     V-trace and GAE in one recursion
losses         PPO's loss and its gradient
origin         the policy that training began with, to stay near it
descent        from a gradient to a step of adam, the optimiser
collective     averages over the ranks
models/        policies and networks
methods/       what is trained, as data
checkpoint     complete or absent
"""
