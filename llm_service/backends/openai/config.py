"""Which server is asked, and what goes along with every request.

A configuration is printed, saved and compared, so no secret may stand in one. Values are taken only under names that
are known to hold none; whatever else a server wants names an environment variable, which is read when a request is
sent. A message about a value names its key and never repeats it.
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
"""Names whose values may stand in a configuration, in lower case; those of `body` at every depth."""


class Config(Part):
    """Which server and model, and what it costs."""

    model: str = ""
    """Name of the model, as the server knows it."""
    base_url: str = ""
    """Address up to and including the version, such as http://127.0.0.1:8000/v1, without user, password and query;
    empty: OpenAI's."""
    api: Literal["chat", "completions"] = "chat"
    """Which endpoint: conversations, or plain prompts (needed to score candidates of several tokens)."""
    api_key_env: str = "OPENAI_API_KEY"
    """Environment variable that holds the key; a server on loopback needs none."""
    headers: dict[str, str] = Field(default={})
    """Further headers; only harmless ones such as User-Agent, since a run's configuration is printed and saved."""
    header_env: dict[str, str] = Field(default={})
    """Further headers: name of the header -> environment variable that holds its value (Azure: `api-key`)."""
    query: dict[str, str] = Field(default={})
    """Further fields of every address; only harmless ones such as `api-version` (Azure)."""
    query_env: dict[str, str] = Field(default={})
    """Further fields of every address: name of the field -> environment variable that holds its value."""
    body: dict[str, Any] = Field(default={})
    """Further fields of every request but embeddings; only harmless ones: how tokens are drawn, where a reply ends, how
    long a model thinks. null leaves out one that the server does not take."""
    body_env: dict[str, str] = Field(default={})
    """Further fields of every request, embeddings too: name of the field -> environment variable that holds its
    text."""
    embedding_model: str = ""
    """Model for `embed`; empty: the server is not asked for embeddings."""
    dollars_per_million_prompt_tokens: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Price; none: unknown, and no cap of money can be held."""
    dollars_per_million_completion_tokens: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Price; none: unknown, and no cap of money can be held."""
    concurrency: int = Field(default=32, ge=1)
    """Most requests at once."""
    max_batch: int = Field(default=1, ge=1)
    """Most calls in one batch. Only embeddings share a request: raise it for them; generated calls would wait for the
    slowest of their batch."""
    timeout_s: float = Field(default=60.0, gt=0)
    """Most time for one request, from connecting to the last byte; seconds."""
    context: int | None = Field(default=None, ge=1)
    """Tokens that the model reads and writes; calls that by estimate do not fit are not sent. None: the server says."""
    max_reply_bytes: int = Field(default=4_000_000, ge=1000)
    """A longer reply is not an honest one: no more of it is read, whatever its status, and however it is compressed."""
    allow_plain_http: bool = False
    """Send the key over plain http to a host that is not this one."""

    # These look before pydantic does, whose own messages repeat the value.

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
            raise UsageError(f"llm.{name}: expected names with values; what may be a secret goes into llm.{other}")
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
    """The first name that is not listed, "" if all are. In `logit_bias` the names are numbers of tokens."""
    for name, value in values.items():
        token = str(name).isdecimal() and isinstance(value, int | float)
        if not (token or str(name).lower() in listed):
            return _shown(name)
        for inner in _mappings(value):
            if found := _unlisted(inner, listed):
                return f"{_shown(name)}.{found}"
    return ""


def _mappings(value: Any) -> Iterator[Mapping[Any, Any]]:
    """This mapping, or those in this list, at any depth of lists."""
    if isinstance(value, Mapping):
        yield value
    elif isinstance(value, list):
        for inner in value:
            yield from _mappings(inner)


def _shown(name: Any) -> str:
    """A name as it may be repeated: one with spaces or the like may be a whole header."""
    return name if isinstance(name, str) and name.replace("-", "").replace("_", "").isalnum() else "(a name)"


def address(text: Any) -> SplitResult:
    """The parts of a server's address. Raises UsageError if it is none, or it holds what may be a secret."""
    try:
        url = urlsplit(str(text))
        bad = url.scheme not in ("http", "https") or not url.hostname or url.port == 0
    except ValueError:
        bad = True
    if bad or any(c.isspace() for c in str(text)):
        raise UsageError("llm.base_url is not an address such as https://host/v1")
    if url.username is not None or url.query or url.fragment:
        raise UsageError(
            "llm.base_url: leave out user, password and query: a key belongs into the environment, see "
            "llm.api_key_env, llm.header_env and llm.query_env"
        )
    return url


def endpoint(url: SplitResult) -> str:
    """One text for one server, however its address is written, and nothing in it but scheme, host, port and path."""
    host = url.hostname or ""
    host = f"[{host}]" if ":" in host else host
    usual = url.port in (None, {"http": 80, "https": 443}.get(url.scheme))
    return f"{url.scheme}://{host}{'' if usual else f':{url.port}'}{url.path.rstrip('/')}"


def secret(name: str, option: str) -> str:
    """What an environment variable holds. Raises UsageError if it is nothing, or what no request can carry."""
    value = os.environ.get(name, "").strip()
    if not value:
        raise UsageError(f"{option}: the environment variable {name} is not set: it should hold the server's key")
    if not (value.isascii() and value.isprintable()):
        raise UsageError(f"{option}: the environment variable {name} holds what cannot stand in a request")
    return value


def origin(config: Config, keyed: bool) -> str:
    """Where a server's secrets come from, for a message: names of options and variables, never their values.

    keyed: whether `api_key_env` holds one of them.
    """
    kinds = {"header_env": config.header_env, "query_env": config.query_env, "body_env": config.body_env}
    names = {f"{kind}.{name}": env for kind, named in kinds.items() for name, env in named.items()}
    if keyed or not names:
        names = {"api_key_env": config.api_key_env} | names
    return " and ".join(f"llm.{option}, the environment variable {name}" for option, name in names.items())


def secrets(config: Config) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """Headers, fields of the address and fields of the body, as the environment has them now.

    Raises:
        UsageError: a variable is not set.
    """
    kinds = {"header_env": config.header_env, "query_env": config.query_env, "body_env": config.body_env}
    headers, query, body = (
        {name: secret(value, f"llm.{kind}.{name}") for name, value in named.items()} for kind, named in kinds.items()
    )
    # Spelt as the client spells it, which would send its own beside another.
    headers = {"Authorization" if name.lower() == "authorization" else name: value for name, value in headers.items()}
    return headers, query, body
