"""A gateway's hint which endpoints are allowed, as another filter of Envoy gives it."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.struct_pb2 import Value

from tests.e2e.stack import CHAT, Stack, chat
from tests.fakes import quick_yaml
from tests.long_run import in_each_mode

pytestmark = pytest.mark.e2e

TEXT, LIST = "x-test-hint", "x-test-hint-list"


def hinting(config: str) -> str:
    """The same Envoy with a filter that makes the hint from headers of the request."""
    tree = quick_yaml.load(config)
    to_metadata = {
        "metadata_namespace": "envoy.lb.subset_hint",
        "key": "x-gateway-destination-endpoint-subset",
    }
    encoded = {**to_metadata, "type": "PROTOBUF_VALUE", "encode": "BASE64"}
    hint = {
        "name": "envoy.filters.http.header_to_metadata",
        "typed_config": {
            "@type": "type.googleapis.com/"
            "envoy.extensions.filters.http.header_to_metadata.v3.Config",
            "request_rules": [
                {"header": TEXT, "on_header_present": to_metadata},
                {"header": LIST, "on_header_present": encoded},
            ],
        },
    }
    managers = [
        one["typed_config"]
        for listener in tree["static_resources"]["listeners"]
        for chain in listener["filter_chains"]
        for one in chain["filters"]
        if "http_filters" in one["typed_config"]
    ]
    for manager in managers:
        manager["http_filters"].insert(0, hint)
    assert managers
    return quick_yaml.dump(tree)


@pytest.fixture
async def stack(mode: str, tmp_path: Path) -> AsyncIterator[Stack]:
    async with Stack.running(
        tmp_path, slots=(1, 4, 4), kind="simulator", mode=mode, alter=hinting
    ) as running:
        yield running


def listed(*entries: str) -> str:
    value = Value()
    value.list_value.SetInParent()  # also without entries it is a list
    value.list_value.extend(entries)
    return b64encode(value.SerializeToString()).decode()


@in_each_mode
async def test_a_hint_bounds_the_choice(stack: Stack) -> None:
    """As text or as a list, with ports or without; it is waited for who is allowed, and one that
    leaves nobody is 503."""
    small, second, third = (server.address for server in stack.servers)

    async def serves(hint: dict[str, Any]) -> str:
        answer = await stack.client.post(stack.url(CHAT), json=chat(1), headers=hint)
        assert answer.status_code == 200, answer.text
        return str(answer.headers["x-coxswain-endpoint"])

    for hint in ({TEXT: small}, {LIST: listed(small)}, {TEXT: f"10.9.9.9:1, {small}"}):
        assert await serves(hint) == small
    for _ in range(4):
        assert await serves({LIST: listed(second, third)}) in (second, third)
    assert await serves({TEXT: "127.0.0.1"}) in (small, second, third)

    for hint in ({TEXT: "10.9.9.9"}, {LIST: listed("10.9.9.9:8080")}, {LIST: listed()}):
        rejected = await stack.client.post(stack.url(CHAT), json=chat(1), headers=hint)
        assert (rejected.status_code, rejected.headers["x-coxswain-reason"]) == (503, "no-endpoint")

    held = await stack.hold(headers={TEXT: small})
    assert held.endpoint == small
    waiting = asyncio.create_task(serves({TEXT: small}))
    await stack.until_waiting(1)
    await held.leave()
    assert await waiting == small
