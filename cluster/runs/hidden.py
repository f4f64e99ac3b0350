"""Secrets in runs from before configurations refused them: they are on disk, but no page or table repeats them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from llm_service.backends.openai.config import HARMLESS, address
from llm_service.errors import UsageError

HIDDEN = "(hidden)"


def hide(config: Mapping[str, Any], manifest: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A run's saved configuration and manifest without values that would be refused today, for showing."""
    llm = config.get("llm")
    if not isinstance(llm, Mapping) or not (secrets := set(_secrets(llm))):
        return dict(config), dict(manifest)
    if "command" in manifest:
        manifest = {**manifest, "command": _line(str(manifest["command"]), secrets)}
    return {**config, "llm": _tree(llm, secrets)}, dict(manifest)


def _secrets(llm: Mapping[str, Any]) -> Iterator[str]:
    """Values that may be secrets, as strings."""
    try:
        address(llm.get("base_url") or "https://host")
    except UsageError:
        yield str(llm["base_url"])
    for kind, names in HARMLESS.items():
        yield from _unlisted(llm.get(kind), names)


def _unlisted(tree: Any, names: frozenset[str], listed: bool = True) -> Iterator[str]:
    """Values of names that are not in this list."""
    if isinstance(tree, Mapping):
        for name, value in tree.items():
            yield from _unlisted(value, names, listed and str(name).lower() in names)
    elif isinstance(tree, list):
        for value in tree:
            yield from _unlisted(value, names, listed)
    elif not listed and str(tree):
        yield str(tree)


def _tree(value: Any, secrets: set[str]) -> Any:
    if isinstance(value, Mapping):
        return {name: _tree(inner, secrets) for name, inner in value.items()}
    if isinstance(value, list):
        return [_tree(inner, secrets) for inner in value]
    return HIDDEN if str(value) in secrets else value


def _line(command: str, secrets: set[str]) -> str:
    """A command line up to the first word that may contain a secret. The words have no quotes there, so the end of the
    secret is unknown."""
    for secret in secrets:
        command = command.replace(secret, HIDDEN)
    return re.sub(r"(\bllm\.(?:headers|query|body|base_url)\b[^=\s]*)=.*", rf"\1={HIDDEN}", command, flags=re.DOTALL)
