"""Claims about extproc/admin/auth/peer.py."""

from __future__ import annotations

import pytest

from extproc.admin.auth.peer import PASSED_ON, peer_host


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:10.0.0.5:41234", "10.0.0.5"),
        ("ipv6:%5B::1%5D:41234", "::1"),
        ("ipv6:[::1]:41234", "::1"),
        ("ipv6:%5Bfe80::1%25eth0%5D:1", "fe80::1%eth0"),
        ("unix:/tmp/socket", ""),
        ("", ""),
    ],
)
def test_grpcs_words_for_a_caller(peer: str, host: str) -> None:
    assert peer_host(peer) == host


def test_a_connection_that_was_passed_on_is_its_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PASSED_ON, ("127.0.0.1", 41234), "10.0.0.7")
    assert peer_host("ipv4:127.0.0.1:41234") == "10.0.0.7"
    assert peer_host("ipv4:127.0.0.1:41235") == "127.0.0.1"
