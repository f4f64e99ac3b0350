"""Bodies of OpenAI's API, checked, and the calls that they ask for.

An option that we do not support is refused by name, unless its value changes nothing (`HARMLESS`). null is the same as
leaving a field out.
"""

from __future__ import annotations

import secrets
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from llm_service.records import Call, Parameters, Turn
from llm_service.web.http import Refused

HARMLESS: dict[str, Any] = {
    "best_of": 1,
    "frequency_penalty": 0,
    "logit_bias": {},
    "parallel_tool_calls": True,
    "presence_penalty": 0,
    "response_format": {"type": "text"},
    "store": False,
    "suffix": "",
    "tools": [],
    "top_p": 1,
}
"""Options with the one value that we accept, because it changes nothing."""
MOST_TOKENS = 131_072
MOST_TEXTS = 2048
B = TypeVar("B", bound="Body")
Stop = Annotated[str, Field(min_length=1, max_length=1000)]


class Body(BaseModel):
    """The fields of all requests."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    model: str
    user: str = ""
    """The caller's name: callers take turns."""

    @model_validator(mode="before")
    @classmethod
    def _without_harmless(cls, body: Any) -> Any:
        if not isinstance(body, dict):
            return body
        missing = object()
        return {k: v for k, v in body.items() if v is not None and HARMLESS.get(k, missing) != v}


class StreamOptions(BaseModel):
    """Whether the last event before [DONE] counts tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    include_usage: bool = False
    include_obfuscation: bool = False


class Generation(Body):
    """What chats and completions have in common."""

    temperature: float = Field(default=1.0, ge=0.0, le=2.0)
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63)
    n: int = Field(default=1, ge=1, le=128)
    stop: list[Stop] = Field(default=[], max_length=16)
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()

    @field_validator("stop", mode="before")
    @classmethod
    def _one_stop(cls, stop: Any) -> Any:
        return [stop] if isinstance(stop, str) else stop

    def parameters(self, max_tokens: int) -> Parameters:
        """How the model answers. Without a seed, samples differ from request to request, as with OpenAI."""
        seed = self.seed or 0
        if self.seed is None and self.temperature > 0:
            seed = secrets.randbits(48)
        return Parameters(self.temperature, max_tokens, tuple(self.stop), seed)


class Part(BaseModel):
    """A piece of a message's content."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    type: Literal["text"]
    text: str


class Message(BaseModel):
    """One turn of a chat."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    role: Literal["system", "developer", "user", "assistant"]
    content: list[Part] = Field(min_length=1)

    @field_validator("content", mode="before")
    @classmethod
    def _one_part(cls, content: Any) -> Any:
        return [{"type": "text", "text": content}] if isinstance(content, str) else content

    @property
    def turn(self) -> Turn:
        role = "system" if self.role == "developer" else self.role
        return role, "".join(part.text for part in self.content)


class Chat(Generation):
    """`POST /v1/chat/completions`."""

    messages: list[Message] = Field(min_length=1, max_length=MOST_TEXTS)
    max_tokens: int = Field(default=256, ge=1, le=MOST_TOKENS)
    max_completion_tokens: int | None = Field(default=None, ge=1, le=MOST_TOKENS)
    logprobs: bool = False
    top_logprobs: int = Field(default=0, ge=0, le=20)

    @model_validator(mode="after")
    def _both(self) -> Chat:
        if self.top_logprobs and not self.logprobs:
            raise ValueError("top_logprobs needs logprobs: true")
        return self

    @property
    def texts(self) -> list[str]:
        return [message.turn[1] for message in self.messages]

    def calls(self) -> list[Call]:
        """One for each choice."""
        turns = tuple(message.turn for message in self.messages)
        parameters = self.parameters(self.max_completion_tokens or self.max_tokens)
        top = self.top_logprobs if self.logprobs else None
        return [Call("generate", turns, (), parameters, sample, top=top) for sample in range(self.n)]


class Completion(Generation):
    """`POST /v1/completions`."""

    prompt: list[str] = Field(min_length=1, max_length=MOST_TEXTS)
    max_tokens: int = Field(default=16, ge=0, le=MOST_TOKENS)
    logprobs: int | None = Field(default=None, ge=0, le=20)
    echo: bool = False

    @field_validator("prompt", mode="before")
    @classmethod
    def _one_prompt(cls, prompt: Any) -> Any:
        return [prompt] if isinstance(prompt, str) else prompt

    @model_validator(mode="after")
    def _something(self) -> Completion:
        if not self.max_tokens and not (self.echo and self.logprobs is not None):
            raise ValueError("max_tokens: 0 is only for echo: true with logprobs, which scores the prompt")
        if self.stream and self.echo and self.logprobs is not None:
            raise ValueError("stream: a reply that echoes its prompt with logprobs cannot be streamed")
        return self

    @property
    def texts(self) -> list[str]:
        return self.prompt

    def calls(self) -> list[Call]:
        """One for each choice: `n` of the first prompt, then of the second."""
        parameters = self.parameters(self.max_tokens)
        options: dict[str, Any] = {"raw": True, "top": self.logprobs, "echo": self.echo and self.logprobs is not None}
        return [
            Call("generate", (("user", text),), (), parameters, sample, **options)
            for text in self.prompt
            for sample in range(self.n)
        ]


class Embedding(Body):
    """`POST /v1/embeddings`."""

    input: list[str] = Field(min_length=1, max_length=MOST_TEXTS)
    encoding_format: Literal["float", "base64"] = "float"

    @field_validator("input", mode="before")
    @classmethod
    def _one_text(cls, text: Any) -> Any:
        return [text] if isinstance(text, str) else text


def read(kind: type[B], body: bytes) -> B:
    """A request's body.

    Raises:
        Refused: 400, one sentence about the first thing that is wrong. It does not repeat the body.
    """
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(map(str, first["loc"]))
    param = str(first["loc"][0])[:64] if first["loc"] else None
    if first["type"] == "json_invalid":
        raise Refused(400, f"the body is not JSON: {first['ctx']['error']}", code="invalid_json")
    if first["type"] == "extra_forbidden":
        raise Refused(400, f"{where[:200]}: this option is not supported", param=param, code="unsupported_parameter")
    said = first["msg"].removeprefix("Value error, ")
    raise Refused(400, f"{where[:200]}: {said}" if where else said, param=param, code="invalid_value")
