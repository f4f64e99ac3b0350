"""Where a behaviour is after half of the steps: two numbers."""

from learner.search.descriptors import Places

DESCRIPTOR = Places({"halfway": 0.5}, cells=20)
