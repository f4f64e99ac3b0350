"""Written programs, kept apart from everything else.

grammar                  which programs are programs here; parses, never runs   (grammar)

Nothing in this package runs a program in this process. Running one is the work of another process with limits on time
and memory, without files and network: the grammar bounds what a program can name, not what it can compute.
"""
