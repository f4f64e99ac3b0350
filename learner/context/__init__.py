"""Learning in context: a transformer of learning histories that looks at chunks of other episodes.

config    the arms, and the options of each stage
keys      the mean of hidden states over the last steps
encoders/ what makes keys of chunks, and queries: fitted to histories, a language model, a random projection
chunks    how an episode is cut into chunks, and at which steps it queries others
reader    whole episodes and chunks of a store, as a transformer's input
lookup    training: the chunk that each stretch of an episode looks at
fit       one rank that fits a transformer of an arm
"""
