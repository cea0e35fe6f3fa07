"""The `authorization` header for a server's API key."""


def is_sendable_key(api_key: str) -> bool:
    """Whether a header can carry this API key unchanged."""
    return bool(api_key) and all(0x21 <= ord(character) <= 0x7E for character in api_key)


def authorization_of(api_key: str) -> str:
    """The value of the `authorization` header for this key."""
    return f"Bearer {api_key}"
