"""Claims about extproc/transport/long_wait.py."""

from __future__ import annotations

from extproc.transport.long_wait import LONG, LONG_WAIT, waits_long


def test_only_the_header_that_we_print_means_patience() -> None:
    assert waits_long([("x-request-id", "a"), (LONG_WAIT, LONG)])
    assert not waits_long([(LONG_WAIT, "short"), ("x-request-id", LONG)])
    assert not waits_long([])
