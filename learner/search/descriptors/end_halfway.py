"""Where a behaviour ends and where it is halfway: four numbers, so that two routes to one end differ."""

from learner.search.descriptors import Places

DESCRIPTOR = Places({"end": 1.0, "halfway": 0.5}, cells=5)
