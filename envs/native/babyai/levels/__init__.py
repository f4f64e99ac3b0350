"""The loops that draw levels, compiled: a function for each of Minigrid's `gen_mission`, and of our own levels.

doors, keys, mazes, rooms    named after what they are about
sentences                    any mission       own    what Minigrid lacks
"""
