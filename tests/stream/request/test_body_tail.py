"""Claims about extproc/stream/request/body_tail.py: exact for JSON, harmless for all else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.stream.request.body_tail import KEYS, TAIL_BYTES, read_tail

LONG = {"messages": [{"role": "user", "content": "row the boat " * 10_000}]}
BEHIND = {"model": "tiny", "n": 2, "max_tokens": 8, "n_cmpl": 2, "lora": [{"id": 1}]}


def test_what_stands_behind_a_long_prompt() -> None:
    assert read_tail(json.dumps(LONG | BEHIND).encode()) == BEHIND
    assert read_tail(json.dumps(LONG | BEHIND, indent=2).encode() + b"\r\n") == BEHIND


def test_what_the_model_is_not() -> None:
    """Deeper inside, in a text, before the prompt, or nowhere."""
    tools = {"tools": [{"parameters": {"model": "nested", "n": 7}}]}
    quoted = {"stop": ['"model":"quoted"', '","model":"quoted"}', '\\","model":"quoted"}']}
    for body in (LONG | tools, LONG | quoted, {"model": "before"} | LONG, LONG, [LONG | BEHIND]):
        assert read_tail(json.dumps(body).encode()) == {}
    found = read_tail(json.dumps(LONG | {"model": "tiny"} | tools | {"n": 2} | quoted).encode())
    assert found == {"model": "tiny", "n": 2}


def test_the_last_of_two_values_counts() -> None:
    assert read_tail(b'{"prompt":"row","model":"a","model":"b"}') == {"model": "b"}


def test_a_key_too_far_from_the_end_is_not_found() -> None:
    body = json.dumps({"model": "tiny", "user": "x" * TAIL_BYTES}).encode()
    assert read_tail(body) == {}


@pytest.mark.parametrize("body", [b"", b"}", b'"model":', b'"model":"a"}' * 500, b'"n":[' * 999])
def test_hostile_ends(body: bytes) -> None:
    assert read_tail(body) in ({}, {"model": "a"})


NAMES = st.sampled_from([*sorted(KEYS), "tools", "x", '"model":', '"'])
VALUES = st.recursive(
    st.none() | st.integers() | st.sampled_from(["a", '"model":"b"', '\\","n":1}', "}", '{"n":1']),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=10,
)


@given(st.dictionaries(NAMES, VALUES, max_size=6), st.booleans())
def test_nothing_is_found_that_does_not_stand_at_the_top(
    body: dict[str, Any], is_ascii: bool
) -> None:
    """And of the wanted keys none is missed behind the first one that is found."""
    found = read_tail(json.dumps(body, ensure_ascii=is_ascii).encode())
    wanted = [key for key in body if key in KEYS]
    assert found == {key: body[key] for key in wanted[len(wanted) - len(found) :]}


@given(st.binary(max_size=300))
def test_any_bytes(noise: bytes) -> None:
    read_tail(noise)
    read_tail(b'{"model":"a"' + noise)
