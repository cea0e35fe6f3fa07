"""Claims about extproc/envoy_config/access_log.py: who is told how exchanges end."""

from __future__ import annotations

from typing import Any

from extproc.envoy_config.access_log import (
    LINE,
    access_lines,
    end_reports,
    report_interval,
    upload_reports,
)
from extproc.envoy_config.options import EnvoyOptions
from tests.envoy_config.parts import plain


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
    assert access_lines(EnvoyOptions(access_log=False)) == []


def test_the_picker_hears_only_of_bad_ends() -> None:
    """Unbuffered, since a report that comes after its stream's end tells nothing."""
    (report,) = end_reports(EnvoyOptions())
    kinds = [next(iter(each)) for each in filters_of(report)]
    assert kinds == ["log_type_filter", "response_flag_filter"]
    common = plain(report)["typed_config"]["common_config"]
    assert common["log_name"] == "coxswain-ends" and common["buffer_size_bytes"] == 0
    assert common["grpc_service"]["envoy_grpc"]["cluster_name"] == "coxswain"
    assert end_reports(EnvoyOptions(end_reports=False)) == []


def test_uploads_are_told_of_while_they_have_a_server_and_no_answer() -> None:
    """Only the periodic ones, only without a status, only with an exchange of ours."""
    options = EnvoyOptions(request_body_idle_timeout_s=7)
    (report,) = upload_reports(options)
    periodic, silent, chosen = filters_of(report)
    assert periodic == {"log_type_filter": {"types": ["DownstreamPeriodic"]}}
    assert silent["status_code_filter"]["comparison"]["value"].get("default_value", 0) == 0
    matcher = chosen["metadata_filter"]["matcher"]
    assert (matcher["filter"], matcher["path"]) == ("envoy.lb", [{"key": "x-coxswain-exchange"}])
    assert chosen["metadata_filter"]["match_if_key_not_found"] is False
    interval = report_interval(options)
    assert interval is not None and plain(interval) == {"access_log_flush_interval": "7s"}


def test_no_bound_for_uploads_no_reports() -> None:
    options = EnvoyOptions(request_body_idle_timeout_s=0)
    assert upload_reports(options) == [] and report_interval(options) is None
