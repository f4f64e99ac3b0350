"""Every process imports this checkout, the controller and its workers: our folders have names that anyone may own."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from llm_service.errors import UsageError

PACKAGES = ("envs", "actors", "learner", "llm_service", "cluster")


def refuse_shadowed_workers() -> None:
    """Runs in every worker process as it starts: `refuse_foreign_packages` of this checkout."""
    refuse_foreign_packages(Path(__file__).resolve().parents[2])


def refuse_foreign_packages(checkout: Path) -> None:
    """A package of our name from elsewhere would give wrong results, silently.

    Raises:
        UsageError: a package is not imported from `checkout`.
    """
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        origin = Path(spec.origin).resolve() if spec and spec.origin else None
        if origin is None or checkout.resolve() not in origin.parents:
            found = origin or "nowhere"
            raise UsageError(f"package {name} comes from {found}, not from {checkout}: take the other off PYTHONPATH")
