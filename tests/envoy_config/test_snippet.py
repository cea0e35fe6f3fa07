"""Claims about extproc/envoy_config/snippet.py: what people put into an Envoy of their own."""

from __future__ import annotations

import pytest

from extproc.envoy_config.options import EnvoyOptions, Mode
from tests.envoy_config.parts import read, snippet
from tests.fakes.envoy_text import options_with

KEYS = ["http_connection_manager", "http_filters", "routes", "clusters"]


@pytest.mark.parametrize("mode", Mode)
def test_four_parts_each_with_the_place_where_it_goes(mode: Mode) -> None:
    text = snippet(EnvoyOptions(mode=mode))
    assert list(read(text)) == KEYS
    for number, key in enumerate(KEYS, start=1):
        assert f"# {number}. {key}:" in text[: text.index(f"\n{key}:")]


def test_the_servers_cluster_is_among_them() -> None:
    """An Envoy takes clusters from one place, which may be taken already."""
    parts = read(snippet(EnvoyOptions()))
    assert [one["name"] for one in parts["clusters"]] == ["llama", "coxswain", "coxswain-status"]


def test_who_has_access_logs_learns_what_becomes_of_them() -> None:
    """Where they are written out of turn."""
    assert "DownstreamPeriodic], exclude" in " ".join(snippet(EnvoyOptions()).split())
    quiet = snippet(
        options_with(request_body_idle_timeout_s=0, request_body_min_rate_bytes_per_s=0)
    )
    assert "access_log_flush_interval" not in quiet


def test_no_router_and_no_tracer_is_brought() -> None:
    """Both are the Envoy's own; the collector's cluster is offered, and said so."""
    text = snippet(options_with(tracing="10.0.0.9:4317"))
    parts = read(text)
    assert "router" not in str([one["name"] for one in parts["http_filters"]])
    assert "tracing" not in parts["http_connection_manager"]
    assert "add a tracer" in text
    assert "add a tracer" not in snippet(EnvoyOptions())
