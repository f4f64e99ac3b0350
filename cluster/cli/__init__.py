"""The work of the verbs: `launch.py` declares them, and these modules implement what only one verb needs."""
