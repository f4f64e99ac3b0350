"""Log-probabilities of given continuations: the policy of an agent that acts through a language model."""
