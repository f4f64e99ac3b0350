"""What verbs do: `launch.py` names them, and these modules do the work that is theirs alone."""
