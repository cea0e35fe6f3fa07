"""Keys, tokens and passwords: one way to read them from files, and no error that shows one; and how
they are sent in a header.
"""

from pathlib import Path
from typing import Final

from extproc.security.reading import at_once

MAX_SECRET_BYTES: Final = 16 * 1024


class SecretFileError(ValueError):
    """The file holds nothing that could be a secret; `str(error)` names it, never its content."""


def read_secret(file: Path) -> str:
    """The text of `file` without the blanks around it, which may be empty. `~` is a home folder.

    Blocks on the disk. Raises `SecretFileError` for what cannot be read, is no text, or is longer
    than any key or token.
    """
    try:
        with open(file.expanduser(), "rb", opener=at_once) as stream:
            content = stream.read(MAX_SECRET_BYTES + 1)
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise SecretFileError(f"{file} cannot be read: {reason}") from None
    if len(content) > MAX_SECRET_BYTES:
        limit = f"{MAX_SECRET_BYTES // 1024} KiB"
        raise SecretFileError(f"{file} holds more than {limit}: that is no key or token")
    try:
        return content.decode().strip()
    except UnicodeDecodeError:
        raise SecretFileError(f"{file} cannot be read: it is not text") from None


def is_header_value(secret: str) -> bool:
    """Whether an HTTP header can carry it, and there is something to carry."""
    return bool(secret) and secret.isascii() and secret.isprintable()


def is_sendable_key(api_key: str) -> bool:
    """Whether a header can carry this API key unchanged."""
    return bool(api_key) and all(0x21 <= ord(character) <= 0x7E for character in api_key)


def authorization_of(api_key: str) -> str:
    """The value of the `authorization` header for this key."""
    return f"Bearer {api_key}"
