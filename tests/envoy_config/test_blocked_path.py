"""Claims about extproc/envoy_config/blocked_path.py."""

from __future__ import annotations

import re

import pytest

from extproc.core.blocked_path import DEFAULT_BLOCKED
from extproc.envoy_config.blocked_path import HIDDEN_CHARACTER, path_pattern


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
        ("/v1/streams/lookup", True),
        ("/v1/models", False),
        ("/models", False),
        ("/models/load", True),
        ("/", False),
        ("/v1/chat/completions", False),
        ("/v1/chat/completions/control", False),
    ],
)
def test_the_default_rules_meet_their_paths_in_any_case_and_below_any_prefix(
    path: str, is_blocked: bool
) -> None:
    pattern = path_pattern([rule for rule in DEFAULT_BLOCKED if rule.method is None])
    assert bool(re.fullmatch(pattern, path)) == is_blocked


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
def test_an_escape_that_hides_a_plain_character_is_told_from_one_that_must_be(
    path: str, hides: bool
) -> None:
    assert bool(re.fullmatch(HIDDEN_CHARACTER, path)) == hides
