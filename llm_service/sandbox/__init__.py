"""Written programs, kept apart from everything else.

grammar                  which programs are programs here; parses, never runs   (grammar)

Nothing here runs a program: that is the work of another process, with limits on time and memory.
"""
