"""Policies.

config          PolicyConfig: what a policy looks like, as data, without PyTorch
policy          encoder by name + optional GRU + heads
networks/       encoders of observations, found by name
text_encoder    learned tokens + GRU, or frozen MiniLM
frames          the last pictures of an episode, side by side
q               dueling head of action values, epsilon-greedy behaviour
language/       language models as policies
sequence/       transformers over a history
"""

from learner.models.config import PolicyConfig

__all__ = ["PolicyConfig"]
