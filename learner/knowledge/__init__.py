"""Knowledge from a language model that is asked once about an environment: segments of episodes, preferences, goals,
programs.

episodes ──> segments ──> preferences, goals, programs ──> potentials, for any number of tasks
"""
