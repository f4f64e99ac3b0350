"""Where roles run, and those that the controller deals with.

backend        the interface, and all roles in this process     drawing     roles and what flows between them, as data
local          Ray on this machine                              joined      Ray that a job has started
supervisor     keeps the actors at work                         learners    the learner's ranks as one
policy_server  for actors that send their states away           language    the LLM service, revived if it dies
checkout       every process imports this one
"""
