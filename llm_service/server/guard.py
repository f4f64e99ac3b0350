"""The server's address and access: its configuration, the key `server`, and its token. Nothing here needs gRPC.

The token comes from the environment or a file; otherwise one is generated in the service's folder, readable only by its
owner. It is never printed. Beyond loopback the server requires a token that the user chose, and TLS.
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
    """The server's address and access."""

    listen: str = "127.0.0.1:0"
    """HOST:PORT, port 0: a free one; or unix:PATH. Beyond loopback: only with a given token and TLS."""
    openai: str = ""
    """HOST:PORT of an OpenAI-compatible HTTP API with the same token, port 0: a free one; empty: none. Beyond loopback:
    as for `listen`."""
    token_env: str = "CAIRN_LLM_TOKEN"
    """Environment variable with the callers' token."""
    token_file: str = ""
    """File with the token, if the variable is not set; without either, one is generated in the service's folder."""
    tls_certificate: str = ""
    """File with the server's certificate chain, PEM."""
    tls_key: str = ""
    """File with its private key, PEM."""
    tls_client_ca: str = ""
    """File with the authority for callers' certificates, PEM; empty: callers need no certificate."""
    max_message_mb: int = Field(default=64, ge=1, le=1024)
    """Maximum size of a request and of a reply, MiB."""
    max_items: int = Field(default=4096, ge=1)
    """Maximum number of items in a request."""
    max_characters: int = Field(default=200_000, ge=1)
    """Maximum number of characters in an item's text."""
    max_calls: int = Field(default=4096, ge=1)
    """Maximum number of open calls with the token, of any kind. More are refused as busy, and their bodies are not
    received."""
    per_caller: int = Field(default=256, ge=1)
    """Maximum number of waiting requests of one caller; answers from memory do not count."""
    in_all: int = Field(default=2048, ge=1)
    """Maximum number of waiting requests of all callers."""
    max_deadline_s: float = Field(default=600.0, gt=0)
    """Maximum time for a request, whatever deadline its caller sets, seconds."""
    drain_s: float = Field(default=20.0, ge=0)
    """Time for requests in progress when the server is asked to end, seconds."""
    metrics_port: int | None = Field(default=None, ge=0, le=65535)
    """Port for Prometheus, 0: a free one; null: none."""
    metrics_host: str = "127.0.0.1"
    """Address of that port, 0.0.0.0: all. It requires no token: anyone who reaches it reads counters, but no text."""


def loopback(address: str) -> bool:
    """Whether `host:port` or `unix:path` can only be reached from this machine."""
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
        raise UsageError(f"token: {where} must contain one word of ASCII letters, digits and signs")
    return token


def chosen_token(token_env: str, token_file: str) -> str:
    """The token from the environment or a file, "" if there is none.

    Raises:
        UsageError: the file cannot be read, or the token is not valid.
    """
    token = os.environ.get(token_env, "") if token_env else ""
    if token:
        return _checked(token, f"the environment's {token_env}")
    return read_token(Path(token_file)) if token_file else ""


def folder_token(folder: Path) -> str:
    """The token of a service folder, generated at the first start and kept, so that clients survive a restart.

    An empty or damaged token file is set aside and reported in the log; clients look up the new token.

    Raises:
        UsageError: others may read the file.
    """
    path = folder / "token"
    folder.mkdir(parents=True, exist_ok=True)
    if path.is_symlink() or (path.exists() and path.stat().st_mode & 0o077):
        raise UsageError(f"token: others may read {path}; delete it, and the next start generates a new one")
    if path.exists():
        try:
            return read_token(path)
        except UsageError as damage:
            beside = path.replace(path.with_name("token.damaged"))
            log.warning("%s; it is set aside in %s, and a new one is generated", damage, beside.name)
    token = secrets.token_urlsafe(32)
    with open(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w", encoding="ascii"
    ) as file:
        file.write(token)
        file.flush()
        os.fsync(file.fileno())
    return token


def matches(token: str, metadata: Iterable[tuple[str, str | bytes]]) -> bool:
    """Whether a request's metadata contains the token; the comparison takes constant time."""
    wanted = f"Bearer {token}".encode()
    for name, value in metadata:
        if name == "authorization":
            given = value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")
            return hmac.compare_digest(given, wanted)
    return False
