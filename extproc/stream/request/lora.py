"""Adapters by name: a client names one, each server has its own number for it.

A client writes `model: "base:adapter"` or sends `x-lora-adapter`. The body that reaches the
server is the client's, byte for byte, with the server's own number behind it: of two values
for one key llama-server takes the last.
"""

import json
from typing import Final

BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
"""May stand in front of JSON in UTF-8; servers skip it."""


def is_object(body: bytes) -> bool:
    """Whether a key can be appended to this JSON object."""
    start = body.removeprefix(BYTE_ORDER_MARK).lstrip()
    return start.startswith(b"{") and start.rstrip().endswith(b"}")


def append_overrides(body: bytes, *, model: str | None, adapter_id: int | None) -> bytes:
    """The JSON object with the model's name and the adapter's number appended.

    Raises `ValueError` if it is not an object.
    """
    if not is_object(body):
        raise ValueError("the body is not a JSON object")
    words = []
    if model is not None:
        words.append(f'"model":{json.dumps(model)}')
    if adapter_id is not None:
        words.append(f'"lora":[{{"id":{adapter_id},"scale":1.0}}]')
    if not words:
        return body
    open_object = body.rstrip()[:-1].rstrip()
    comma = b"" if open_object.endswith(b"{") else b","
    return open_object + comma + ",".join(words).encode() + b"}"
