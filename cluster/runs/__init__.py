"""A run on disk, and the work on it: what a stage is given and leaves, and the controller that runs them in order."""
