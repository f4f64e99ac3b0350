"""The learner: turns chunks into better weights.

group          Learner, one rank of the learner group: a role; weights in and out
config         LearnerConfig, what every algorithm is told
algorithms/    what turns chunks into a better policy: PPO, DQN; found by name
intrinsic      the column of rewards that the learner itself pays, and IntrinsicConfig
rewards/       terms that it may be made of: RND, NovelD, APT; found by name
curiosity/     what these terms are made of: steps, reading, moments, networks, first visits
store/         what was lived, on disk: a replay, episodes, archives of behaviours
batch          chunks side by side, for PPO
distinct       what is drawn more than once is judged once, for DQN
novelty        novelty search as functions: parents, mutation, novelty, survivors
search         novelty search by ask and tell, in generations that may overlap
behaviours/    from its archives to texts, groups, trials and judgements
sequence       a transformer fitted to them (its data: sequences)
fit            Fitter, one rank of supervised learning from a store, and FitConfig
advantages     V-trace and GAE in one recursion
losses         PPO's loss and its gradient (the units of its values: value_scale)
origin         the policy that training began with, to stay near it
descent        from a gradient to a step of adam, the optimiser
collective     averages over the ranks
models/        policies and networks
methods/       what is trained, as data
checkpoint     complete or absent
"""
