"""The configuration of a run, and what is wrong with one."""
