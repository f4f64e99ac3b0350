"""Tests that need a GPU. On a machine without one they are skipped, and pytest says why."""
