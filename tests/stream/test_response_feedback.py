"""Claims about extproc/stream/response_feedback.py: whose fault an answer is."""

from __future__ import annotations

import pytest

from extproc.core.address import Address
from extproc.core.decision import Picked
from extproc.core.outliers.failure_evidence import Fault
from extproc.core.outliers.pauses import LONGEST_PAUSE_S, PAUSE_S, SHORTEST_PAUSE_S
from extproc.core.request import Kind, Request
from extproc.core.slots.lease import Lease
from extproc.stream import response_feedback
from extproc.stream.envoy import codec
from tests.fakes import envoy_messages as envoy
from tests.fakes.small_fleet import SmallFleet

RESET = "upstream_reset_before_response_started"


def told(status: int, details: str = "via_upstream") -> codec.ResponseHead:
    return codec.ResponseHead(
        status=status, is_stream=False, served=None, attempts=1, code_details=details
    )


@pytest.mark.parametrize(
    ("status", "details", "fault"),
    [
        (200, "via_upstream", None),
        (400, "via_upstream", None),
        (401, "via_upstream", None),
        (404, "via_upstream", None),
        (500, "via_upstream", Fault.SERVER_ERROR),
        (501, "via_upstream", None),
        (502, "via_upstream", Fault.SERVER_ERROR),
        (503, "via_upstream", Fault.UNAVAILABLE),
        (502, f"{RESET}{{connection_termination}}", Fault.RESET),
        (502, f"{RESET}{{remote_reset}}", Fault.RESET),
        (502, f"{RESET}{{protocol_error}}", Fault.RESET),
        (503, f"{RESET}{{remote_connection_failure|delayed_connect_error:_111}}", None),
        (503, f"{RESET}{{connection_timeout}}", None),
        (503, f"{RESET}{{overflow}}", None),
        (504, "upstream_per_try_idle_timeout", Fault.TIMEOUT),
        (408, "coxswain_upload-stalled", None),
        (503, "no_healthy_upstream", None),
        (413, "request_payload_too_large", None),
    ],
)
def test_what_is_the_servers_fault(status: int, details: str, fault: Fault | None) -> None:
    """4xx is the client's, 501 what a server was not started for, the rest nobody's here."""
    assert response_feedback.fault_of(told(status, details)) is fault


ROUTERS = "a"


@pytest.mark.parametrize(
    ("changes", "model_pool", "kind", "is_finished"),
    [
        ({"body_bytes": 600}, "", Kind.GENERATION, True),
        ({"body_bytes": 17_000}, ROUTERS, Kind.GENERATION, False),  # it is still on its way
        ({}, "", Kind.GENERATION, False),  # any proxy may send it while the server works
        ({}, ROUTERS, Kind.GENERATION, True),
        ({}, ROUTERS, Kind.EMBEDDING, False),  # it may be megabytes
        ({"is_stream": True}, ROUTERS, Kind.GENERATION, False),
        ({"status": 500}, ROUTERS, Kind.GENERATION, False),
        ({"code_details": "route_not_found"}, ROUTERS, Kind.GENERATION, False),
    ],
)
def test_what_headers_prove(
    changes: dict[str, object], model_pool: str, kind: Kind, is_finished: bool
) -> None:
    """A router passes on what a llama-server sends when it has all of it, without its length."""
    lease = Lease(1, Address("10.0.0.1", 8000), 1, 0.0)
    lease.model_pool = model_pool
    meant = Request(id="1", timeout_s=1.0, kind=kind)
    response = told(200)._replace(**changes)  # type: ignore[arg-type]
    assert response_feedback.is_finished(response, lease, meant) is is_finished


@pytest.mark.parametrize(
    ("response", "is_ejected"),
    [
        (told(500), True),
        (told(502, f"{RESET}{{connection_termination}}"), True),
        (told(400), False),
        (told(200), False),
    ],
)
def test_the_core_hears_of_it(response: codec.ResponseHead, is_ejected: bool) -> None:
    fleet = SmallFleet(8, 8)
    bad = fleet.addresses[0]
    for _ in range(3):
        request = Request(id="r", timeout_s=1.0, allowed=frozenset({bad}))
        outcome = fleet.dispatcher.submit(request, fleet.now)
        assert isinstance(outcome, Picked)
        response_feedback.apply_response(
            fleet.dispatcher, response, (bad,), outcome.lease, fleet.now
        )
    assert fleet.endpoint(bad).is_ejected is is_ejected


def test_a_full_context_is_not_held_against_its_server() -> None:
    """Only what is said where slots may share one: a request that was alone there failed like
    others do, and so did one with another body."""
    for body_bytes, is_ejected in ((88, False), (90, True)):
        fleet = SmallFleet(8, 8)
        bad = fleet.addresses[0]
        request = Request(id="r", timeout_s=1.0, allowed=frozenset({bad}))
        assert isinstance(fleet.dispatcher.submit(request, fleet.now), Picked)
        full = codec.ResponseHead(
            status=500,
            is_stream=False,
            served=None,
            attempts=1,
            code_details="via_upstream",
            body_bytes=body_bytes,
        )
        for _ in range(3):
            outcome = fleet.dispatcher.submit(request, fleet.now)
            assert isinstance(outcome, Picked)
            response_feedback.apply_response(
                fleet.dispatcher, full, (bad,), outcome.lease, fleet.now
            )
        assert fleet.endpoint(bad).is_ejected is is_ejected
        assert bool(fleet.endpoint(bad).overflows) is not is_ejected


NOW = 784_111_777.0
"""Of the first date below, in seconds since 1970."""


@pytest.mark.parametrize(
    ("sent", "pause_s"),
    [
        ("7", 7.0),
        ("7.5", 7.5),
        ("Sun, 06 Nov 1994 08:49:47 GMT", 10.0),
        ("Sunday, 06-Nov-94 08:49:47 GMT", 10.0),
        ("Sun Nov  6 08:49:47 1994", 10.0),
        ("Sun, 06 Nov 1994 09:49:47 +0100", 10.0),
        ("Sun, 06 Nov 1994 08:49:30 GMT", SHORTEST_PAUSE_S),  # it has passed
        ("0", SHORTEST_PAUSE_S),
        ("86400", LONGEST_PAUSE_S),
        ("Mon, 07 Nov 1994 08:49:37 GMT", LONGEST_PAUSE_S),
        (None, PAUSE_S),
        ("soon", PAUSE_S),
        ("-1", PAUSE_S),
        ("Sun, 06 Nov 99999999999 08:49:37 GMT", PAUSE_S),
        (f"Sun, 06 Nov 1994 08:49:47 {'G' * 100}", PAUSE_S),
        ("Sun, 06 Nov 1994 08:49:47 GM\u0422", PAUSE_S),
    ],
)
def test_429_is_a_pause_and_no_failure(sent: str | None, pause_s: float) -> None:
    """For as long as Retry-After says, in seconds or as a date, within bounds."""
    fleet = SmallFleet()
    address = fleet.add(2, busy=None)
    lease = fleet.pick()
    more = {} if sent is None else {"retry-after": sent}
    message = envoy.response_headers("429", served=str(address), more=more)
    response = codec.read_response_head(message, lambda: NOW)
    response_feedback.apply_response(fleet.dispatcher, response, [address], lease, fleet.now)
    endpoint = fleet.dispatcher.fleet.get(address)
    assert endpoint is not None
    assert endpoint.paused_until == fleet.now + pause_s
    assert not endpoint.is_ejected


@pytest.mark.parametrize(
    ("content_type", "is_stream"),
    [
        ("text/event-stream; charset=utf-8", True),
        ("application/x-ndjson", True),
        ("application/json", False),
    ],
)
def test_lines_are_a_stream_too(content_type: str, is_stream: bool) -> None:
    """Ollama's own API sends them: their headers say nothing about the end."""
    message = envoy.response_headers(content_type=content_type, body_bytes=None)
    assert codec.read_response_head(message).is_stream is is_stream
