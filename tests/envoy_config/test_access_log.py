"""Claims about extproc/envoy_config/access_log.py: who is told how exchanges end."""

from __future__ import annotations

from typing import Any

import pytest

from extproc.envoy_config.access_log import (
    LINE,
    access_lines,
    access_log_stream,
    report_interval,
    upload_watchdog_log,
)
from extproc.envoy_config.options import EnvoyOptions, Mode
from tests.envoy_config.parts import plain
from tests.fakes.envoy_text import options_with


def filters_of(log: Any) -> list[dict[str, Any]]:
    found = plain(log)["filter"]
    return found["and_filter"]["filters"] if "and_filter" in found else [found]


def test_no_line_holds_what_may_be_secret() -> None:
    """No query, no body, and of the headers only the request's id, method and our reason."""
    text = " ".join(LINE.values())
    assert "%PATH(NQ)%" in text and "%REQ(:PATH)%" not in text and "QUERY" not in text
    read = [word for word in text.split() if word.startswith(("%REQ(", "%RESP("))]
    assert sorted(read) == ["%REQ(:METHOD)%", "%REQ(X-REQUEST-ID)%", "%RESP(X-COXSWAIN-REASON)%"]


def test_a_line_is_written_once_and_can_be_left_out() -> None:
    """Not for each of the reports about exchanges that go on."""
    (line,) = access_lines(EnvoyOptions())
    assert filters_of(line) == [
        {"log_type_filter": {"types": ["DownstreamPeriodic"], "exclude": True}}
    ]
    assert access_lines(options_with(access_log=False)) == []


def test_the_picker_hears_of_bad_ends_and_of_those_it_asked_for() -> None:
    """Unbuffered, since a report that comes after its stream's end tells nothing."""
    (report,) = access_log_stream(EnvoyOptions())
    kinds = [next(iter(each)) for each in filters_of(report)]
    assert kinds == ["log_type_filter", "or_filter"]
    ended_badly, asked_for, _ = filters_of(report)[1]["or_filter"]["filters"]
    assert list(ended_badly) == ["response_flag_filter"]
    matcher = asked_for["metadata_filter"]["matcher"]
    assert (matcher["filter"], matcher["path"]) == ("envoy.lb", [{"key": "x-coxswain-unbounded"}])
    assert asked_for["metadata_filter"]["match_if_key_not_found"] is False
    common = plain(report)["typed_config"]["common_config"]
    assert common["log_name"] == "coxswain-ends" and common["buffer_size_bytes"] == 0
    assert common["grpc_service"]["envoy_grpc"]["cluster_name"] == "coxswain"
    assert access_log_stream(options_with(access_log_stream=False)) == []


def test_the_picker_hears_of_requests_that_went_past_it() -> None:
    """They have a server and no exchange. Where Envoy fails closed there are none."""
    (report,) = access_log_stream(EnvoyOptions())
    _, _, bypassed = filters_of(report)[1]["or_filter"]["filters"]
    served, exchange = (one["metadata_filter"] for one in bypassed["and_filter"]["filters"])
    assert served["matcher"]["path"] == [{"key": "x-gateway-destination-endpoint-served"}]
    assert served["match_if_key_not_found"] is False
    assert exchange["matcher"]["path"] == [{"key": "x-coxswain-exchange"}]
    assert exchange["matcher"]["value"] == {"null_match": {}}
    assert exchange.get("match_if_key_not_found", True) is True
    (report,) = access_log_stream(EnvoyOptions(mode=Mode.ORIGINAL_DST))
    assert [next(iter(one)) for one in filters_of(report)] == [
        "log_type_filter",
        "or_filter",
    ]


def test_uploads_are_reported_while_they_have_a_server_and_no_answer() -> None:
    """Only the periodic ones, only without a status, only those that were not whole when they got
    their server: the others would be thousands of reports that tell nothing."""
    options = EnvoyOptions()
    (report,) = upload_watchdog_log(options)
    periodic, silent, chosen = filters_of(report)
    assert periodic == {"log_type_filter": {"types": ["DownstreamPeriodic"]}}
    assert silent["status_code_filter"]["comparison"]["value"].get("default_value", 0) == 0
    matcher = chosen["metadata_filter"]["matcher"]
    assert (matcher["filter"], matcher["path"]) == ("envoy.lb", [{"key": "x-coxswain-upload"}])
    assert chosen["metadata_filter"]["match_if_key_not_found"] is False


@pytest.mark.parametrize(
    ("idle_s", "min_rate", "grace_s", "interval"),
    [
        (30, 125_000, 2, "0.500s"),
        (30, 0, 2, "15s"),
        (0, 125_000, 8, "2s"),
        (0.5, 125_000, 2, "0.250s"),
        (0, 1, 0.001, "0.001s"),
    ],
)
def test_reports_come_as_often_as_the_limits_need(
    idle_s: float, min_rate: int, grace_s: float, interval: str
) -> None:
    """Four times within the grace, twice within the idle time, and as often as Envoy can."""
    options = options_with(
        request_body_idle_timeout_s=idle_s,
        request_body_min_rate_bytes_per_s=min_rate,
        request_body_grace_s=grace_s,
    )
    found = report_interval(options)
    assert found is not None and plain(found) == {"access_log_flush_interval": interval}


def test_no_bound_for_uploads_no_reports() -> None:
    options = options_with(request_body_idle_timeout_s=0, request_body_min_rate_bytes_per_s=0)
    assert upload_watchdog_log(options) == [] and report_interval(options) is None
