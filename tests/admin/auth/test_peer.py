"""Claims about extproc/admin/auth/peer.py."""

from __future__ import annotations

import pytest

from extproc.admin.auth.peer import peer_host


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
