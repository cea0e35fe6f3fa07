"""Claims about extproc/stream/request/encoding.py: exact, and bounded whatever the bytes claim."""

from __future__ import annotations

import gzip
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.stream.request.encoding import (
    MAX_MEMBERS,
    EncodingError,
    decompressed,
    is_supported,
)

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

BODY = b'{"model":"beta","prompt":"' + b"row the boat " * 5000 + b'"}'
LIMIT = len(BODY)


def raw_deflate(body: bytes) -> bytes:
    return zlib.compress(body, wbits=-15)


ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstd.compress,
}


@pytest.mark.parametrize("encoding", ENCODERS)
def test_each_encoding(encoding: str) -> None:
    compress = ENCODERS[encoding]
    assert is_supported(encoding)
    assert decompressed(compress(BODY), encoding, LIMIT) == BODY
    assert decompressed(compress(b""), encoding, LIMIT) == b""
    with pytest.raises(EncodingError, match=f"longer than {LIMIT - 1} bytes"):
        decompressed(compress(BODY), encoding, LIMIT - 1)


def test_deflate_without_a_header() -> None:
    """As some clients have always sent it."""
    assert decompressed(raw_deflate(BODY), "deflate", LIMIT) == BODY


def test_several_encodings_and_several_members() -> None:
    """Envoy's own filter reads the first member alone."""
    assert decompressed(gzip.compress(zstd.compress(BODY)), "zstd, gzip", LIMIT) == BODY
    for compress in (gzip.compress, zstd.compress):
        parts = compress(BODY[:9000]) + compress(b"") + compress(BODY[9000:])
        encoding = "gzip" if compress is gzip.compress else "zstd"
        assert decompressed(parts, encoding, LIMIT) == BODY


@pytest.mark.parametrize("encoding", ["br", "compress", "gzip, br", "gzip, gzip, gzip, gzip", ","])
def test_what_is_not_supported(encoding: str) -> None:
    assert not is_supported(encoding)


@pytest.mark.parametrize("encoding", ENCODERS)
def test_damage_is_found(encoding: str) -> None:
    """Where Envoy's own filter passes on what came before it, or nothing."""
    whole = ENCODERS[encoding](BODY)
    for damaged in (b"", BODY, whole[:-9], whole[:9], whole + b"row", whole[:20] + b"\0" * 40):
        with pytest.raises(EncodingError):
            decompressed(damaged, encoding, LIMIT)


@pytest.mark.parametrize("encoding", ENCODERS)
def test_a_bomb_takes_no_more_memory_than_its_bound(encoding: str) -> None:
    bomb = ENCODERS[encoding](bytes(200_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(EncodingError, match="longer than"):
            decompressed(bomb, encoding, 1_000_000)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


def test_many_empty_members_are_not_worked_through() -> None:
    with pytest.raises(EncodingError, match="more than 64 parts"):
        decompressed(gzip.compress(b"") * (MAX_MEMBERS + 1), "gzip", LIMIT)


def test_a_window_of_gigabytes_is_not_allocated() -> None:
    options: dict[int, int] = {zstd.CompressionParameter.window_log: 27}
    with pytest.raises(EncodingError):
        decompressed(zstd.compress(bytes(200_000_000), options=options), "zstd", 10**9)


@given(st.binary(max_size=200), st.sampled_from(sorted(ENCODERS)))
def test_any_bytes(noise: bytes, encoding: str) -> None:
    for body in (noise, ENCODERS[encoding](b"row")[:12] + noise):
        with suppress(EncodingError):
            assert len(decompressed(body, encoding, 1000)) <= 1000
