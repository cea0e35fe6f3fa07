"""Claims about extproc/processes/fronts/lengths.py."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.processes.fronts.lengths import MessageReader, TooLongError, with_length


@given(st.lists(st.binary(max_size=300), max_size=6), st.integers(1, 40), st.binary(max_size=3))
def test_messages_arrive_whole_however_they_are_cut(
    messages: list[bytes], step: int, rest: bytes
) -> None:
    data = b"".join(map(with_length, messages)) + rest
    reader, found = MessageReader(), []
    for start in range(0, len(data), step):
        reader.feed(data[start : start + step])
        while (message := reader.take()) is not None:
            found.append(message)
    assert found == messages
    assert reader.take_rest() == rest and reader.take_rest() == b""


def test_what_is_too_long_is_refused_before_it_arrives() -> None:
    reader = MessageReader(10)
    reader.feed(with_length(b"x" * 10) + (11).to_bytes(4, "little"))
    assert reader.take() == b"x" * 10
    with pytest.raises(TooLongError):
        reader.take()
