"""Claims about extproc/transport/patience.py."""

from __future__ import annotations

from extproc.transport.patience import LONG, PATIENCE, is_patient


def test_only_the_header_that_we_print_means_patience() -> None:
    assert is_patient([("x-request-id", "a"), (PATIENCE, LONG)])
    assert not is_patient([(PATIENCE, "short"), ("x-request-id", LONG)])
    assert not is_patient([])
