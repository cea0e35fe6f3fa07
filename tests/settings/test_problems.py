"""Claims about extproc/settings/problems.py: what pydantic finds, in our words."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, BaseModel, Field, ValidationError

from extproc.settings.problems import Problem, SettingsError, describe, dotted, nearest


def _even(value: int) -> int:
    if value % 2:
        raise ValueError("an even number is wanted")
    return value


class Sample(BaseModel):
    share: float = Field(default=1, gt=0, le=10)
    level: Literal["debug", "info"] = "info"
    even: Annotated[int, AfterValidator(_even)] = 0
    name: str = Field(default="x", min_length=1, max_length=3)
    wait_s: float = 1
    wait_ms: int = 1
    body_bytes: int = 1
    memory_mb: int = 1


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"share": 0}, "expected more than 0, got the number 0"),
        ({"share": 11}, "expected at most 10, got the number 11"),
        ({"share": "much"}, "expected a number, got a text"),
        ({"level": "loud"}, "expected one of debug, info"),
        ({"level": "debgu"}, "expected one of debug, info; did you mean debug?"),
        ({"level": 3}, "expected one of debug, info, got the number 3"),
        ({"even": 1}, "an even number is wanted"),
        ({"name": ""}, "this must not be empty"),
        ({"wait_s": "2m"}, "expected a number of seconds without a unit; write 120"),
        ({"wait_s": "1.5h"}, "expected a number of seconds without a unit; write 5400"),
        ({"wait_s": "500ms"}, "expected a number of seconds without a unit; write 0.5"),
        ({"wait_s": "2 moons"}, "expected a number of seconds without a unit"),
        ({"wait_s": "m2"}, "expected a number, got a text"),
        ({"wait_ms": "2s"}, "expected a whole number of milliseconds without a unit; write 2000"),
        ({"body_bytes": "4MiB"}, "expected a whole number of bytes without a unit; write 4194304"),
        ({"memory_mb": "8GiB"}, "expected a whole number of MiB without a unit; write 8192"),
        ({"even": "2m"}, "expected a whole number, got a text"),
        ({"name": "long"}, "this is too long; 3 characters are allowed"),
    ],
)
def test_each_mistake_says_what_is_expected(given: dict[str, Any], told: str) -> None:
    """None begins with pydantic's own words, and no text that was given is quoted."""
    with pytest.raises(ValidationError) as caught:
        Sample.model_validate(given)
    assert describe(caught.value.errors()[0]) == told


def test_a_problem_is_one_line_without_what_it_lacks() -> None:
    problems = [
        Problem(where="a.yaml:3", key="queue.timeout_s", message="too long"),
        Problem(where="COXSWAIN_X", key="", message="no setting has this name"),
    ]
    assert str(SettingsError(problems)) == (
        "a.yaml:3: queue.timeout_s: too long\nCOXSWAIN_X: no setting has this name"
    )


def test_keys_as_people_write_them() -> None:
    assert dotted(("endpoints", 0, "name")) == "endpoints[0].name"
    assert nearest("nmae", ["name", "slots"]) == "name"
    assert nearest("xyz", ["name", "slots"]) is None
