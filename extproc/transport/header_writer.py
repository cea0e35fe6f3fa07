"""The header blocks of responses, in HPACK's literal form, which changes no table (RFC 7541)."""

from typing import Final

from extproc.transport.status import OK, percent_encoded

STATUS_200: Final = b"\x88"
"""`:status: 200`, by its index in the static table."""
CONTENT_TYPE: Final = 31
STATUS: Final = 8
"""Names' indexes in the static table."""


def named(index: int, value: bytes) -> bytes:
    """A field whose name is in the static table."""
    return _integer(index, 0x0F) + _string(value)


def literal(name: bytes, value: bytes) -> bytes:
    """A field with any name."""
    return b"\0" + _string(name) + _string(value)


def trailers(status: int, text: str) -> bytes:
    """The block that ends a call."""
    if status == OK and not text:
        return OK_TRAILERS
    block = literal(b"grpc-status", str(status).encode())
    return block + literal(b"grpc-message", percent_encoded(text)) if text else block


def _string(value: bytes) -> bytes:
    return _integer(len(value), 0x7F) + value


def _integer(value: int, mask: int) -> bytes:
    """An integer with a prefix (section 5.1)."""
    if value < mask:
        return bytes([value])
    encoded = [mask]
    value -= mask
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


OPENING: Final = STATUS_200 + named(CONTENT_TYPE, b"application/grpc")
"""The first block of each response."""
OK_TRAILERS: Final = literal(b"grpc-status", b"0")
NOT_GRPC: Final = named(STATUS, b"415") + named(CONTENT_TYPE, b"text/plain")
NOT_GRPC_TRAILERS: Final = literal(b"x-accepts", b"application/grpc")
