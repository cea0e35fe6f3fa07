"""Claims about extproc/envoy_config/filters.py."""

from __future__ import annotations

from extproc.envoy_config.filters import CONTROL_HEADERS, REQUEST_HEADERS, RESPONSE_HEADERS
from extproc.stream.envoy import codec


def test_envoy_sends_the_headers_that_are_read_and_no_others() -> None:
    """What the picker is not sent it cannot read; what it does not read it need not be sent."""
    assert set(REQUEST_HEADERS) == codec.REQUEST_HEADERS
    assert set(RESPONSE_HEADERS) == codec.RESPONSE_HEADERS
    assert set(CONTROL_HEADERS) == codec.CONTROL_HEADERS
