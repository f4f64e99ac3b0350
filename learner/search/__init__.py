"""Novelty search with an ask-and-tell interface. The search is independent of the world and of the evaluators; what is
looked for are modules, found by name: `descriptors/` and `qualities/` of robots in a house."""
