"""Claims about extproc/security/authorization.py."""

from __future__ import annotations

from extproc.security.authorization import authorization_of, is_sendable_key


def test_a_key_must_fit_into_one_word_of_a_header() -> None:
    assert is_sendable_key("sk-1~!") and authorization_of("sk-1") == "Bearer sk-1"
    for key in ("", "two words", "line\nbreak", "tab\t", "caf\u00e9", "nul\0", "del\x7f"):
        assert not is_sendable_key(key)
