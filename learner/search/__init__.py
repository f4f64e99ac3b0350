"""Novelty search by ask and tell. It knows neither world nor player.

novelty_search    what to play next, and what to make of what was played; generations may overlap
novelty           its pure parts: parents, mutation, novelty, survivors
elites            the best of each cell of a grid, beside what is novel
config            SearchConfig
"""
