"""Claims about extproc/core/rejection.py: the reasons that clients and operators read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from extproc.core.rejection import Reason
from extproc.stream.envoy import codec

OPERATIONS = Path(__file__).resolve().parents[2] / "docs/operations.md"


@pytest.mark.parametrize("reason", Reason)
def test_a_reason_is_a_word_that_a_header_and_a_label_can_carry(reason: Reason) -> None:
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", reason.value)


@pytest.mark.parametrize("reason", Reason)
def test_operators_find_every_reason_with_its_status(reason: Reason) -> None:
    """The page for the on-call engineer has a row for each."""
    rows = re.findall(r"^\| `([a-z-]+)` \| (\d+) \|", OPERATIONS.read_text(), re.MULTILINE)
    assert dict(rows).get(reason.value) == str(codec.status_of(reason))
