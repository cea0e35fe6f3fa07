"""Claims about extproc/stream/request/conversation_lookup.py."""

from __future__ import annotations

import json

import pytest

from extproc.core.address import Address
from extproc.core.conversations import MAX_ID_CHARS
from extproc.core.slots.lease import Lease
from extproc.stream.request.conversation_lookup import (
    MAX_LOOKUP_BYTES,
    is_conversation_id,
    lookup_of,
    lookup_result,
    read_lookup,
)


def test_ids_are_utf_8_and_not_endless() -> None:
    for id_ in ("", "c::tiny", "f%u0041", "a b", "\u00e9", "x" * MAX_ID_CHARS):
        assert is_conversation_id(id_), id_
    for id_ in ("x" * (MAX_ID_CHARS + 1), "a\ufffd"):
        assert not is_conversation_id(id_), id_


@pytest.mark.parametrize(
    ("body", "ids"),
    [
        (b'{"conversation_ids": ["a", "b::c"], "more": 1}', ["a", "b::c"]),
        (b"{}", []),
        (b"", None),
        (b"[]", None),
        (b'{"conversation_ids": [1]}', None),
        (b'{"conversation_ids": "a"}', None),
        (b'{"conversation_ids": ["\xff"]}', None),
        (b"[" * 50_000, None),
        (b'{"conversation_ids": ["' + b"a" * MAX_LOOKUP_BYTES + b'"]}', None),
    ],
)
def test_reads_the_ids_or_says_that_it_cannot(body: bytes, ids: list[str] | None) -> None:
    assert read_lookup(body) == ids


def test_what_is_sent_can_be_read() -> None:
    assert read_lookup(lookup_of(["a", 'b"'])) == ["a", 'b"']


def test_says_what_is_known() -> None:
    running, ended = (Lease(number, Address("10.0.0.1", 80), 1, 0.0) for number in (1, 2))
    ended.close(1.0)
    assert json.loads(lookup_result({"a": running, "b": ended})) == [
        {"conversation_id": "a", "is_done": False},
        {"conversation_id": "b", "is_done": True},
    ]
