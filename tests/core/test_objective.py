"""Claims about extproc/core/objective.py: the objective of a request."""

from __future__ import annotations

import pytest

from extproc.core.objective import NO_OBJECTIVE, Objective, Objectives
from extproc.core.request import Request

GOLD, CHAT = Objective(name="gold"), Objective(name="chat")
OBJECTIVES = Objectives(by_name={"gold": GOLD, "chat": CHAT}, by_model={"tiny": "chat"})


@pytest.mark.parametrize(
    ("named", "model", "found"),
    [
        ("gold", "tiny", GOLD),
        ("gold", None, GOLD),
        (None, "tiny", CHAT),
        ("golf", "tiny", CHAT),
        ("golf", None, NO_OBJECTIVE),
        (None, "large", NO_OBJECTIVE),
        (None, None, NO_OBJECTIVE),
    ],
)
def test_the_header_then_the_model_then_none(
    named: str | None, model: str | None, found: Objective
) -> None:
    """An unknown name counts as none."""
    request = Request(id="r", timeout_s=1.0, objective=named, model=model)
    assert OBJECTIVES.of(request.objective, request.model) is found


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan")])
def test_a_weight_must_be_positive(weight: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        Objective(name="x", weight=weight)
