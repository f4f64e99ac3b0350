"""Metrics: where numbers go, what each one means, and its confidence interval."""
