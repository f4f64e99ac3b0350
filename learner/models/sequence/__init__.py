"""Models of sequences.

decoder                  packed causal transformer with a cache of keys and values
behaviour_transformer    acts from a text, a target and its own history
choice                   one of several by their logits
"""
