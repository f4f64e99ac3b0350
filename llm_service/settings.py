"""The service's configuration, one tree: `configs/llm/*.yaml` contain differences from the defaults declared here.

llm=openai llm.model=... llm.limits.dollars=5                     words of `launch.py run`
python -m llm_service.server name=openai model=... limits.dollars=5     the same words, without the service's name
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import ConfigDict, Field, ValidationError, model_validator

from llm_service import backends
from llm_service.config import Part
from llm_service.durable.queue import DurableConfig
from llm_service.durable.redis_server import RedisConfig
from llm_service.embedding import EmbeddingConfig
from llm_service.errors import UsageError
from llm_service.pipeline.batcher import BatchConfig
from llm_service.pipeline.limits import LimitsConfig
from llm_service.pipeline.retry import RetryConfig
from llm_service.server.guard import ServerConfig


class LLMConfig(Part):
    """The language model, and how it is asked. The backend's own options are on the same level."""

    model_config = ConfigDict(extra="allow")

    name: str = "scripted"
    """The backend: a module of `llm_service/backends`."""
    address: str = ""
    """Use the service at this address (host:port, or its folder) instead of starting one."""
    when_away: Literal["none", "cached", "wait", "stop"] = "wait"
    """What a caller does while the service is unavailable: `none`: continue without an answer; `cached`: with the last
    one if that makes sense; `wait` until its deadline; or `stop`. For goals it also applies while an answer is late."""
    world: str = ""
    """JSON file with the environment's description of itself; a run writes its own environment's."""
    record: Literal["all", "paid"] = "all"
    """Write every reply to the journal, or only replies that cost money."""
    fsync: bool = False
    """Sync to disk after each line of the journal and the ledger: then power loss loses nothing."""
    memory_mb: float = Field(default=256.0, ge=0)
    """Maximum size of the cache in memory, MB."""
    consumers: int = Field(default=1, ge=0)
    """Number of consumers of the durable lane in this service; 0 leaves jobs to other services."""
    replicas: int = Field(default=0, ge=0)
    """Number of processes on Ray that hold the model; 0: the service's own process holds it."""
    gpus: float = Field(default=0.0, ge=0, le=1)
    """The GPU of each process that holds the model: a part of one, or 1; 0: one, if `llm.device` says so and there are
    any."""
    probe_s: float = Field(default=10.0, ge=0)
    """Minimum time between two health probes that do real work, seconds."""
    batch: BatchConfig = BatchConfig()
    """Batching of calls."""
    retry: RetryConfig = RetryConfig()
    """Retries and the circuit breaker."""
    limits: LimitsConfig = LimitsConfig()
    """Caps on money, tokens and rates."""
    embedding: EmbeddingConfig = EmbeddingConfig()
    """The encoder for `embed`."""
    redis: RedisConfig = RedisConfig()
    """Redis, for the second cache and the durable lane."""
    durable: DurableConfig = DurableConfig()
    """The durable lane."""
    server: ServerConfig = ServerConfig()
    """The server: address, secrets, limits of requests."""

    @model_validator(mode="before")
    @classmethod
    def _of_the_backend(cls, tree: dict[str, Any]) -> dict[str, Any]:
        """Check the further fields against the backend's own section, and add its defaults."""
        name = str(tree.get("name", cls.model_fields["name"].default))
        if name not in backends.names():
            near = difflib.get_close_matches(name, backends.names(), 1)
            hint = f"did you mean {near[0]}?" if near else f"choose from {', '.join(backends.names())}"
            raise ValueError(f"llm.name: there is no backend {name!r}: {hint}")
        own = {key: value for key, value in tree.items() if key not in cls.model_fields}
        return {**tree, **backends.module(name).Config(**own).model_dump()}

    @property
    def options(self) -> Any:
        """The backend's own `Config`."""
        return backends.module(self.name).Config(**(self.__pydantic_extra__ or {}))


def parse(words: list[str], file: str | None = None) -> LLMConfig:
    """`key=value` words over a YAML file over the defaults. Raises UsageError with one sentence."""
    tree: dict[str, Any] = _read(file) if file else {}
    for word in words:
        key, equals, text = word.removeprefix("llm.").partition("=")
        if not (key and equals):
            raise UsageError(f"cannot read {key.split(':')[0]!r}: write key=value, for example name=openai")
        *sections, leaf = key.split(".")
        node = tree
        for section in sections:
            node = node.setdefault(section, {})
            if not isinstance(node, dict):
                raise UsageError(f"{key}: {section} is a value, not a section")
        try:
            node[leaf] = yaml.safe_load(text)
        except yaml.YAMLError:
            raise UsageError(f"{key}: cannot read its value: quote special characters") from None
    try:
        return LLMConfig(**tree)
    except ValidationError as error:
        raise UsageError(sentence(error)) from None


def sentence(error: ValidationError) -> str:
    """A message about the first thing that pydantic rejects."""
    first = error.errors(include_url=False)[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, ValidationError):
        return sentence(cause)
    if isinstance(cause, Exception):
        return str(cause)
    key = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        return f"llm.{key}: there is no such key"
    return f"llm.{key}: {first['msg'].lower()}, got {first['input']!r}"


def _read(file: str) -> dict[str, Any]:
    try:
        tree = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError):
        raise UsageError(f"{file} is not YAML") from None
    if not isinstance(tree, Mapping):
        raise UsageError(f"{file} contains no keys")
    inner = tree.get("llm", tree)
    return dict(inner) if isinstance(inner, Mapping) else {}
