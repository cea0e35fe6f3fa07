"""Claims about extproc/status/hosts.py."""

from __future__ import annotations

import pytest

from extproc.settings.listen_section import ListenSettings
from extproc.status.hosts import Hosts


@pytest.mark.parametrize(
    ("host", "is_allowed"),
    [
        ("", True),
        ("localhost", True),
        ("LocalHost.:9090", True),
        ("picker.localhost:9090", True),
        ("127.0.0.1:9090", True),
        ("10.0.0.7", True),
        ("[::1]:9090", True),
        ("Coxswain:9090", True),
        ("pages.internal.", True),
        ("evil.example:9090", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("notlocalhost", False),
        ("coxswain.evil.example", False),
        ("10.0.0.7.:9090", True),
    ],
)
def test_names_that_nobody_else_can_own(host: str, is_allowed: bool) -> None:
    assert Hosts(["coxswain", "Pages.internal"]).allows(host) is is_allowed


def test_the_pages_are_requested_by_the_names_in_the_settings() -> None:
    hosts = Hosts.of(ListenSettings(http="picker-1:9090", http_hosts=("pages",)))
    assert hosts.allows("pages:1") and hosts.allows("picker-1:9090")
    assert not hosts.allows("elsewhere")
