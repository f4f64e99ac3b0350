"""The rpcs of `llm.proto`, called and served, as its descriptor names them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import grpc
from google.protobuf.message_factory import GetMessageClass

from llm_service.proto import llm_pb2

_SERVICE = llm_pb2.DESCRIPTOR.services_by_name["LLM"]


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
    """Let a server answer each rpc by the method of its name."""
    handlers = {
        rpc.name: grpc.unary_unary_rpc_method_handler(
            getattr(servicer, rpc.name),
            request_deserializer=GetMessageClass(rpc.input_type).FromString,
            response_serializer=GetMessageClass(rpc.output_type).SerializeToString,
        )
        for rpc in _SERVICE.methods
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE.full_name, handlers),))
