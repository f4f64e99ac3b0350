"""Panels of a report: what stands between its header and the facts of its runs. One module each, found by name.

A module publishes

    SUBJECT             of which runs it tells: `agents`, or `behaviours`
    ORDER               its place among the others, lowest first
    panel(runs, arms)   its sections, of pieces of `page.py`; "" where there is nothing to tell. `arms` are the runs by
                        their settings
"""

from __future__ import annotations

from typing import Any

from learner.room import Room

PANELS = Room[Any](__name__)  # of modules
names = PANELS.names


def panels(subject: str) -> list[Any]:
    """The modules that tell of a subject, in order."""
    every = map(PANELS.get, names())
    return sorted((module for module in every if subject == module.SUBJECT), key=lambda module: module.ORDER)
