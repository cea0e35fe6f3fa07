"""Claims about extproc/core/blocked_path.py."""

from __future__ import annotations

import pytest

from extproc.core.blocked_path import BlockedPath, BlockedPathError


@pytest.mark.parametrize("rule", ["/slots*", "POST /props", "/v1/stream", "DELETE /models*"])
def test_a_rule_reads_back_as_it_was_written(rule: str) -> None:
    assert str(BlockedPath.parse(rule)) == rule


@pytest.mark.parametrize(
    "rule",
    ["", "slots", "/", "/*", "FETCH /slots", "/a*b", "/a?b", "//slots", "/%73lots", "/a b", "POST"],
)
def test_what_is_no_rule_says_so(rule: str) -> None:
    with pytest.raises(BlockedPathError, match="write"):
        BlockedPath.parse(rule)
