"""Claims about extproc/stream/request/pool_choice.py: which pool a request is for."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import struct_pb2

from extproc.header_names import FILTER_ATTRIBUTES
from extproc.pb import external_processor_pb2 as pb
from extproc.settings.pool_section import PoolSettings
from extproc.stream.request.pool_choice import PoolChoice

POOLS = {
    "chat": {"hosts": ["chat.test", "[::1]:8080", "b.test:99"]},
    "batch": {
        "header": {"name": "x-team", "value": "batch"},
        "metadata": {"namespace": "ours", "key": "pool", "value": "batch"},
    },
    "rest": {"default": True},
}
ATTRIBUTE = "xds.route_metadata.filter_metadata['ours']['pool']"


def choice(*names: str) -> PoolChoice:
    return PoolChoice({name: PoolSettings.model_validate(POOLS[name]) for name in names})


def request(**headers: str) -> pb.ProcessingRequest:
    message = pb.ProcessingRequest()
    for name, value in headers.items():
        key = {"authority": ":authority"}.get(name, name.replace("_", "-"))
        message.request_headers.headers.headers.add(key=key, raw_value=value.encode())
    return message


@pytest.mark.parametrize(
    ("headers", "pool"),
    [
        ({}, "rest"),
        ({"authority": "chat.test"}, "chat"),
        ({"authority": "Chat.TEST:8080"}, "chat"),
        ({"authority": "b.test:99"}, "chat"),
        ({"authority": "b.test:98"}, "rest"),
        ({"authority": "b.test"}, "rest"),
        ({"authority": "[::1]:8080"}, "chat"),
        ({"authority": "other:chat.test"}, "rest"),
        ({"host": "chat.test"}, "chat"),
        ({"authority": "other", "host": "chat.test"}, "rest"),
        ({"x_team": "batch"}, "batch"),
        ({"X-Team": "batch"}, "batch"),
        ({"x_team": "Batch"}, "rest"),
        ({"authority": "chat.test", "x_team": "batch"}, "batch"),
    ],
)
def test_by_headers(headers: dict[str, str], pool: str) -> None:
    assert choice("chat", "batch", "rest").of(request(**headers)) == pool


def test_without_a_default_there_may_be_none() -> None:
    found = choice("chat", "batch")
    assert found.of(request()) == ""
    assert found.has("chat") and not found.has("rest")


def attributes(**values: Any) -> bytes:
    return struct_pb2.Struct(
        fields={name: struct_pb2.Value(string_value=text) for name, text in values.items()}
    ).SerializeToString()


def test_by_the_metadata_of_the_route_or_of_a_filter() -> None:
    """Before any header; damaged attributes and other values say nothing."""
    found = choice("chat", "batch", "rest")
    message = request(authority="chat.test")
    message.attributes[FILTER_ATTRIBUTES] = attributes(**{ATTRIBUTE: "batch"})
    assert found.of(message) == "batch"
    assert choice("chat", "rest").of(message) == "chat"
    message.attributes[FILTER_ATTRIBUTES] = attributes(**{ATTRIBUTE: "else"})
    assert found.of(message) == "chat"
    message.attributes[FILTER_ATTRIBUTES] = b"\xff\xff"
    assert found.of(message) == "chat"
    namespace = message.metadata_context.filter_metadata["ours"]
    assert found.of(message) == "chat"
    namespace.fields["pool"].string_value = "else"
    assert found.of(message) == "chat"
    namespace.fields["pool"].string_value = "batch"
    assert found.of(message) == "batch"
    assert choice("rest").of(request(authority="chat.test")) == "rest"
