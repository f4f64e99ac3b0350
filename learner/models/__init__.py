"""Networks.

PolicyConfig, networks   what a policy looks like, as data, without PyTorch            (config)
Policy                   encoder by name + optional GRU + heads                        (policy)
q                        dueling head of action values, epsilon-greedy behaviour
film                     grid view modulated by a sentence
mlp                      everything flattened, two tanh layers
texts                    several texts, pictures and numbers side by side
decoder                  packed causal transformer with a cache of keys and values
behaviour                acts from a text, a target and its own history
text                     learned tokens + GRU, or frozen MiniLM
"""

from learner.models.config import PolicyConfig, networks

__all__ = ["PolicyConfig", "networks"]
