"""From a gradient to an optimiser step, for any learner."""
