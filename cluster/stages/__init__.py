"""What runs the stages of a method: one engine a kind, a module found by its name.

    collect      episodes into a store               evaluate     held-out seeds, tables, videos
    fit          a policy to a store                 generalise   the same in other words and worlds
    train        the actor-learner loop              deploy       trials of a transformer that acts
    search       a novelty search                    judge        a language model's opinion of them
    curate       verbs on archives and stores, found by name in their turn
    imitate      a transformer to a store

A module publishes `Engine`, a `cluster.runs.stage.StageEngine`. A new kind is a new module, and a method that names it.
What several kinds have in common is in `_shared`.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cluster.runs.stage import StageEngine  # imports PyTorch, which a list of names need not


def names() -> list[str]:
    """Every kind of stage, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))


def engine(kind: str) -> type[StageEngine]:
    """What runs the stages of a kind.

    Raises:
        LookupError: there is no such kind.
    """
    if kind not in names():
        raise LookupError(f"there is no kind of stage {kind!r}: there are {', '.join(names())}")
    found: type[StageEngine] = importlib.import_module(f"{__name__}.{kind}").Engine
    return found
