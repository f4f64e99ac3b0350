"""The compiled engine of the houses that are to be put in order: `envs.housekeep` says what it plays."""
