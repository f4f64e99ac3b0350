"""Who may speak to the server: its token, and where it may listen. Nothing here needs gRPC.

The token comes from the environment or a file; else one is made, in the service's folder, readable by its owner only.
It is never printed, and beyond loopback the server wants a token that somebody chose, and TLS.
"""

from __future__ import annotations

import hmac
import os
import secrets
from collections.abc import Iterable
from pathlib import Path

from llm_service.config import this_machine
from llm_service.errors import UsageError


def loopback(address: str) -> bool:
    """Whether `host:port` or `unix:path` can be reached from this machine only."""
    return address.startswith("unix:") or this_machine(address.rpartition(":")[0].strip("[]"))


def read_token(path: Path) -> str:
    """The token in a file.

    Raises:
        UsageError: it cannot be read, or is empty or not ASCII.
    """
    try:
        token = path.read_bytes().decode("ascii").strip()
    except OSError as error:
        raise UsageError(f"token: cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        token = ""
    return _checked(token, str(path))


def _checked(token: str, where: str) -> str:
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(f"token: {where} must hold one word of ASCII letters, digits and signs")
    return token


def chosen_token(token_env: str, token_file: str) -> str:
    """The token of the environment or a file, "" if there is none.

    Raises:
        UsageError: the file cannot be read, or the token cannot travel.
    """
    token = os.environ.get(token_env, "") if token_env else ""
    if token:
        return _checked(token, f"the environment's {token_env}")
    return read_token(Path(token_file)) if token_file else ""


def folder_token(folder: Path) -> str:
    """The token of a service folder, made at the first start and kept, so that clients outlive a restart.

    Raises:
        UsageError: others may read the file.
    """
    path = folder / "token"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        if path.is_symlink() or path.stat().st_mode & 0o077:
            raise UsageError(f"token: others may read {path}; delete it, and the next start makes a new one") from None
        return read_token(path)
    token = secrets.token_urlsafe(32)
    with open(handle, "w", encoding="ascii") as file:
        file.write(token)
    return token


def matches(token: str, metadata: Iterable[tuple[str, str | bytes]]) -> bool:
    """Whether a request's metadata carries the token; takes as long for a near miss as for a far one."""
    wanted = f"Bearer {token}".encode()
    for name, value in metadata:
        if name == "authorization":
            given = value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")
            return hmac.compare_digest(given, wanted)
    return False
