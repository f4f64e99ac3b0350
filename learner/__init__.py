"""The learner: turns chunks into better weights.

group          Learner, one rank of the learner group: a role; weights in and out
config         LearnerConfig, the options of every algorithm; `parts`: options that several methods share
algorithms/    updates of a policy from chunks: PPO, DQN; found by name
batch          chunks side by side, as one batch
intrinsic      the reward column that the learner itself computes, and IntrinsicConfig
rewards/       the intrinsic reward terms: RND, NovelD, APT; found by name
curiosity/     building blocks of these terms: steps, reading, networks
potentials/    potentials for reward shaping: how sensible a state is; found by name
forms          how a potential becomes reward
windows        the input of potentials: the last steps
histories/     learners, one per task, whose every step is recorded; found by name; HistoriesConfig
context/       in-context learning from these histories: chunks, keys, lookups, fitting a transformer
fit            Fitter, one rank of supervised learning from a store, and FitConfig
optim/         from a gradient to a step: Adam, precision, averages over the ranks
models/        policies: networks, found by name; language models; transformers over a history
store/         experience on disk: a replay, episodes, archives of behaviours
search/        novelty search by ask and tell
behaviours/    from the search's archives to texts, groups, trials, a transformer and ratings
methods/       methods as data: which stages train what
room           modules found by name
options        a config section with the options of every module of a folder
goals          goals in words, in addition to an environment's reward; GoalsConfig
checkpoint     a run's weights and counters, complete or absent
files          files that are complete or absent, and attempts at a run
hashing        pseudo-random numbers from hashes
"""
