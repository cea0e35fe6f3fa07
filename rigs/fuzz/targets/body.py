"""Bodies: whatever the bytes, reading ends in a `RequestBody` that says nothing wrong."""

import json

from extproc.core.prompt_blocks import chain
from extproc.core.request import Kind
from extproc.stream.envoy.codec import RequestHead
from extproc.stream.request.body import MAX_COUNT, MAX_NAME_CHARS, RequestBody
from extproc.stream.request.encoding import EncodingError, decompressed
from extproc.stream.request.lora import append_overrides, is_object
from extproc.stream.request.translate import ReadingOptions

KINDS = tuple(Kind)
LIMITS = (65_536, 64, 1)
FORM = "multipart/form-data; boundary=xyz"
ENCODINGS = ("gzip", "deflate", "zstd")
HEAD = RequestHead(method="POST", path="/completion", id="r", has_body=True, has_json=True)
MOST_BYTES = 100_000
"""The bound of decompressed bodies here."""


def check(data: bytes) -> None:
    """The first byte says how it is read."""
    how = data[0] if data else 0
    raw, kind, is_whole = data[1:], KINDS[how & 1], bool(how & 2)
    reading = ReadingOptions(limit_bytes=LIMITS[(how >> 3) % 3], is_strict=bool(how & 4))
    if how & 32 and how & 64:
        try:
            raw = decompressed(raw, ENCODINGS[(how >> 3) % 3], MOST_BYTES)
        except EncodingError:
            return
        assert len(raw) <= MOST_BYTES
    head = HEAD._replace(form=FORM) if how & 128 else HEAD
    found = reading.read(head, kind, raw, is_whole=is_whole)
    assert 1 <= found.weight_slots <= MAX_COUNT
    assert found.max_tokens is None or found.max_tokens >= 1
    assert found.model is None or 0 < len(found.model) <= MAX_NAME_CHARS
    assert not (found.is_complete and (found.problem is not None or not is_whole))
    assert is_whole or found.unread is not None
    assert found.text.encode("utf-8") is not None, "a text without halves of characters"
    chain((found.model,), found.text)
    if is_whole and found.unread is None and not head.form:
        _names_the_same(found, raw)
    if found.is_complete and is_object(raw):
        _can_be_said_more(raw)


def _names_the_same(found: RequestBody, raw: bytes) -> None:
    """Another reader of JSON reads the same model, whatever was skipped on the way to it."""
    try:
        tree = json.loads(raw)
    except (ValueError, RecursionError):  # it finds more faults than servers do, and less depth
        return
    model = tree.get("model") if isinstance(tree, dict) else None
    named = isinstance(model, str) and 0 < len(model) <= MAX_NAME_CHARS
    assert found.model == (model if named else None)


def _can_be_said_more(raw: bytes) -> None:
    tree = json.loads(append_overrides(raw, model='a "new" one', adapter_id=3))
    assert tree["model"] == 'a "new" one'
    assert tree["lora"] == [{"id": 3, "scale": 1.0}]
    before = json.loads(raw)
    assert tree.keys() == before.keys() | {"model", "lora"}
