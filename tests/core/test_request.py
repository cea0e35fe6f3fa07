"""Claims about extproc/core/request.py."""

from __future__ import annotations

import pytest

from extproc.core.request import Request


@pytest.mark.parametrize("weight_slots", [0, -1])
def test_every_request_weighs_at_least_one_slot(weight_slots: int) -> None:
    """A request without weight would be served by a full server."""
    with pytest.raises(ValueError, match="cannot weigh"):
        Request(id="r", timeout_s=1.0, weight_slots=weight_slots)
