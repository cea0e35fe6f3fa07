"""The header fields of a request or its trailers, checked by the rules of RFC 9113, section 8."""

from collections.abc import Iterable
from typing import Final

CONNECTION_FIELDS: Final = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"}
)
"""Fields of HTTP/1.1 connections, which no HTTP/2 message may have (section 8.2.2)."""
PSEUDO: Final = frozenset({b":authority", b":method", b":path", b":scheme"})
UNKNOWN_LENGTH: Final = -1


class RequestHeaders:
    """`fault` says why the fields are malformed, and is empty if they are not. Trailers have no
    pseudo-header fields. One object may belong to many streams."""

    __slots__ = ("content_length", "fault", "fields", "is_trailers", "metadata", "method", "path")

    def __init__(self, fields: list[tuple[bytes, bytes]]) -> None:
        self.fields = fields
        self.metadata: list[tuple[str, str | bytes]] | None = None
        """What gRPC makes of them, kept here because headers are seen again."""
        self.method = b""
        self.path = b""
        self.content_length = UNKNOWN_LENGTH
        self.is_trailers = False
        self.fault = ""

    def get(self, name: bytes) -> bytes:
        """The first value of that name, empty if there is none."""
        for key, value in self.fields:
            if key == name:
                return value
        return b""


def read_fields(fields: Iterable[tuple[bytes, bytes]]) -> RequestHeaders:
    """Check the fields of one block."""
    headers = RequestHeaders(list(fields))
    pseudo: dict[bytes, bytes] = {}
    is_regular = False
    for name, value in headers.fields:
        if name.startswith(b":"):
            if is_regular or name in pseudo or name not in PSEUDO:
                headers.fault = "a pseudo-header field that is unknown, repeated or late"
                return headers
            pseudo[name] = value
            continue
        is_regular = True
        headers.fault = _fault(name, value)
        if headers.fault:
            return headers
        if name == b"content-length":
            headers.content_length = int(value)
    headers.is_trailers = not pseudo
    headers.method = pseudo.get(b":method", b"")
    headers.path = pseudo.get(b":path", b"")
    if pseudo and not (headers.method and headers.path and b":scheme" in pseudo):
        headers.fault = "a missing pseudo-header field"
    return headers


def _fault(name: bytes, value: bytes) -> str:
    if not name or name != name.lower():
        return "a field name in upper case"
    if name in CONNECTION_FIELDS:
        return "a field of HTTP/1.1"
    if name == b"te" and value != b"trailers":
        return "a TE field other than trailers"
    if name == b"content-length" and not (value.isdigit() and len(value) < 19):
        return "an invalid content-length"
    if b"\0" in value or b"\r" in value or b"\n" in value:
        return "a field value with a line break"
    return ""
