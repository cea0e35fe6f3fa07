"""Claims about extproc/envoy_config/filters.py."""

from __future__ import annotations

from extproc.envoy_config.documents import bootstrap
from extproc.envoy_config.filters import (
    ARRIVAL_ATTRIBUTES,
    CONTROL_HEADERS,
    REQUEST_HEADERS,
    RESPONSE_HEADERS,
)
from extproc.envoy_config.options import EnvoyOptions
from extproc.stream.envoy import codec
from extproc.stream.envoy.codec.names import ARRIVAL
from extproc.transport.patience import LONG, PATIENCE


def test_envoy_sends_the_headers_that_are_read_and_no_others() -> None:
    """What the picker is not sent it cannot read; what it does not read it need not be sent."""
    assert set(REQUEST_HEADERS) == codec.REQUEST_HEADERS
    assert set(RESPONSE_HEADERS) == codec.RESPONSE_HEADERS
    assert set(CONTROL_HEADERS) == codec.CONTROL_HEADERS


def test_with_fronts_a_stream_is_opened_again_and_nothing_asks_for_patience() -> None:
    """The header says that the timeout is long: what a queued request were told is an answer."""
    text = bootstrap(EnvoyOptions(has_fronts=True, message_timeout_s=65.0))
    service = text[: text.index("failure_mode_allow")].rpartition("grpc_service:")[2]
    assert "num_retries: 5" in service and "reset,connect-failure" in service
    assert f"key: {PATIENCE}" in service and f"value: {LONG}" in service
    assert PATIENCE not in bootstrap(EnvoyOptions())


def test_with_fronts_envoy_says_when_a_request_arrived() -> None:
    [attribute] = ARRIVAL_ATTRIBUTES
    assert attribute == ARRIVAL
    text = bootstrap(EnvoyOptions(has_fronts=True))
    assert attribute in text[text.index("request_attributes:") :].split("response_attributes")[0]
    assert attribute not in bootstrap(EnvoyOptions())
