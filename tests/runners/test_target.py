"""What can be looked at, and what is never shown of it."""

from __future__ import annotations

import pytest

from extproc.core.address import Address
from extproc.runners.target import EndpointTarget, TargetError

ADDRESS = Address("10.0.0.5", 8080)


def test_the_key_is_not_shown() -> None:
    target = EndpointTarget(address=ADDRESS, api_key="sesame")
    assert "sesame" not in repr(target)


def test_the_address_makes_the_url() -> None:
    assert EndpointTarget(address=ADDRESS).base_url == "http://10.0.0.5:8080"
    target = EndpointTarget(address=Address.parse("[::1]:80"), is_tls=True, path_prefix="/llama")
    assert target.base_url == "https://[::1]:80/llama"


@pytest.mark.parametrize(
    "wrong",
    [
        {"api_key": "a\r\nb"},
        {"api_key": ""},
        {"api_key": "schlüssel"},
        {"host_name": "a b"},
        {"slots": -1},
        {"slots": 1_000_000},
        {"path_prefix": "llama"},
        {"path_prefix": "/llama/"},
        {"path_prefix": "/a?b"},
    ],
)
def test_what_cannot_be_asked_is_rejected_without_showing_the_key(wrong: dict[str, object]) -> None:
    with pytest.raises(TargetError) as rejected:
        EndpointTarget(address=ADDRESS, **wrong)  # type: ignore[arg-type]
    assert "10.0.0.5:8080" in str(rejected.value)
    if wrong.get("api_key"):
        assert str(wrong["api_key"]) not in str(rejected.value)
