"""Claims about extproc/settings/spill_section.py, and the settings of endpoints of tier 2."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from extproc.core.price import Price
from extproc.core.spill import NO_SPILL, SpillOptions
from extproc.settings import EndpointSettings, Settings

FAR: dict[str, Any] = {
    "address": "https://far.example.com:443",
    "tier": 2,
    "api_key_env": "KEY",
    "inject_key": True,
}


def test_by_default_nothing_spills() -> None:
    assert Settings().spill.for_core() == NO_SPILL


def test_the_core_gets_what_is_written() -> None:
    settings = Settings.model_validate(
        {
            "objectives": {"chat": {}},
            "spill": {"objectives": ["chat"], "after_wait_s": 3, "slo_share": 0.5},
        }
    )
    assert settings.spill.for_core() == SpillOptions(
        objectives=frozenset({"chat"}), after_wait_s=3.0, slo_share=0.5
    )


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ({"spill": {"objectives": ["chat"]}}, "no objective of the name chat"),
        ({"spill": {"keys": ["web"]}}, "needs clients.keys_file"),
        ({"spill": {"max_cost_per_day": 1}}, "need usage.path"),
        ({"spill": {"max_requests_per_day": 1}}, "need usage.path"),
        (
            {"endpoints": [FAR], "spill": {"max_cost_per_day": 1}, "usage": {"path": "/u"}},
            "max_cost_per_day needs the price of .*:443",
        ),
        ({"spill": {"objectives": [""]}}, "empty name"),
        ({"endpoints": [{**FAR, "inject_key": False}]}, "tier 2 needs inject_key"),
        ({"endpoints": [{**FAR, "tier": 3}]}, "Input should be 1 or 2"),
        ({"endpoints": [{**FAR, "tier": 1, "models": {"a": "b"}}]}, "endpoints of tier 2"),
        ({"endpoints": [{**FAR, "price": {"prompt": -1}}]}, "greater than or equal to 0"),
    ],
)
def test_contradictions_are_said(written: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        Settings.model_validate(written)


@pytest.mark.parametrize("price", [{"prompt": 0}, {"slot_s": 0.1}])
def test_a_bound_on_cost_takes_any_price(price: dict[str, float]) -> None:
    """Also none, if it is said: of a second site. Tier 1 needs none."""
    endpoints = [{**FAR, "price": price}, "10.0.0.1:8080"]
    spill, usage = {"max_cost_per_day": 1}, {"path": "/u"}
    settings = Settings.model_validate({"endpoints": endpoints, "spill": spill, "usage": usage})
    assert settings.spill.max_cost_per_day == 1


def test_a_price_may_be_given_in_part() -> None:
    endpoint = EndpointSettings.model_validate({**FAR, "price": {"generated": 8}})
    assert endpoint.price is not None
    assert Price(**endpoint.price.model_dump()) == Price(generated=8.0)
