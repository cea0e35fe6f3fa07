"""Claims about extproc/stream/exchange_id.py."""

from __future__ import annotations

from extproc.stream.exchange_id import new_id


def test_ids_cannot_be_guessed() -> None:
    """Each is of 64 random bits, and none is given twice, across blocks of entropy."""
    ids = [new_id() for _ in range(1000)]
    assert len(set(ids)) == len(ids)
    assert {len(bytes.fromhex(id_)) for id_ in ids} == {8}
