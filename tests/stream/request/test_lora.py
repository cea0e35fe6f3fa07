"""Claims about extproc/stream/request/lora.py: an adapter's name, and its number at the server."""

from __future__ import annotations

import json

import pytest

from extproc import header_names
from extproc.stream.request.lora import append_overrides, is_object
from tests.fakes import envoy_messages as envoy
from tests.fakes.exchange_harness import (
    ExchangeHarness,
    ask,
    ask_duplex,
    streamed,
)


def test_an_adapters_name_becomes_the_servers_number() -> None:
    """Said behind the client's own bytes; there is no fallback that numbers it otherwise."""
    harness = ExchangeHarness(4, 4)
    harness.serve("pirate")
    harness.serve("poet", "pirate", number=1)
    body = json.dumps({"model": "tiny:poet", "prompt": "row"}).encode()
    (answer,) = harness.feed(harness.exchange(), ask(), envoy.body(body))[1:]
    common = answer.request_body.response
    headers = envoy.set_headers(common.header_mutation)
    assert headers == {
        header_names.DESTINATION: str(harness.fleet.addresses[1]),
        "x-envoy-max-retries": "0",
    }
    sent = common.body_mutation.body
    assert sent.startswith(body[:-1])
    assert json.loads(sent)["lora"] == [{"id": 10, "scale": 1.0}]
    assert json.loads(sent)["model"] == "tiny"
    assert "content-length" in common.header_mutation.remove_headers


def test_an_adapter_has_no_fallback_that_may_number_it_otherwise() -> None:
    """Though another server has it, too."""
    harness = ExchangeHarness(4, 4)
    harness.serve("poet")
    harness.serve("poet", number=1)
    body = json.dumps({"model": "tiny:poet", "prompt": "row"}).encode()
    (answer,) = harness.feed(harness.exchange(), ask(), envoy.body(body))[1:]
    destination = envoy.set_headers(answer.request_body.response.header_mutation)
    assert "," not in destination[header_names.DESTINATION]


def test_in_full_duplex_too() -> None:
    harness = ExchangeHarness(4)
    harness.serve("pirate")
    replies = harness.feed(
        harness.exchange(), ask_duplex(x_lora_adapter="pirate"), envoy.body(b' {"prompt":"row"} ')
    )
    assert json.loads(streamed(replies[1:])) == {"prompt": "row", "lora": [{"id": 0, "scale": 1.0}]}


@pytest.mark.parametrize("text", ["{}", " { } ", '{"prompt":"row"}', '{"a":{"b":[1]}}\r\n', "{\t}"])
@pytest.mark.parametrize(("model", "adapter_id"), [("m", 3), ("m", None), (None, 0)])
def test_the_server_reads_the_appended_values(
    text: str, model: str | None, adapter_id: int | None
) -> None:
    """Everything else is as the client wrote it."""
    sent = append_overrides(text.encode(), model=model, adapter_id=adapter_id)
    wanted = json.loads(text)
    if model is not None:
        wanted["model"] = model
    if adapter_id is not None:
        wanted["lora"] = [{"id": adapter_id, "scale": 1.0}]
    assert json.loads(sent) == wanted


def test_the_last_value_of_a_key_counts() -> None:
    """The client's own model and adapters stay in the text, before ours."""
    body = b'{"model":"tiny:poet","lora":[{"id":9}],"prompt":"row"}'
    sent = append_overrides(body, model="tiny", adapter_id=1)
    assert sent.startswith(body[:-1])
    assert json.loads(sent)["model"] == "tiny"
    assert json.loads(sent)["lora"] == [{"id": 1, "scale": 1.0}]


@pytest.mark.parametrize("name", ['a"b', "back\\slash", "\u00e9\u4e2d", "line\nbreak", ""])
def test_any_name_stays_inside_its_string(name: str) -> None:
    sent = append_overrides(b'{"n":1}', model=name, adapter_id=None)
    assert json.loads(sent) == {"n": 1, "model": name}


@pytest.mark.parametrize("body", [b'{"n":1} ', b"{}", b"\n{ }"])
def test_without_a_change_the_bytes_are_the_clients(body: bytes) -> None:
    assert append_overrides(body, model=None, adapter_id=None) is body


@pytest.mark.parametrize("body", [b"", b"   ", b'["row"]', b'"{}', b"row", b'{"prompt":"row'])
def test_to_what_is_no_object_nothing_is_appended(body: bytes) -> None:
    assert not is_object(body)
    with pytest.raises(ValueError, match="not a JSON object"):
        append_overrides(body, model="m", adapter_id=None)
