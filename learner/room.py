"""A room: a package of modules that publish the same thing, each found by the name of its file.

    learner/rewards/rnd.py: TERM ──┐
    learner/rewards/apt.py: TERM ──┴──> Room("learner.rewards", "TERM") ──> names(), get("rnd")

A new module needs no list and no import. One whose name begins with `_` is shared by the others.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from typing import Generic, TypeVar, cast

Published = TypeVar("Published")


class Room(Generic[Published]):
    """The modules of a package.

    Args:
        package: its full name; it is being imported, or has been.
        publishes: the name under which each module publishes something; if empty, it is the module itself.
    """

    def __init__(self, package: str, publishes: str = "") -> None:
        self.package, self.publishes = package, publishes

    def names(self) -> list[str]:
        """Names of all modules, sorted. None is imported."""
        found = pkgutil.iter_modules(sys.modules[self.package].__path__)
        return sorted(module.name for module in found if not module.name.startswith("_"))

    def get(self, name: str) -> Published:
        """What the module of that name publishes; KeyError if there is no such module."""
        if name not in self.names():
            raise KeyError(name)
        module = importlib.import_module(f"{self.package}.{name}")
        return cast("Published", getattr(module, self.publishes) if self.publishes else module)
