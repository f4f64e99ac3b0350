"""Conversion of records to messages and back, and the rpcs that send them; `proto/llm.proto` documents each message.

Columns on the wire, lists here. The functions run once per request and touch items only inside list comprehensions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import grpc
from google.protobuf.message_factory import GetMessageClass

from llm_service.errors import Garbled, UsageError
from llm_service.proto import llm_pb2
from llm_service.records import Answer, Ask, Lane, Normalisation, Parameters, Source, Status, Verb

CALLER = "x-cairn-caller"
"""Metadata of a request: the caller."""
STATUS = "x-cairn-status"
"""Trailing metadata of a failed request: the `Status` of all its items."""

_SERVICE = llm_pb2.DESCRIPTOR.services_by_name["LLM"]
_VERBS: tuple[Verb, ...] = ("generate", "score", "embed")
_NORMALISATIONS: tuple[Normalisation, ...] = ("none", "tokens")
_STATUSES = {int(status): status for status in Status}
_SOURCES = {int(source): source for source in Source}
_make: Any = llm_pb2  # the type stubs refuse plain numbers for enumerations


def request(ask: Ask) -> llm_pb2.Ask:
    """The message of an ask; verb, lane, caller and deadline are sent separately.

    Raises:
        UnicodeEncodeError: a text contains half a surrogate pair, which UTF-8 cannot encode.
        UsageError: a number does not fit its field.
    """
    try:
        message = llm_pb2.Ask(task=ask.task, contents=ask.contents, sample=ask.sample)
        for texts in ask.candidates:
            message.candidates.add(texts=texts)
        if ask.parameters is not None:
            p = ask.parameters
            message.parameters.CopyFrom(
                _make.Parameters(
                    temperature=p.temperature,
                    max_tokens=p.max_tokens,
                    stop=p.stop,
                    seed=p.seed,
                    normalise=_NORMALISATIONS.index(p.normalise),
                )
            )
    except UnicodeEncodeError:
        raise
    except (ValueError, TypeError) as error:
        raise UsageError(f"the request cannot be sent: {error}") from None
    return message


def read_request(message: llm_pb2.Ask, verb: Verb, lane: Lane, caller: str, deadline: float) -> Ask:
    """The ask of a message. Raises UsageError: invalid parameters or candidates."""
    parameters = None
    if message.HasField("parameters"):
        p = message.parameters
        if not (math.isfinite(p.temperature) and p.temperature >= 0):
            raise UsageError("parameters.temperature must be a finite number of at least 0")
        if not 0 <= p.normalise < len(_NORMALISATIONS):
            raise UsageError("this service does not know the value of parameters.normalise")
        normalise = _NORMALISATIONS[p.normalise]
        parameters = Parameters(p.temperature, p.max_tokens or 256, tuple(p.stop), p.seed, normalise)
    contents = tuple(message.contents)
    candidates = tuple([tuple(entry.texts) for entry in message.candidates])
    if len(candidates) not in (0, 1, len(contents)):
        raise UsageError(f"candidates: {len(candidates)} sets for {len(contents)} items; send one set, or one per item")
    return Ask(verb, contents, message.task, candidates, parameters, message.sample, lane, caller, deadline)


def job(ask: Ask) -> llm_pb2.Job:
    """The message of durable work. Raises like `request`."""
    message: llm_pb2.Job = _make.Job(verb=_VERBS.index(ask.verb), ask=request(ask))
    return message


def verb_of(message: llm_pb2.Job) -> Verb:
    """The verb of durable work. Raises UsageError if it is not valid."""
    if not 0 <= message.verb < len(_VERBS):
        raise UsageError("this service does not know the verb")
    return _VERBS[message.verb]


def answers(items: Sequence[Answer]) -> llm_pb2.Answers:
    """The message of answers."""
    message: llm_pb2.Answers = _make.Answers(
        status=[a.status for a in items], payload=[a.payload for a in items], source=[a.source for a in items]
    )
    for i, answer in enumerate(items):
        if answer.reason:
            message.reason[i] = answer.reason.encode("utf-8", "replace").decode()
    if any(a.tokens for a in items):
        message.tokens.extend([a.tokens for a in items])
    if any(a.dollars for a in items):
        message.dollars.extend([a.dollars for a in items])
    return message


def read_answers(message: llm_pb2.Answers, n: int) -> list[Answer]:
    """The n answers of a message.

    Raises:
        Garbled: it is not a reply to n items, or has an unknown status.
    """
    lengths = {len(message.status), len(message.payload), len(message.source)}
    lengths |= {len(column) for column in (message.tokens, message.dollars) if column}
    if lengths != {n}:
        raise Garbled(f"the service's reply does not fit a request of {n} items")
    reasons = [message.reason.get(i, "") for i in range(n)] if message.reason else [""] * n
    tokens, dollars = message.tokens or [0] * n, message.dollars or [0.0] * n
    try:
        return [
            Answer(_STATUSES[status], payload, reason, _SOURCES[source], token, dollar)
            for status, payload, reason, source, token, dollar in zip(
                message.status, message.payload, reasons, message.source, tokens, dollars, strict=True
            )
        ]
    except KeyError:
        raise Garbled("the service's reply has an unknown status: the service is newer than this client") from None


def accepted(keys: Sequence[str], status: Sequence[Status]) -> llm_pb2.Accepted:
    """The message of keys and statuses of submitted items."""
    message: llm_pb2.Accepted = _make.Accepted(keys=keys, status=status)
    return message


def read_accepted(message: llm_pb2.Accepted, n: int) -> list[tuple[str, Status]]:
    """Keys and statuses of n submitted items. Raises like `read_answers`."""
    if not n == len(message.keys) == len(message.status) or not set(message.status) <= set(_STATUSES):
        raise Garbled(f"the service's reply does not fit a job of {n} items")
    return [(key, _STATUSES[status]) for key, status in zip(message.keys, message.status, strict=True)]


def stub(channel: grpc.Channel) -> Any:
    """The rpcs over a channel, by name: `stub(channel).Score(ask)`."""
    return SimpleNamespace(
        **{
            rpc.name: channel.unary_unary(
                f"/{_SERVICE.full_name}/{rpc.name}",
                request_serializer=GetMessageClass(rpc.input_type).SerializeToString,
                response_deserializer=GetMessageClass(rpc.output_type).FromString,
            )
            for rpc in _SERVICE.methods
        }
    )


def serve(servicer: Any, server: Any) -> None:
    """Register an object's methods as a server's rpcs, by name."""
    handlers = {
        rpc.name: grpc.unary_unary_rpc_method_handler(
            getattr(servicer, rpc.name),
            request_deserializer=GetMessageClass(rpc.input_type).FromString,
            response_serializer=GetMessageClass(rpc.output_type).SerializeToString,
        )
        for rpc in _SERVICE.methods
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE.full_name, handlers),))
