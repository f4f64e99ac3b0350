"""Novelty search with an ask-and-tell interface. It is independent of the world and of the evaluators."""
