"""Every process, controller or worker, must import this checkout: our folders have names that others may use too."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from llm_service.errors import UsageError

PACKAGES = ("envs", "actors", "learner", "llm_service", "cluster")


def refuse_shadowed_workers() -> None:
    """Runs at the start of every worker process: `refuse_foreign_packages` for this checkout."""
    refuse_foreign_packages(Path(__file__).resolve().parents[2])


def refuse_foreign_packages(checkout: Path) -> None:
    """Refuse packages with our names from elsewhere, which would silently give wrong results.

    Raises:
        UsageError: a package is not imported from `checkout`.
    """
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        origin = Path(spec.origin).resolve() if spec and spec.origin else None
        if origin is None or checkout.resolve() not in origin.parents:
            found = origin or "nowhere"
            raise UsageError(
                f"package {name} comes from {found}, not from {checkout}: remove the other one from PYTHONPATH"
            )
