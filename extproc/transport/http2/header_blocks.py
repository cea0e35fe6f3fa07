"""Reads header blocks: `hpack` decodes the fields, and what repeats is decoded once.

Envoy opens each stream with nearly the same header block. A field that refers to HPACK's static
table alone means the same in every block (RFC 7541, section 3.2), so its bytes are a key in a
dictionary, and so are the bytes of a whole block of such fields. The server's settings give the
peer a dynamic table of no size, so all blocks after the first are of that kind; fields that use
the table all the same are decoded each time.

The decoder is given one field at a time: it copies the rest of a block for each literal, which
would take quadratic time for a block of many fields.
"""

from typing import Final

from hpack import Decoder, HPACKError

from extproc.transport.http2.frames import (
    COMPRESSION_ERROR,
    ENHANCE_YOUR_CALM,
    ProtocolViolationError,
)
from extproc.transport.http2.request_headers import RequestHeaders, read_fields

BLOCKS_KEPT: Final = 64
FIELDS_KEPT: Final = 512
CACHED_BYTES: Final = 4_096
"""Longer blocks and fields are not kept."""
STATIC_TABLE: Final = 61
"""The last index of the static table (RFC 7541, appendix A)."""
DEFAULT_TABLE_BYTES: Final = 4_096
"""The dynamic table's size before any setting (RFC 9113, section 6.5.2)."""
FIELD_OVERHEAD: Final = 32
"""Added to the size of each field when sizes are compared (RFC 9113, section 6.5.2)."""

Field = tuple[bytes, bytes]


class HeaderBlocks:
    """The header blocks of one connection, in the order in which they came."""

    def __init__(self, max_bytes: int, table_bytes: int = 0) -> None:
        """`max_bytes` bounds the decoded fields of one block, `table_bytes` the dynamic table once
        the peer has acknowledged the settings."""
        self._table_bytes = table_bytes
        self._max_bytes = max_bytes
        self._max_table_bytes = DEFAULT_TABLE_BYTES
        self._decoder = Decoder(max_header_list_size=max_bytes)
        self._is_tableless = False
        self._blocks: dict[bytes, RequestHeaders] = {}
        self._fields: dict[bytes, Field] = {}

    def read(self, block: bytes) -> RequestHeaders:
        """The headers of one block. Raises `ProtocolViolationError` if it cannot be decoded: then
        no later block can be either."""
        found = self._blocks.get(block)
        if found is not None:
            return found
        fields: list[Field] = []
        is_static = True
        at, size, end = 0, 0, len(block)
        while at < end:
            first = block[at]
            until = _field_end(block, at)
            if first & 0xE0 == 0x20:
                self._check_table_size(block, at, is_first=not fields)
            part = block[at:until]
            field = self._fields.get(part)
            if field is None:
                decoded = self._decode(part)
                if _is_static(part, self._is_tableless):
                    self._keep(part, decoded[0])
                else:
                    is_static = False
                if decoded:
                    field = decoded[0]
            if field is not None:
                size += len(field[0]) + len(field[1]) + FIELD_OVERHEAD
                if size > self._max_bytes:
                    raise ProtocolViolationError(ENHANCE_YOUR_CALM, "too large headers")
                fields.append(field)
            at = until
        headers = read_fields(fields)
        if is_static and end <= CACHED_BYTES:
            if len(self._blocks) >= BLOCKS_KEPT:
                self._blocks.clear()
            self._blocks[block] = headers
        return headers

    def settings_acknowledged(self) -> None:
        """From now on the peer may not ask for a larger dynamic table than the settings allow. The
        one that it has stays: it is not larger than the default."""
        self._max_table_bytes = self._table_bytes

    def _check_table_size(self, block: bytes, at: int, *, is_first: bool) -> None:
        if not is_first:
            raise ProtocolViolationError(COMPRESSION_ERROR, "a table size within a block")
        size = _integer(block, at, 0x1F)
        if size > self._max_table_bytes:
            raise ProtocolViolationError(COMPRESSION_ERROR, "a table size beyond the setting")
        if self._is_tableless and size:  # what was kept may not hold any more
            self._fields.clear()
            self._blocks.clear()
        self._is_tableless = size == 0

    def _decode(self, part: bytes) -> list[Field]:
        """The field of one representation, or none for a change of the table's size."""
        try:
            decoded = self._decoder.decode(part, raw=True)
        except (HPACKError, IndexError, ValueError) as error:
            raise ProtocolViolationError(COMPRESSION_ERROR, f"invalid headers: {error}") from None
        return [(bytes(name), bytes(value)) for name, value in decoded]

    def _keep(self, part: bytes, field: Field) -> None:
        if len(part) > CACHED_BYTES:
            return
        if len(self._fields) >= FIELDS_KEPT:
            self._fields.clear()
        self._fields[part] = field


def _is_static(part: bytes, is_tableless: bool) -> bool:
    """Whether these bytes mean the same in every block, and change no table. Where the dynamic
    table has no size, nothing is added to it (RFC 7541, section 4.4)."""
    first = part[0]
    if first & 0x80:
        return _integer(part, 0, 0x7F) <= STATIC_TABLE
    if first & 0xE0 == 0x20 or (first & 0x40 and not is_tableless):
        return False
    return _integer(part, 0, 0x3F if first & 0x40 else 0x0F) <= STATIC_TABLE


def _field_end(block: bytes, at: int) -> int:
    """Where the representation that begins at `at` ends (RFC 7541, section 6)."""
    first = block[at]
    if first & 0x80:
        return _skip_integer(block, at, 0x7F)
    if first & 0xE0 == 0x20:
        return _skip_integer(block, at, 0x1F)
    mask = 0x3F if first & 0x40 else 0x0F
    after = _skip_integer(block, at, mask)
    if not first & mask:
        after = _skip_string(block, after)
    return _skip_string(block, after)


def _skip_integer(block: bytes, at: int, mask: int) -> int:
    if block[at] & mask != mask:
        return at + 1
    at += 1
    limit = min(len(block), at + 5)
    while at < limit:
        if not block[at] & 0x80:
            return at + 1
        at += 1
    raise ProtocolViolationError(COMPRESSION_ERROR, "an incomplete or too large number")


def _skip_string(block: bytes, at: int) -> int:
    if at >= len(block):
        raise ProtocolViolationError(COMPRESSION_ERROR, "an incomplete field")
    end = _skip_integer(block, at, 0x7F) + _integer(block, at, 0x7F)
    if end > len(block):
        raise ProtocolViolationError(COMPRESSION_ERROR, "an incomplete field")
    return end


def _integer(block: bytes, at: int, mask: int) -> int:
    """The integer with a prefix of `mask` that begins at `at` (section 5.1)."""
    value = block[at] & mask
    if value == mask:
        for place in range(at + 1, _skip_integer(block, at, mask)):
            value += (block[place] & 0x7F) << (7 * (place - at - 1))
    return value
