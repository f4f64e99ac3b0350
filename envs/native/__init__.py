"""Compiled engines: worlds as rows of small integers, moved by loops that a compiler turns into machine code.

random      random numbers for them, and the seeds of episodes
babyai      BabyAI, a million steps a second
crafter     Crafter
navigation  a robot in a house, with the networks that drive it

Nothing is imported here: compiled code is loaded by the worlds that use it, when they are built.
"""
