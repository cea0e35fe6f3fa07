"""The keys at the top of a long JSON object, wherever they stand; all else is skipped.

Clients write their keys in any order: the model may stand behind any number of messages, or in
front of any number of tools. Of a body that is here as a whole, `read_whole` finds each key; of one
that was cut, `read_cut` finds what stands in the part that is here. What is skipped never becomes
an object, so hostile bodies cost no more than long ones.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import jiter
import msgspec

NO_OBJECT: Final = "is not a JSON object"
NUMBER_END: Final = b"0123456789+-.eE"
SHORT: Final = (
    *("model", "n", "n_cmpl"),
    *("max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict"),
)
"""Keys with short values; a cut body is searched for these alone."""
LONG: Final = (
    *("lora", "tools", "system", "instructions"),
    *("grammar", "json_schema", "response_format"),
)
LISTS: Final = ("prompt", "input", "content", "documents", "texts")
"""Keys whose values may be lists of inputs: of what lies beyond the beginning, only their number
is wanted."""
MAX_SHORT_BYTES: Final = 4096
"""A longer value of a short key says nothing."""
MAX_TRIES: Final = 16
"""The number of places in a cut body to try as the beginning of a key."""
MAX_INPUTS: Final = 1024
"""The highest number of inputs that is counted of a list that is longer than its beginning."""

_NOTHING: Final = msgspec.Raw()
_TOP: Final[Any] = msgspec.json.Decoder(
    msgspec.defstruct("_Top", [(key, msgspec.Raw, _NOTHING) for key in (*SHORT, *LONG, *LISTS)])
)
_INPUTS: Final[Any] = msgspec.json.Decoder(
    msgspec.defstruct(
        "_Inputs",
        [(f"input_{number}", msgspec.Raw, _NOTHING) for number in range(MAX_INPUTS)],
        array_like=True,  # further elements are skipped
    )
)


class TopLevel(NamedTuple):
    """What else was found: what is wrong with the body, None for a JSON object, and how many inputs
    it has, as far as a list of them is longer than its beginning; 1 otherwise."""

    problem: str | None
    inputs: int = 1


def read_whole(
    body: bytes, tree: dict[str, Any], limit_bytes: int, lists: Iterable[str]
) -> TopLevel:
    """Complete `tree`, which was read from the first `limit_bytes` of this body.

    Of two values of one key the last counts, as for llama-server. Of a long value about the first
    `limit_bytes` are read. `lists` are the keys of `LISTS` whose inputs are counted. O(its size):
    80 to 300 us for 220 KB.
    """
    try:
        found = _TOP.decode(body)
    except msgspec.ValidationError:
        return TopLevel(NO_OBJECT)
    except (msgspec.DecodeError, RecursionError) as error:
        return TopLevel(f"is not JSON: {error}")
    cut = next(reversed(tree), None)
    for key in SHORT:
        raw = getattr(found, key)
        if 0 < len(raw) <= MAX_SHORT_BYTES:
            tree[key] = _beginning(bytes(raw))
    for key in LONG:
        if key == cut or key not in tree:
            raw = getattr(found, key)
            if len(raw):
                tree[key] = _beginning(bytes(raw)[: max(limit_bytes, MAX_SHORT_BYTES)])
    for key in lists:
        if key == cut or key not in tree:
            raw = getattr(found, key)
            if len(raw):
                return TopLevel(None, _count(bytes(raw)))
    return TopLevel(None)


def read_cut(body: bytes, tree: dict[str, Any]) -> None:
    """Complete `tree` from a body whose end is not here.

    A key stands at the top exactly if what is in front of it, with one more value and a bracket
    behind it, is a JSON object. O(size of the body) for each of at most `MAX_TRIES` places.
    """
    tries = 0
    for key in SHORT:
        if key in tree:
            continue
        name = f'"{key}"'.encode()
        place = body.find(name)
        while place >= 0 and tries < MAX_TRIES:
            tries += 1
            if _is_at_top(body[:place]):
                end = body[place : place + MAX_SHORT_BYTES].rstrip(NUMBER_END)
                found = _beginning(b"{" + end)
                if isinstance(found, dict) and key in found:
                    tree[key] = found[key]
                break
            place = body.find(name, place + 1)


def _is_at_top(before: bytes) -> bool:
    try:
        _TOP.decode(before + b'"":0}')
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _beginning(value: bytes) -> Any:
    """A value, or as much of it as is here; None for what cannot be read."""
    try:
        return jiter.from_json(value, partial_mode=True, cache_mode="keys")
    except ValueError:
        return None


def _count(value: bytes) -> int:
    """How many inputs a value holds: texts or lists of tokens; tokens, mixed or not, are one."""
    if not value.startswith(b"["):
        return 1
    count = 0
    for raw in msgspec.structs.astuple(_INPUTS.decode(value)):
        if not len(raw):
            break
        if bytes(memoryview(raw)[:1]) in _TOKEN_BEGINS:
            return 1
        count += 1
    return count or 1


_TOKEN_BEGINS: Final = frozenset(b"-0123456789"[i : i + 1] for i in range(11))
