"""Claims about extproc/stream/request/top_level.py: each key is found, wherever it stands."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.core.request import Kind
from extproc.stream.request.body import CUT, RequestBody, read_body
from extproc.stream.request.top_level import MAX_TRIES, SHORT, read_cut

LIMIT = 600
TEXT = "row the boat " * 10_000
MESSAGES = {"messages": [{"role": "user", "content": TEXT}]}
SHORT_KEYS = {"model": "beta", "n": 2, "max_tokens": 8, "lora": [{"id": 1, "scale": 1.0}]}
DECOYS = {
    "stop": ['"model":"quoted"', '","model":"quoted"}', '\\","model":"quoted"}', "}]}"],
    "metadata": {"model": "nested", "n": 7, "max_tokens": 1},
}


def read(
    body: object, *, limit_bytes: int = LIMIT, is_whole: bool = True, kind: Kind = Kind.GENERATION
) -> RequestBody:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read_body(raw, kind, limit_bytes=limit_bytes, is_whole=is_whole, is_strict=False)


@pytest.mark.parametrize(
    "body",
    [
        MESSAGES | SHORT_KEYS,
        MESSAGES | SHORT_KEYS | {"tools": ["x" * 100_000]},
        {"tools": ["x" * 100_000]} | SHORT_KEYS | MESSAGES,
        MESSAGES | DECOYS | SHORT_KEYS | {"user": TEXT} | DECOYS,
        {"messages": [MESSAGES] * 50} | SHORT_KEYS,
        {"prompt": "é☃" * 50_000} | SHORT_KEYS,
        {"prompt": '"\\' * 50_000} | SHORT_KEYS,
        {"prompt": list(range(50_000))} | SHORT_KEYS,
    ],
)
@pytest.mark.parametrize("indent", [None, 2])
def test_what_stands_before_behind_and_between_long_values(
    body: dict[str, object], indent: int | None
) -> None:
    """As OpenAI's client writes it: messages, the model, then tools."""
    for is_ascii in (True, False):
        raw = json.dumps(body, ensure_ascii=is_ascii, indent=indent).encode() + b"\r\n"
        found = read(raw)
        assert (found.model, found.answers, found.max_tokens) == ("beta", 2, 8)
        assert (found.adapter_numbers, found.unread) == (frozenset({1}), None)


def test_tools_and_instructions_behind_the_messages_are_a_part_of_the_prompt() -> None:
    """Or the session would look like another one as soon as it is longer than the limit."""
    more = {"tools": [{"name": "row"}], "system": "be kind", "response_format": {"type": "json"}}
    found = read(MESSAGES | more, limit_bytes=65_536)
    assert found.has_tools and found.has_grammar
    short = read({"messages": []} | more, limit_bytes=65_536)
    assert found.text.startswith(short.text) and "be kind" in short.text


@pytest.mark.parametrize(
    ("body", "kind", "inputs"),
    [
        ({"prompt": [TEXT, TEXT, TEXT]}, Kind.GENERATION, 3),
        ({"prompt": [[1] * 900, [2] * 900]}, Kind.GENERATION, 2),
        ({"prompt": list(range(9000))}, Kind.GENERATION, 1),
        ({"prompt": ["row", 1, TEXT]}, Kind.GENERATION, 1),
        ({"prompt": TEXT}, Kind.GENERATION, 1),
        ({"input": [TEXT, TEXT]}, Kind.EMBEDDING, 2),
        ({"query": TEXT, "documents": [TEXT] * 5}, Kind.EMBEDDING, 5),
        ({"input": ["row"] * 3000}, Kind.EMBEDDING, 1024),
    ],
)
def test_long_inputs_are_counted(body: dict[str, object], kind: Kind, inputs: int) -> None:
    """Each takes a slot."""
    assert read(body, kind=kind).inputs == inputs


def test_what_the_model_is_not() -> None:
    """Deeper inside, in a text, or in an array."""
    for body in (MESSAGES | DECOYS, DECOYS | MESSAGES):
        assert (read(body).model, read(body).unread) == (None, None)
    assert read([MESSAGES | SHORT_KEYS]).model is None


def test_of_two_values_the_last_counts() -> None:
    """As for llama-server, and as another picker in front appends its own."""
    twice = b'{"model":"a","prompt":"' + TEXT.encode() + b'","model":"b"}'
    assert read(twice).model == "b"


def test_a_key_with_escapes() -> None:
    assert read(b'{"prompt":"' + TEXT.encode() + b'","mod\\u0065l":"beta"}').model == "beta"


@pytest.mark.parametrize("end", [b"", b"]", b'"x":}', b',"y":tru}', b"} row", b',"y":NaN}'])
def test_a_long_body_that_is_no_json_hides_its_model(end: bytes) -> None:
    """Also if something like a model stands before the fault: servers reject it."""
    found = read(b'{"prompt":"' + TEXT.encode() + b'","model":"beta"' + end)
    assert found.model is None and "is not JSON" in str(found.unread)
    assert found.problem == found.unread and not found.is_complete


def test_json_that_is_nested_too_deep_for_the_parser() -> None:
    """Servers read it; the model is found all the same."""
    deep = b'{"x":' + b"[" * 500 + b"]" * 500 + b',"model":"beta"}'
    assert read(deep, limit_bytes=65_536).model == "beta"
    deeper = b'{"x":' + b"[" * 90_000 + b"]" * 90_000 + b',"model":"beta"}'
    assert read(deeper).model is None and read(deeper).unread is not None


# A part of a body


def test_what_is_here_of_a_cut_body_is_found() -> None:
    raw = json.dumps(MESSAGES | DECOYS | SHORT_KEYS | {"user": TEXT}).encode()
    found = read(raw[:-50_000], is_whole=False)
    assert (found.model, found.answers, found.max_tokens) == ("beta", 2, 8)
    assert found.unread == CUT


@pytest.mark.parametrize("cut", [b'{"prompt":"row","model":"be', b'{"prompt":"row","model"', b"{"])
def test_half_a_name_is_none(cut: bytes) -> None:
    raw = cut.replace(b"row", TEXT.encode())
    assert (read(raw, is_whole=False).model, read(raw, is_whole=False).unread) == (None, CUT)


def test_a_cut_number_is_none() -> None:
    raw = b'{"prompt":"' + TEXT.encode() + b'","n":12'
    assert read(raw, is_whole=False).answers == 1


def test_a_cut_body_full_of_decoys_costs_no_more() -> None:
    decoys = b'{"x":[' + b'{"model":"x"},' * 100_000 + b'1],"model":"beta","y":1'
    assert decoys.count(b'"model"') > MAX_TRIES
    assert read(decoys, is_whole=False).model is None


# Any


NAMES = st.sampled_from([*SHORT, "tools", "x", '"model":', '"', "prompt", "lora"])
VALUES = st.recursive(
    st.none() | st.integers() | st.sampled_from(["a", '"model":"b"', '\\","n":1}', "}", '{"n":1']),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=10,
)


@given(st.dictionaries(NAMES, VALUES, max_size=8), st.booleans(), st.integers(1, 40))
def test_a_short_limit_hides_nothing(body: dict[str, Any], is_ascii: bool, limit: int) -> None:
    raw = json.dumps(body, ensure_ascii=is_ascii).encode()
    one, other = read(raw, limit_bytes=limit), read(raw, limit_bytes=1_000_000)
    for field in ("model", "answers", "inputs", "max_tokens", "adapter_numbers", "has_tools"):
        assert getattr(one, field) == getattr(other, field), field
    assert one.unread is other.unread is None


@given(st.dictionaries(NAMES, VALUES, max_size=8), st.data())
def test_nothing_is_found_in_a_cut_body_that_does_not_stand_at_its_top(
    body: dict[str, Any], data: st.DataObject
) -> None:
    raw = json.dumps(body).encode()
    found: dict[str, Any] = {}
    read_cut(raw[: data.draw(st.integers(0, len(raw)))], found)
    for key, value in found.items():
        assert key in body
        if not isinstance(value, dict | list):
            assert value == body[key], key


@given(st.binary(max_size=300), st.booleans(), st.integers(1, 20))
def test_any_bytes(noise: bytes, is_whole: bool, limit: int) -> None:
    for raw in (noise, b'{"model":"a",' + noise, b'{"model":"a"' + noise + b"}"):
        read(raw, is_whole=is_whole, limit_bytes=limit)
