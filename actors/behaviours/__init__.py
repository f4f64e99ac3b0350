"""Robots in the house, by the thousand: who plays where `learner/behaviours` learns. LGQD's own."""
