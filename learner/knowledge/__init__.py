"""What was asked about a world once, and what it became: segments of what was lived, preferences, goals, programs.

episodes ──> segments ──> preferences, goals, programs ──> potentials, for any number of tasks
"""
