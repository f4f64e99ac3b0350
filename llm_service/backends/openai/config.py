"""The server to ask, and what every request includes.

A configuration is printed, saved and compared, so it must contain no secret. Values are accepted only under names that
are known to be harmless; for anything else that a server needs, the configuration names an environment variable, which
is read when a request is sent. A message about a value names its key and never repeats the value.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, Literal
from urllib.parse import SplitResult, urlsplit

from pydantic import Field, ValidationInfo, field_validator

from llm_service.config import Part, variable
from llm_service.errors import UsageError

_HEADERS = """
    accept accept-language anthropic-beta anthropic-version http-referer openai-beta referer user-agent x-title
"""
_QUERY = "api-version api_version deployment location region version"
_BODY = """
    temperature top_p top_k top_a min_p typical_p tfs_z seed n best_of mirostat mirostat_eta mirostat_tau logit_bias
    presence_penalty frequency_penalty repetition_penalty repeat_penalty repeat_last_n length_penalty
    stop stop_token_ids ignore_eos min_tokens max_tokens max_completion_tokens truncation truncate_prompt_tokens
    include_stop_str_in_output skip_special_tokens add_special_tokens
    echo logprobs top_logprobs prompt_logprobs response_format type
    reasoning reasoning_effort effort exclude verbosity think thinking enable_thinking thinking_budget budget_tokens
    include_reasoning chat_template_kwargs
    service_tier store parallel_tool_calls priority cache_prompt keep_alive options num_ctx num_predict num_gpu
    num_thread provider order only ignore sort quantizations allow_fallbacks require_parameters data_collection
"""
HARMLESS = {
    "headers": frozenset(_HEADERS.split()),
    "query": frozenset(_QUERY.split()),
    "body": frozenset(_BODY.split()),
}
"""Names whose values a configuration may contain, in lower case; in `body`, at every depth."""


class Config(Part):
    """Server, model and prices."""

    model: str = ""
    """The server's name for the model."""
    base_url: str = ""
    """Address including the version, such as http://127.0.0.1:8000/v1, without user, password and query; empty:
    OpenAI's."""
    api: Literal["chat", "completions"] = "chat"
    """Endpoint: chat, or plain completions (needed to score candidates of several tokens)."""
    api_key_env: str = "OPENAI_API_KEY"
    """Environment variable with the key; a server on loopback needs none."""
    headers: dict[str, str] = Field(default={})
    """Further headers; only harmless ones such as User-Agent, because a run's configuration is printed and saved."""
    header_env: dict[str, str] = Field(default={})
    """Further headers: name of the header -> environment variable with its value (Azure: `api-key`)."""
    query: dict[str, str] = Field(default={})
    """Further query parameters of every request; only harmless ones such as `api-version` (Azure)."""
    query_env: dict[str, str] = Field(default={})
    """Further query parameters of every request: name of the parameter -> environment variable with its value."""
    body: dict[str, Any] = Field(default={})
    """Further fields of every request except embeddings; only harmless ones, such as sampling, stop texts and reasoning
    effort. null removes a field that the server does not accept."""
    body_env: dict[str, str] = Field(default={})
    """Further fields of every request, including embeddings: name of the field -> environment variable with its
    text."""
    embedding_model: str = ""
    """Model for `embed`; empty: the server is not used for embeddings."""
    dollars_per_million_prompt_tokens: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Price; none: unknown, so a cap in dollars is refused."""
    dollars_per_million_completion_tokens: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Price; none: unknown, so a cap in dollars is refused."""
    concurrency: int = Field(default=32, ge=1)
    """Maximum number of requests at once."""
    max_batch: int = Field(default=1, ge=1)
    """Maximum number of calls in one batch. Only embeddings share a request, so raise it for them; `generate` calls
    would wait for the slowest of their batch."""
    timeout_s: float = Field(default=60.0, gt=0)
    """Time limit of one request, from connecting to the last byte; seconds."""
    context: int | None = Field(default=None, ge=1)
    """Context length in tokens, prompt and reply; calls that exceed it by our estimate are not sent. None: unknown."""
    max_reply_bytes: int = Field(default=4_000_000, ge=1000)
    """Maximum bytes of a reply: no more is read, whatever its status and compression."""
    allow_plain_http: bool = False
    """Allow sending the key over plain http to another host."""

    # These run before pydantic's checks, whose messages repeat the value.

    @field_validator("base_url", mode="before")
    @classmethod
    def _an_address(cls, url: Any) -> Any:
        if url != "":
            address(url)
        return url

    @field_validator("headers", "query", "body", mode="before")
    @classmethod
    def _harmless(cls, values: Any, field: ValidationInfo) -> Any:
        name = str(field.field_name)
        other = name.removesuffix("s") + "_env"
        if not isinstance(values, Mapping):
            raise UsageError(f"llm.{name}: expected names with values; possible secrets go into llm.{other}")
        if found := _unlisted(values, HARMLESS[name]):
            raise UsageError(
                f"llm.{name}.{found} may hold a secret, and a configuration is printed and saved: put the value into "
                f"an environment variable, and name that in llm.{other}"
            )
        return values

    @field_validator("header_env", "query_env", "body_env", mode="before")
    @classmethod
    def _variables(cls, values: Any, field: ValidationInfo) -> Any:
        if not isinstance(values, Mapping):
            raise UsageError(f"llm.{field.field_name}: expected names, each with the name of an environment variable")
        for name, value in values.items():
            variable(f"llm.{field.field_name}.{_shown(name)}", value)
        return values

    @field_validator("api_key_env", mode="before")
    @classmethod
    def _variable(cls, value: Any) -> Any:
        return variable("llm.api_key_env", value)


def _unlisted(values: Mapping[Any, Any], listed: frozenset[str]) -> str:
    """The first name that is not listed, "" if all are. In `logit_bias` the names are token ids."""
    for name, value in values.items():
        token = str(name).isdecimal() and isinstance(value, int | float)
        if not (token or str(name).lower() in listed):
            return _shown(name)
        for inner in _mappings(value):
            if found := _unlisted(inner, listed):
                return f"{_shown(name)}.{found}"
    return ""


def _mappings(value: Any) -> Iterator[Mapping[Any, Any]]:
    """This mapping, or the mappings in this list, at any depth of lists."""
    if isinstance(value, Mapping):
        yield value
    elif isinstance(value, list):
        for inner in value:
            yield from _mappings(inner)


def _shown(name: Any) -> str:
    """A name that a message may repeat: one with spaces or the like may be a whole header."""
    return name if isinstance(name, str) and name.replace("-", "").replace("_", "").isalnum() else "(a name)"


def address(text: Any) -> SplitResult:
    """The parts of a server's address. Raises UsageError if it is not an address, or may contain a secret."""
    try:
        url = urlsplit(str(text))
        bad = url.scheme not in ("http", "https") or not url.hostname or url.port == 0
    except ValueError:
        bad = True
    if bad or any(c.isspace() for c in str(text)):
        raise UsageError("llm.base_url is not an address such as https://host/v1")
    if url.username is not None or url.query or url.fragment:
        raise UsageError(
            "llm.base_url: leave out user, password and query: a key belongs in the environment, see "
            "llm.api_key_env, llm.header_env and llm.query_env"
        )
    return url


def endpoint(url: SplitResult) -> str:
    """One text per server, however its address is written, with only scheme, host, port and path."""
    host = url.hostname or ""
    host = f"[{host}]" if ":" in host else host
    usual = url.port in (None, {"http": 80, "https": 443}.get(url.scheme))
    return f"{url.scheme}://{host}{'' if usual else f':{url.port}'}{url.path.rstrip('/')}"


def secret(name: str, option: str) -> str:
    """The value of an environment variable. Raises UsageError if it is empty, or a request cannot contain it."""
    value = os.environ.get(name, "").strip()
    if not value:
        raise UsageError(f"{option}: the environment variable {name} is not set: put the server's key into it")
    if not (value.isascii() and value.isprintable()):
        raise UsageError(f"{option}: the environment variable {name} holds characters that a request cannot contain")
    return value


def origin(config: Config, keyed: bool) -> str:
    """The sources of a server's secrets, for a message: names of options and variables, never their values.

    keyed: whether `api_key_env` is one of them.
    """
    kinds = {"header_env": config.header_env, "query_env": config.query_env, "body_env": config.body_env}
    names = {f"{kind}.{name}": env for kind, named in kinds.items() for name, env in named.items()}
    if keyed or not names:
        names = {"api_key_env": config.api_key_env} | names
    return " and ".join(f"llm.{option}, the environment variable {name}" for option, name in names.items())


def secrets(config: Config) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """Headers, query parameters and body fields, with the current values of environment variables.

    Raises:
        UsageError: a variable is not set.
    """
    kinds = {"header_env": config.header_env, "query_env": config.query_env, "body_env": config.body_env}
    headers, query, body = (
        {name: secret(value, f"llm.{kind}.{name}") for name, value in named.items()} for kind, named in kinds.items()
    )
    # In the client's spelling; otherwise it would add its own header.
    headers = {"Authorization" if name.lower() == "authorization" else name: value for name, value in headers.items()}
    return headers, query, body
