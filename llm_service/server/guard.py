"""Where and for whom the server listens: its configuration, the key `server`, and its token. Nothing here needs gRPC.

The token comes from the environment or a file; else one is made, in the service's folder, readable by its owner only.
It is never printed, and beyond loopback the server wants a token that somebody chose, and TLS.
"""

from __future__ import annotations

import hmac
import logging
import os
import secrets
from collections.abc import Iterable
from pathlib import Path

from pydantic import Field

from llm_service.config import Part, this_machine
from llm_service.errors import UsageError

log = logging.getLogger(__name__)


class ServerConfig(Part):
    """Where and for whom the service listens."""

    listen: str = "127.0.0.1:0"
    """HOST:PORT, port 0: the system chooses one; or unix:PATH. Beyond loopback: only with a given token and TLS."""
    token_env: str = "CAIRN_LLM_TOKEN"
    """Environment variable that holds the callers' token."""
    token_file: str = ""
    """File that holds the token, if the variable is not set; if neither is, one is made in the service's folder."""
    tls_certificate: str = ""
    """File with the server's certificate chain, PEM."""
    tls_key: str = ""
    """File with its private key, PEM."""
    tls_client_ca: str = ""
    """File with the authority whose certificates callers must show, PEM; empty: they need show none."""
    max_message_mb: int = Field(default=64, ge=1, le=1024)
    """Largest request and largest reply, MiB."""
    max_items: int = Field(default=4096, ge=1)
    """Most items of one request."""
    max_characters: int = Field(default=200_000, ge=1)
    """Longest text of an item."""
    max_calls: int = Field(default=4096, ge=1)
    """Most calls of callers with the token that are open at once, whatever they ask; more are told that it is busy, and
    none of their body is received."""
    per_caller: int = Field(default=256, ge=1)
    """Most requests of one caller that may wait at once; answers in memory do not count."""
    in_all: int = Field(default=2048, ge=1)
    """Most requests of all callers that may wait at once."""
    max_deadline_s: float = Field(default=600.0, gt=0)
    """Longest time for a request, whatever its caller allows; seconds."""
    drain_s: float = Field(default=20.0, ge=0)
    """Time for requests under way when the server is told to end, seconds."""
    metrics_port: int | None = Field(default=None, ge=0, le=65535)
    """Port for Prometheus, 0 for one that the system chooses; null: none."""
    metrics_host: str = "127.0.0.1"
    """Address for it, 0.0.0.0 for all. It wants no token: whoever reaches it reads counters, and no text."""


def loopback(address: str) -> bool:
    """Whether `host:port` or `unix:path` can be reached from this machine only."""
    return address.startswith("unix:") or this_machine(address.rpartition(":")[0].strip("[]"))


def read_token(path: Path) -> str:
    """The token in a file. Raises UsageError if it cannot be read, or is empty or not ASCII."""
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

    One that a crash left empty, or a disk has damaged, is set aside, and told in the log: clients look up the new one.

    Raises:
        UsageError: others may read the file.
    """
    path = folder / "token"
    folder.mkdir(parents=True, exist_ok=True)
    if path.is_symlink() or (path.exists() and path.stat().st_mode & 0o077):
        raise UsageError(f"token: others may read {path}; delete it, and the next start makes a new one")
    if path.exists():
        try:
            return read_token(path)
        except UsageError as damage:
            beside = path.replace(path.with_name("token.damaged"))
            log.warning("%s; it is set aside in %s, and a new one is made", damage, beside.name)
    token = secrets.token_urlsafe(32)
    with open(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w", encoding="ascii"
    ) as file:
        file.write(token)
        file.flush()
        os.fsync(file.fileno())
    return token


def matches(token: str, metadata: Iterable[tuple[str, str | bytes]]) -> bool:
    """Whether a request's metadata carries the token; takes as long for a near miss as for a far one."""
    wanted = f"Bearer {token}".encode()
    for name, value in metadata:
        if name == "authorization":
            given = value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")
            return hmac.compare_digest(given, wanted)
    return False
