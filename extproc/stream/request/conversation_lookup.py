"""The ids of conversations that clients send, and the lookup of several of them.

llama-server answers `POST /v1/streams/lookup` with the conversations that it has of those that the
body names. A server gets only ids of the client that asks.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from extproc.core.conversations import MAX_ID_CHARS
from extproc.core.slots.lease import Lease, LeaseState
from extproc.header_names import CONVERSATION

MAX_LOOKUP_BYTES: Final = 65_536
BAD_ID: Final = f"{CONVERSATION} must be UTF-8 with at most {MAX_ID_CHARS} characters."
BAD_LOOKUP: Final = (
    'The body must be JSON with "conversation_ids": a list of texts, '
    f"and not longer than {MAX_LOOKUP_BYTES} bytes."
)
_NOT_UTF_8: Final = "\ufffd"


_LOOKUP: Final[Any] = msgspec.json.Decoder(
    msgspec.defstruct("_Lookup", [("conversation_ids", list[str], [])])
)


def is_conversation_id(id_: str) -> bool:
    """Whether a conversation may have this id, or there is none."""
    return len(id_) <= MAX_ID_CHARS and _NOT_UTF_8 not in id_


def read_lookup(body: bytes) -> list[str] | None:
    """The ids that are looked up; None if it says none that can be read."""
    if len(body) > MAX_LOOKUP_BYTES:
        return None
    try:
        ids: list[str] = _LOOKUP.decode(body).conversation_ids
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return ids


def lookup_of(ids: Iterable[str]) -> bytes:
    """The body that looks up these."""
    return msgspec.json.encode({"conversation_ids": list(ids)})


def lookup_result(found: Mapping[str, Lease]) -> bytes:
    """What is known of these conversations without their servers."""
    return msgspec.json.encode(
        [
            {"conversation_id": id_, "is_done": lease.state is LeaseState.CLOSED}
            for id_, lease in found.items()
        ]
    )
