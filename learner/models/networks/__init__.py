"""Networks: from observations to features. One module each, found by name; `learner/models/policy.py` says what one is.

`policy.network=NAME` chooses the module.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any


def names() -> list[str]:
    """Names of all network modules, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def network(name: str) -> Any:
    """The class `Network` that a module publishes."""
    return importlib.import_module(f"{__name__}.{name}").Network
