"""A server's API key, as a request shows it."""

from __future__ import annotations


def is_sendable_key(api_key: str) -> bool:
    """Whether a header can carry this API key as it is."""
    return bool(api_key) and all(0x21 <= ord(character) <= 0x7E for character in api_key)


def authorization_of(api_key: str) -> str:
    """The header `authorization` that shows it."""
    return f"Bearer {api_key}"
