"""A package, so that processes that tests start find ours, and not a `tests` that some library installs."""
