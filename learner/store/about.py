"""What a store says of itself: one JSON file in its folder, with the number of its format."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from llm_service.errors import UsageError


def read_about(path: Path, what: str, form: int, keys: Sequence[str], error: type[UsageError]) -> dict[str, Any]:
    """The file of a store of kind `what`, which has a format and these keys.

    Raises:
        error: one sentence: there is none, it is damaged, or of another format than `form`.
    """
    try:
        says: dict[str, Any] = json.loads(path.read_bytes())
        found, _ = says["format"], [says[key] for key in keys]
    except FileNotFoundError:
        raise error(f"{path.parent} is no {what}: it holds no {path.name}") from None
    except (OSError, ValueError, KeyError, TypeError) as reason:
        raise error(f"{path} is damaged: {reason}") from None
    if found != form:
        raise error(f"{path.parent} has format {found}, this version reads {form}")
    return says
