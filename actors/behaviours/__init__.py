"""Thousands of robots in the house: the actors for what `learner/behaviours` learns. Only for LGQD."""
