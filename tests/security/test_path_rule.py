"""Claims about extproc/security/path_rule.py."""

from __future__ import annotations

import re

import pytest

from extproc.security.path_rule import (
    HIDDEN_CHARACTER,
    PathRule,
    PathRuleError,
    blocked_pattern,
    open_pattern,
)


@pytest.mark.parametrize(
    "rule",
    [
        *("/slots*", "POST /props", "/v1/stream", "DELETE /models*", "/", "GET /", "/*", "POST /*"),
        *("/*.js", "GET /static/*.min.js"),
    ],
)
def test_a_rule_is_printed_as_it_was_written(rule: str) -> None:
    assert str(PathRule.parse(rule)) == rule


@pytest.mark.parametrize(
    "rule",
    [
        *(
            "",
            "slots",
            "*",
            "FETCH /slots",
            "HEAD /slots",
            "/" + "x" * 48,
            "/caf\u00e9",
            "/a*b",
            "/a?b",
            "//slots",
            "/%73lots",
            "/a b",
            "POST",
            "OPTIONS /a",
        ),
        *("/a/*b.js", "/*.j*s", "*.js"),
    ],
)
def test_an_invalid_rule_raises(rule: str) -> None:
    with pytest.raises(PathRuleError, match="write"):
        PathRule.parse(rule)


@pytest.mark.parametrize(
    ("rule", "method", "is_concerned"),
    [
        ("/a", "PUT", True),
        ("/a", "", True),
        ("GET /a", "GET", True),
        ("GET /a", "HEAD", True),
        ("GET /a", "POST", False),
        ("POST /a", "OPTIONS", False),
        ("POST /a", "", False),
    ],
)
def test_head_is_treated_as_get(rule: str, method: str, is_concerned: bool) -> None:
    assert PathRule.parse(rule).concerns(method) == is_concerned


OPENED = tuple(map(PathRule.parse, ("/", "/props", "/a.b/c", "/below*", "/*.js", "/f/*.min.css")))


@pytest.mark.parametrize(
    ("path", "is_open"),
    [
        ("/", True),
        ("/props", True),
        ("/props/", True),
        ("/props/x", False),
        ("/propsx", False),
        ("/PROPS", False),
        ("/x/props", False),
        ("/a.b/c", True),
        ("/aXb/c", False),
        ("/below", True),
        ("/below/", True),
        ("/below/it/x", True),
        ("/belowit", False),
        ("/workbox-1a2b.js", True),
        ("/.js", True),
        ("/a/b.js", False),
        ("/a%2fb.js", False),
        ("/slots?.js", False),
        ("/a\nb.js", False),
        ("/b.jsx", False),
        ("/f/x.min.css", True),
        ("/f/x.css", False),
        ("/llama", True),
        ("/llama/props", True),
        ("/llama/llama/props", False),
        ("/Llama/props", False),
        ("/llama/x.js", True),
        ("", True),
        ("props", False),
    ],
)
def test_open_paths_are_exact_at_the_root_and_below_the_prefix(path: str, is_open: bool) -> None:
    assert bool(re.fullmatch(open_pattern(OPENED, "/llama"), path)) == is_open


def test_without_a_prefix_there_is_none() -> None:
    pattern = open_pattern(OPENED)
    assert re.fullmatch(pattern, "/props") and not re.fullmatch(pattern, "/llama/props")


CLOSED = tuple(map(PathRule.parse, ("/slots*", "/metrics", "/v1/stream", "/", "/*.js")))


@pytest.mark.parametrize(
    ("path", "is_blocked"),
    [
        ("/slots", True),
        ("/slots/", True),
        ("/slots/0", True),
        ("/SLOTS/0", True),
        ("/api/v2/slots", True),
        ("/slotsful", False),
        ("/my-slots", False),
        ("/metrics", True),
        ("/metrics/", True),
        ("/metrics/more", False),
        ("/v1/stream", True),
        ("/a.js", True),
        ("/deep/A.JS", True),
        ("/v1/models", False),
        ("/", True),
        ("/x/", False),
        ("/v1/chat/completions", False),
    ],
)
def test_blocked_paths_match_in_any_case_and_below_any_prefix(path: str, is_blocked: bool) -> None:
    assert bool(re.fullmatch(blocked_pattern(CLOSED), path)) == is_blocked


def test_all_can_be_opened_and_blocked() -> None:
    every = (PathRule.parse("/*"),)
    for path in ("/", "/x", "/x/y.z"):
        assert re.fullmatch(open_pattern(every), path)
        assert re.fullmatch(blocked_pattern(every), path)


@pytest.mark.parametrize(
    ("path", "hides"),
    [
        ("/%u0073lots", True),
        ("/%73lots", True),
        ("/slots%2f0", True),
        ("/a%2e%2E/slots", True),
        ("/lora%2dadapters", True),
        ("/v1/models/org%3Aname", False),
        ("/caf%C3%A9", False),
        ("/a%20b", False),
        ("/100%", False),
        ("/v1/chat/completions", False),
    ],
)
def test_an_escape_that_hides_a_plain_character_is_recognised(path: str, hides: bool) -> None:
    assert bool(re.fullmatch(HIDDEN_CHARACTER, path)) == hides
