"""Claims about extproc/settings/keys.py."""

from __future__ import annotations

import pytest

from extproc.settings import Settings
from extproc.settings.keys import advise, every_key, keys_at, reloadable_keys
from extproc.settings.problems import KeyPath


def test_every_setting_has_a_path() -> None:
    """Sections are entered, lists and names that operators choose count as one setting."""
    paths = list(every_key(Settings))
    assert ("queue", "timeout_s") in paths and ("endpoints",) in paths and ("objectives",) in paths
    assert ("queue",) not in paths
    assert len(set(paths)) == len(paths)


def test_what_a_reload_applies_is_marked_where_it_is_declared() -> None:
    """Also beside other marks of a setting, and in sections. What opens a port is not."""
    paths = set(reloadable_keys(Settings))
    assert paths < set(every_key(Settings))
    assert {("endpoints",), ("drain_timeout_s",), ("queue", "timeout_s")} <= paths
    assert {("clients", "limits"), ("discovery", "file"), ("log", "level")} <= paths
    assert not {path for path in paths if path[0] in {"listen", "cluster", "usage", "envoy"}}


@pytest.mark.parametrize(
    ("path", "some"),
    [
        ((), {"queue", "endpoints", "response_headers"}),
        (("queue",), {"max_requests", "max_body_bytes", "timeout_s"}),
        (("endpoints", 0), {"address", "slots"}),
        (("objectives", "chat"), {"criticality", "weight"}),  # `chat` is the operator's word
    ],
)
def test_what_may_stand_below(path: KeyPath, some: set[str]) -> None:
    """In a section, in an item of a list, below a name."""
    assert some <= set(keys_at(Settings, path))


@pytest.mark.parametrize("path", [("nowhere",), ("queue", "timeout_s"), ("queue", "x", "y")])
def test_nothing_stands_below_what_is_no_section(path: KeyPath) -> None:
    """A path that leads nowhere has no keys, and raises nothing."""
    assert keys_at(Settings, path) == ()


@pytest.mark.parametrize(
    ("path", "advice"),
    [
        (("queue", "Timeout"), "did you mean queue.timeout_s?"),
        (("endpoints", 3, "slot"), "did you mean endpoints[3].slots?"),
        (("max_requests",), "did you mean queue.max_requests?"),  # right key, wrong place
        (
            ("queue", "qqqqqq"),
            "known here: max_requests, max_body_bytes, timeout_s, discipline, max_overtaken_s",
        ),
        (("nowhere", "qqqqqq"), "unknown key"),
    ],
)
def test_advice(path: KeyPath, advice: str) -> None:
    """The nearest key beside it, else one elsewhere, else all that may stand there."""
    assert advise(Settings, path).endswith(advice)
