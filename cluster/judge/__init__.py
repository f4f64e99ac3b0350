"""Judging behaviour in the browser: `server`, and the `page` that it hands out."""
