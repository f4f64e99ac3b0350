"""Judging behaviour in the browser: the `server` and its `page`, on `loopback` as other pages, too."""
