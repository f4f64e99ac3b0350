"""The loops that draw levels, compiled: a function for each of Minigrid's `gen_mission`, and of our own levels."""
