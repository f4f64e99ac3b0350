"""Engines that run the stages of a method: one per kind of stage, a module found by its name.

A module publishes `Engine`, a `cluster.runs.stage.StageEngine`. To add a kind, add a module and a method that names it.
Code that several kinds share is in `_shared`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from learner.room import Room

if TYPE_CHECKING:
    from cluster.runs.stage import StageEngine  # imports PyTorch, which a list of names does not need


ENGINES = Room["type[StageEngine]"](__name__, "Engine")
names = ENGINES.names


def engine(kind: str) -> type[StageEngine]:
    """The engine that runs the stages of a kind.

    Raises:
        LookupError: there is no such kind.
    """
    if kind not in names():
        raise LookupError(f"there is no kind of stage {kind!r}: there are {', '.join(names())}")
    return ENGINES.get(kind)
