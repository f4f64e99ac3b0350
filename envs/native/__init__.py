"""Compiled engines: worlds as rows of small integers, moved by loops that a compiler turns into machine code.

Nothing is imported here: compiled code is loaded by the worlds that use it, when they are built.
"""
