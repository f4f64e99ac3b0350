"""Engines that run the stages of a method: one per kind of stage, a module found by its name.

A module publishes `Engine`, a `cluster.runs.stage.StageEngine`. To add a kind, add a module and a method that names it.
Code that several kinds share is in `_shared`.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from cluster.runs.stage import StageEngine  # imports PyTorch, which a list of names does not need


def names() -> list[str]:
    """Every kind of stage, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))


def engine(kind: str) -> type[StageEngine]:
    """The engine that runs the stages of a kind.

    Raises:
        LookupError: there is no such kind.
    """
    if kind not in names():
        raise LookupError(f"there is no kind of stage {kind!r}: there are {', '.join(names())}")
    return cast("type[StageEngine]", importlib.import_module(f"{__name__}.{kind}").Engine)
