"""Claims about extproc/xds/stream.py; its streams: tests/xds/test_service.py."""

from __future__ import annotations

from extproc.xds.stream import MAX_ERROR_CHARS, in_short, some_of


def test_a_reason_is_one_line_that_no_terminal_obeys() -> None:
    assert in_short("no such\n\n  cluster ") == "no such cluster"
    assert in_short("no \x1b[2Jsuch cluster").isprintable()
    assert in_short("turned \u202eround").isprintable()
    assert len(in_short("z" * 100_000)) == MAX_ERROR_CHARS


def test_of_many_names_a_few_are_reported() -> None:
    assert some_of(("llama",)) == "'llama'"
    assert some_of(tuple("abcde")) == "'a', 'b', 'c' and 2 more"
    assert some_of(("\x1b[2J",)).isprintable()
