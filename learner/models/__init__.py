"""Networks.

Policy, PolicyConfig     encoder by name + optional GRU + actor and critic heads       (policy)
film                     grid view modulated by a sentence
mlp                      everything flattened, two tanh layers
text                     learned tokens + GRU, or frozen MiniLM
"""

from learner.models.policy import Policy, PolicyConfig, networks

__all__ = ["Policy", "PolicyConfig", "networks"]
