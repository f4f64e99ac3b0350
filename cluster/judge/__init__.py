"""Judging behaviour in the browser: the `server` and its `page`."""
