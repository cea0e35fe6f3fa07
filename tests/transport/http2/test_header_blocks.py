"""Claims about extproc/transport/http2/header_blocks.py and request_headers.py."""

from __future__ import annotations

import pytest
from hpack import Encoder
from hypothesis import given
from hypothesis import strategies as st

from extproc.transport.http2.frames import ProtocolViolationError
from extproc.transport.http2.header_blocks import HeaderBlocks
from extproc.transport.http2.request_headers import read_fields

NAMES = st.sampled_from(
    [b":path", b"x-one", b"x-two", b"traceparent", b"content-type", b"te", b"accept"]
)
VALUES = st.one_of(
    st.sampled_from([b"", b"/", b"application/grpc", b"gzip, deflate", b"x" * 200]),
    st.binary(max_size=300),
)
FIELDS = st.lists(st.tuples(NAMES, VALUES), min_size=1, max_size=8)
MAX_BYTES = 256 * 1024


@given(st.lists(st.tuples(FIELDS, st.booleans()), max_size=10), st.sampled_from([0, 64, 4096]))
def test_what_an_encoder_writes_is_read(
    blocks: list[tuple[list[tuple[bytes, bytes]], bool]], table_bytes: int
) -> None:
    """With and without Huffman's code and the dynamic table; what is kept changes no other."""
    encoder, reader = Encoder(), HeaderBlocks(MAX_BYTES)
    encoder.header_table_size = table_bytes
    for fields, is_huffman in blocks * 2:
        block = encoder.encode(fields, huffman=is_huffman)
        assert reader.read(block).fields == fields


@given(st.lists(st.binary(max_size=200), max_size=5))
def test_any_bytes_are_read_or_rejected(blocks: list[bytes]) -> None:
    """Nothing else is raised: an exception would cost the connection without a word."""
    reader = HeaderBlocks(4_096)
    for block in blocks:
        try:
            reader.read(block)
        except ProtocolViolationError:
            return


def test_headers_that_are_seen_again_are_one_object() -> None:
    """Whatever is derived from them is derived once."""
    encoder, reader = Encoder(), HeaderBlocks(MAX_BYTES)
    encoder.header_table_size = 0
    fields = [(b":method", b"POST"), (b"x-one", b"two")]
    first = reader.read(encoder.encode(fields))  # with the table's size
    second = encoder.encode(fields)
    assert reader.read(second) is reader.read(second)
    assert first.fields == fields


def test_one_field_that_differs_does_not_decode_the_others() -> None:
    """As a `traceparent` does, which is another one in each block."""
    encoder, reader = Encoder(), HeaderBlocks(MAX_BYTES)
    encoder.header_table_size = 0
    decoded: list[bytes] = []
    decode = reader._decode

    def count(part: bytes) -> list[tuple[bytes, bytes]]:
        decoded.append(part)
        return decode(part)

    reader._decode = count  # type: ignore[method-assign]
    for number in range(20):
        fields = [(b":path", b"/a/B"), (b"traceparent", b"00-%032d-1-01" % number)]
        assert reader.read(encoder.encode(fields)).fields == fields
    assert len(decoded) == 1 + 1 + 20, "the table's size, the path, and each parent"


def test_decoded_fields_are_bounded() -> None:
    """A block of few bytes may stand for many (an HPACK bomb)."""
    reader = HeaderBlocks(10_000)
    encoder = Encoder()
    reader.read(encoder.encode([(b"x-bomb", b"x" * 3_000)]))
    indexed = encoder.encode([(b"x-bomb", b"x" * 3_000)])
    assert len(indexed) == 1
    with pytest.raises(ProtocolViolationError, match="too large"):
        reader.read(indexed * 10)


def test_kept_fields_are_bounded() -> None:
    encoder, reader = Encoder(), HeaderBlocks(MAX_BYTES)
    encoder.header_table_size = 0
    for number in range(5_000):
        reader.read(encoder.encode([(b"x-n", b"%d" % number)]))
    assert len(reader._fields) <= 512 and len(reader._blocks) <= 64


@pytest.mark.parametrize(
    "fields",
    [
        [(b":method", b"POST"), (b":scheme", b"http")],
        [(b":method", b"POST"), (b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/")],
        [(b"x", b"y"), (b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/")],
        [(b":status", b"200"), (b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/")],
        [(b"X-Upper", b"y")],
        [(b"connection", b"close")],
        [(b"te", b"gzip")],
        [(b"content-length", b"-1")],
        [(b"content-length", b"9" * 40)],
        [(b"x", b"a\r\nb")],
    ],
)
def test_malformed_fields(fields: list[tuple[bytes, bytes]]) -> None:
    assert read_fields(fields).fault
