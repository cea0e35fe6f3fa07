"""Claims about extproc/core/request.py."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from extproc.core.request import Request


@pytest.mark.parametrize("weight_slots", [0, -1])
def test_every_request_weighs_at_least_one_slot(weight_slots: int) -> None:
    """A request without weight would be served by a full server."""
    with pytest.raises(ValueError, match="cannot weigh"):
        Request(id="r", timeout_s=1.0, weight_slots=weight_slots)


def test_each_value_is_kept_under_its_own_name() -> None:
    names = [field.name for field in fields(Request)]
    values: dict[str, Any] = {name: object() for name in names} | {"weight_slots": 3}
    request = Request(**values)
    assert {name: getattr(request, name) for name in names} == values


def test_a_renamed_request_keeps_the_rest() -> None:
    request = Request(id="r", timeout_s=1.0, model="small", session_id="s", prompt_tokens=7)
    renamed = replace(request, model="large")
    assert renamed.model == "large" and replace(renamed, model="small") == request
