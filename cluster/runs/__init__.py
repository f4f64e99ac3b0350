"""A run on disk, and the work on it: inputs and outputs of stages, and the controller that runs them in order."""
