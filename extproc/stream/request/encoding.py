"""Decompresses bodies, whose length after that is bounded: a few bytes may stand for gigabytes."""

import sys
import zlib
from typing import Any, Final

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ENCODINGS: Final = frozenset({"gzip", "x-gzip", "deflate", "zstd"})
MAX_LAYERS: Final = 3
"""A body may be compressed more than once."""
MAX_MEMBERS: Final = 64
"""A body may consist of several parts: compressors that use several processors write such."""
_WINDOW: Final[dict[int, int]] = {zstd.DecompressionParameter.window_log_max: 23}
"""Memory for zstd: 8 MiB, with which each decoder should do by RFC 9659."""


class EncodingError(ValueError):
    """The body is not what its `content-encoding` says; `str(error)` is for the client."""


def is_supported(encoding: str) -> bool:
    """Whether each of the encodings in this header can be read."""
    layers = _layers(encoding)
    return 0 < len(layers) <= MAX_LAYERS and ENCODINGS.issuperset(layers)


def decompressed(body: bytes, encoding: str, limit_bytes: int) -> bytes:
    """The body without its encodings, the last of which is outermost.

    Raises `EncodingError` if it is damaged, cut, or longer than `limit_bytes`. O(`limit_bytes`)
    in time and memory, whatever it claims to be.
    """
    for layer in reversed(_layers(encoding)):
        body = _decompressed(body, layer, limit_bytes)
    return body


def _layers(encoding: str) -> list[str]:
    return [name for part in encoding.split(",") if (name := part.strip()) not in ("", "identity")]


def _decompressed(body: bytes, encoding: str, limit_bytes: int) -> bytes:
    found: list[bytes] = []
    size = 0
    for _ in range(MAX_MEMBERS):
        decompressor = _decompressor(body, encoding)
        try:
            part = decompressor.decompress(body, limit_bytes + 1 - size)
        except (zlib.error, zstd.ZstdError) as error:
            raise EncodingError(
                f"The body is not {encoding}, as its content-encoding says, or is damaged."
            ) from error
        found.append(part)
        size += len(part)
        if size > limit_bytes:
            raise EncodingError(f"The decompressed body is longer than {limit_bytes} bytes.")
        if not decompressor.eof:
            raise EncodingError(f"The body ends before its {encoding} data does.")
        body = decompressor.unused_data
        if not body:
            return b"".join(found)
    raise EncodingError(f"The body has more than {MAX_MEMBERS} parts of {encoding} data.")


def _decompressor(body: bytes, encoding: str) -> Any:
    if encoding == "zstd":
        return zstd.ZstdDecompressor(options=_WINDOW)
    if encoding != "deflate":
        return zlib.decompressobj(zlib.MAX_WBITS | 16)
    # Some clients leave out the two bytes of zlib's header, whose check this is.
    is_zlib = len(body) > 1 and body[0] & 15 == 8 and (body[0] << 8 | body[1]) % 31 == 0
    return zlib.decompressobj(zlib.MAX_WBITS if is_zlib else -zlib.MAX_WBITS)
