"""From a gradient to a step: what serves any learner."""
