"""Panels of a report: what stands between its header and the facts of its runs. One module each, found by name.

A module publishes

    SUBJECT             of which runs it tells: `agents`, or `behaviours`
    ORDER               its place among the others, lowest first
    panel(runs, arms)   its sections, of pieces of `page.py`; "" where there is nothing to tell. `arms` are the runs by
                        their settings
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any


def names() -> list[str]:
    """Every panel, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def panels(subject: str) -> list[Any]:
    """The modules that tell of a subject, in order."""
    every = [importlib.import_module(f"{__name__}.{name}") for name in names()]
    return sorted((module for module in every if subject == module.SUBJECT), key=lambda module: module.ORDER)
