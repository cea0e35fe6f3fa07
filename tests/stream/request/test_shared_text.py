"""Claims about extproc/stream/request/shared_text.py."""

from __future__ import annotations

from extproc.stream.request.shared_text import shared_text


def test_one_copy() -> None:
    """Equal texts that came one by one are one object."""
    copies = [b"/v1/chat/completions".decode() for _ in range(2)]
    assert copies[0] is not copies[1]
    assert shared_text(copies[0]) is shared_text(copies[1])
    assert shared_text(copies[0]) == copies[0]


def test_what_foreign_requests_say_is_forgotten() -> None:
    """However many different texts come, a bounded number is kept."""
    for number in range(5000):
        shared_text(f"/foreign/{number}")
    assert shared_text.cache_info().currsize <= 1024
