"""Where roles run, and those that the controller deals with."""
