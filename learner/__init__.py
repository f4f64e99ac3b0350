"""The learner: turns chunks into better weights.

group          Learner, one rank of the learner group: a role; weights in and out
config         LearnerConfig, what every algorithm is told; `parts`: what several methods are told
algorithms/    what turns chunks into a better policy: PPO, DQN; found by name
batch          chunks side by side
intrinsic      the column of rewards that the learner itself pays, and IntrinsicConfig
rewards/       terms that it may be made of: RND, NovelD, APT; found by name
curiosity/     what these terms are made of: steps, reading, networks
potentials/    how sensible a state is, for shaping: found by name
forms          how that becomes reward
windows        what they look at: the last steps
histories/     learners, one a task, whose every step is kept, found by name; HistoriesConfig
context/       learning in context from these: chunks, keys, lookups, the fit of a transformer
fit            Fitter, one rank of supervised learning from a store, and FitConfig
optim/         from a gradient to a step: Adam, precision, averages over the ranks
models/        policies: networks, found by name; language models; transformers over a history
store/         what was lived, on disk: a replay, episodes, archives of behaviours
search/        novelty search by ask and tell
behaviours/    from its archives to texts, groups, trials, a transformer and judgements
methods/       what is trained, as data
options        a part with the options of every module of a folder
goals          goals in words beside a world's reward; GoalsConfig
checkpoint     a run's weights and counters, complete or absent
files          files that are complete or absent, and attempts at a run
hashing        numbers that look drawn by chance
"""
