"""A package, so that no `tests` that a library installs beside its own is taken for ours in processes that tests start."""
