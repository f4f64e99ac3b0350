"""The door of a service that listens, as the key `server` of its configuration."""

from __future__ import annotations

from pydantic import Field

from llm_service.config import Part


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
