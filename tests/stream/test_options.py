"""Claims about extproc/stream/options.py."""

from __future__ import annotations

from typing import Any

import pytest

from extproc.core.client_limits import ClientLimits
from extproc.settings import Settings
from extproc.stream.options import exchange_options

NO_LIMITS = ClientLimits({})


def settings(**values: Any) -> Settings:
    return Settings.model_validate(values)


def test_exchanges() -> None:
    options = exchange_options(
        settings(queue={"timeout_s": 5}, response_headers=False), 7, NO_LIMITS
    )
    assert options.queue.timeout_s == 5 and not options.adds_response_headers


@pytest.mark.parametrize(
    ("read_body", "errors", "reads", "is_strict"),
    [("never", "lenient", False, False), ("auto", "strict", True, True)],
)
def test_how_bodies_are_read(read_body: str, errors: str, reads: bool, is_strict: bool) -> None:
    routing = {"read_body": read_body, "body_errors": errors}
    reading = exchange_options(settings(routing=routing), 7, NO_LIMITS).reading
    assert (reading.reads_bodies, reading.is_strict) == (reads, is_strict)


def test_no_body_is_short_that_envoy_would_not_keep() -> None:
    """What counts as short is bound by both: what is read, and what Envoy's buffer holds."""
    for read, kept in ((65_536, 4_194_304), (4_194_304, 65_536)):
        chosen = {"routing": {"body_limit_bytes": read}, "envoy": {"body_buffer_bytes": kept}}
        reading = exchange_options(settings(**chosen), 7, NO_LIMITS).reading
        assert (reading.limit_bytes, reading.short_bytes) == (read, 65_536)
