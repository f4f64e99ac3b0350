"""The service's configuration, one tree: `configs/llm/*.yaml` state differences from the defaults declared here.

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
    """Which language model, and how it is asked. The backend's own options stand beside these."""

    model_config = ConfigDict(extra="allow")

    name: str = "scripted"
    """The backend: a module of `llm_service/backends`."""
    address: str = ""
    """Use the service that runs there (host:port, or its folder) instead of starting one."""
    when_away: Literal["none", "cached", "wait", "stop"] = "wait"
    """What a caller does while the service is away: go on without an answer, or with the last one where that makes
    sense, wait until its deadline, or stop. Goals go by it also while an answer is not there yet."""
    world: str = ""
    """JSON file of what the world publishes of itself; a run writes its own world's."""
    record: Literal["all", "paid"] = "all"
    """Write every reply into the journal, or only those that cost money."""
    fsync: bool = False
    """Wait for the disk after each line of the journal and the ledger: power loss then loses nothing."""
    memory_mb: float = Field(default=256.0, ge=0)
    """Bound of the cache in memory."""
    consumers: int = Field(default=1, ge=0)
    """Workers of the durable lane in this service; 0 leaves the jobs to others."""
    replicas: int = Field(default=0, ge=0)
    """On Ray, how many processes hold the model; 0: the service's own process does."""
    gpus: float = Field(default=0.0, ge=0)
    """GPUs that each of them asks for."""
    probe_s: float = Field(default=10.0, ge=0)
    """Health does a real piece of work at most this often; seconds."""
    batch: BatchConfig = BatchConfig()
    """How calls become batches."""
    retry: RetryConfig = RetryConfig()
    """Retries and the breaker."""
    limits: LimitsConfig = LimitsConfig()
    """Caps of money, tokens and rates."""
    embedding: EmbeddingConfig = EmbeddingConfig()
    """What `embed` answers with."""
    redis: RedisConfig = RedisConfig()
    """The Redis of the second cache and the durable lane."""
    durable: DurableConfig = DurableConfig()
    """The durable lane."""
    server: ServerConfig = ServerConfig()
    """The door: address, secrets, limits of requests."""

    @model_validator(mode="before")
    @classmethod
    def _of_the_backend(cls, tree: dict[str, Any]) -> dict[str, Any]:
        """Checks the further fields against the backend's own part, and adds its defaults."""
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
            raise UsageError(f"{key}: cannot read its value: quote what is special") from None
    try:
        return LLMConfig(**tree)
    except ValidationError as error:
        raise UsageError(sentence(error)) from None


def sentence(error: ValidationError) -> str:
    """What pydantic rejects first, in words."""
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
        raise UsageError(f"{file} holds no keys")
    inner = tree.get("llm", tree)
    return dict(inner) if isinstance(inner, Mapping) else {}
