"""gRPC's status codes, and how a status is written into trailers."""

from typing import Final

OK: Final = 0
INVALID_ARGUMENT: Final = 3
DEADLINE_EXCEEDED: Final = 4
NOT_FOUND: Final = 5
RESOURCE_EXHAUSTED: Final = 8
UNIMPLEMENTED: Final = 12
INTERNAL: Final = 13
UNAVAILABLE: Final = 14

MAX_TEXT_BYTES: Final = 1_000


def percent_encoded(text: str) -> bytes:
    """A status text as the value of `grpc-message` (gRPC over HTTP/2, "Status-Message")."""
    encoded = text.encode("utf-8", "replace")[:MAX_TEXT_BYTES]
    if encoded.isascii() and encoded.decode("ascii").isprintable() and b"%" not in encoded:
        return encoded
    parts = [
        bytes([byte]) if 0x20 <= byte <= 0x7E and byte != 0x25 else b"%%%02X" % byte
        for byte in encoded
    ]
    return b"".join(parts)
