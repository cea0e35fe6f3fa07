"""Reads the fields of a form (`multipart/form-data`), such as the model of a transcription.

Files are skipped, whether they stand before or behind the fields.
"""

from email.message import Message
from email.parser import BytesHeaderParser
from typing import Final

from extproc.stream.request.body import CUT, MAX_NAME_CHARS, MAX_TOKENS, TOO_LONG_NAME, RequestBody
from extproc.stream.request.shared_text import shared_text

MAX_PARTS: Final = 64
MAX_HEAD_BYTES: Final = 4096
MAX_VALUE_BYTES: Final = 4096
"""A longer value says nothing to us."""
NO_FORM: Final = "is not a form"


def read_form(body: bytes, content_type: str, *, is_whole: bool) -> RequestBody:
    """Read what is here of a form; nothing raises. O(its size), at the speed of a search."""
    boundary = _boundary(content_type)
    if boundary is None:
        return RequestBody(problem=NO_FORM, unread=NO_FORM)
    fields, has_end = _fields(body, b"--" + boundary)
    model = fields.get("model", "")
    unread = None
    if not has_end:
        unread = NO_FORM if is_whole else CUT
    elif len(model) > MAX_NAME_CHARS:
        unread = TOO_LONG_NAME
    bound = fields.get("max_tokens", "")
    is_count = bound.isascii() and bound.isdigit()
    return RequestBody(
        model=shared_text(model) if 0 < len(model) <= MAX_NAME_CHARS else None,
        max_tokens=min(int(bound), MAX_TOKENS) or None if is_count else None,
        problem=NO_FORM if is_whole and not has_end else None,
        unread=unread,
    )


def _boundary(content_type: str) -> bytes | None:
    header = Message()
    header["content-type"] = content_type
    boundary = header.get_boundary()
    return boundary.encode() if boundary else None


def _fields(body: bytes, delimiter: bytes) -> tuple[dict[str, str], bool]:
    """The fields that are here as a whole, and whether the end of the form is."""
    found: dict[str, str] = {}
    start = 0 if body.startswith(delimiter) else body.find(b"\r\n" + delimiter) + 2
    for _ in range(MAX_PARTS):
        if body[start : start + len(delimiter)] != delimiter:
            break
        start += len(delimiter)
        if body[start : start + 2] == b"--":
            return found, True
        head_end = body.find(b"\r\n\r\n", start, start + MAX_HEAD_BYTES)
        end = body.find(b"\r\n" + delimiter, head_end + 2) if head_end >= 0 else -1
        if end < 0:
            break
        name = _field_name(body[start:head_end])
        if name:
            value = body[head_end + 4 : min(end, head_end + 4 + MAX_VALUE_BYTES)]
            found[name] = value.decode(errors="replace")
        start = end + 2
    return found, False


def _field_name(head: bytes) -> str:
    """The name of a part's field; empty for a file."""
    header = BytesHeaderParser().parsebytes(head.lstrip() + b"\r\n\r\n")
    if header.get_filename() is not None:
        return ""
    name = header.get_param("name", header="content-disposition")
    return name if isinstance(name, str) else ""
