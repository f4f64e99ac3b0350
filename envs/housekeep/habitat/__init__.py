"""Houses in habitat-sim, for who has it, its scenes and its objects: one process for each player.

scene       what a house consists of, from a published episode and the folder of scenes
child       a house in habitat-sim; runs in a Python of its own
children    the processes, and what is told when one ends
engine      what a player does and sees, written into our arrays

Not run on habitat-sim itself: tested on a stand-in that records the calls.
"""
