"""Where roles run, and the controller's view of them."""
