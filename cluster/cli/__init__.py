"""What verbs do: `launch.py` names them, and these modules do the work that is theirs alone.

terminal       overview, errors, exit codes                     start       here, or in a queue
status         status, stop, logs                               sweep       every combination of values
doctor         is this machine fit? (exposure: who can reach it)            llm_verbs   llm cost, llm label
"""
