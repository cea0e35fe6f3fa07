"""The keys at the top of a long JSON object, wherever they stand; all else is skipped.

Clients write their keys in any order: the model may stand behind any number of messages, or in
front of any number of tools. Of a body that is here as a whole, `read_whole` finds each key; of one
that was cut, `read_cut` finds what stands in the part that is here. What is skipped never becomes
an object, so hostile bodies cost no more than long ones.
"""

import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import jiter
import msgspec

from extproc.stream.request.prompt import skim_tools

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
"""The number of places in a cut body to try as the beginning of a key, or as the end of a text."""
ENDING_BYTES: Final = 64
MAX_ESCAPE_BYTES: Final = 5
"""What may belong to an escape behind its backslash."""
_OUTSIDE: Final = b" \t\r\n[]{},:0123456789+-.Etruefalsn"
"""All bytes outside of texts in JSON."""
MAX_BRACKETS: Final = 256
"""The number of closing brackets, on either side of a cut, to try as the end of a list."""
MAX_ENDS: Final = 4
"""The number of them behind which the rest of a body is read."""
MAX_INPUTS: Final = 1024
"""The highest number of inputs that is counted of a list that is longer than its beginning."""

_WS: Final = rb"[ \t\r\n]*"
_BEHIND_A_LIST: Final = re.compile(rb"%b(?:,%b\"|\}%b\Z)" % (_WS, _WS, _WS))
_NEXT_KEY: Final = re.compile(
    rb"%b,%b\"((?:[^\"\\]|\\.)*+)\"%b:%b(.)" % (_WS, _WS, _WS, _WS), re.DOTALL
)
_UNTIL_A_VALUE: Final = re.compile(
    rb"%b(?:,%b(?:\"(?:[^\"\\]|\\.)*+\\?\"?%b:?%b[\w.+-]*)?)?\Z" % (_WS, _WS, _WS, _WS), re.DOTALL
)
"""What may stand between the end of a value at the top and a cut, if no further value has begun:
half of a key, half of a number or name."""

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
    body: bytes,
    tree: dict[str, Any],
    limit_bytes: int,
    lists: Iterable[str],
    *,
    is_in_list: bool = False,
) -> TopLevel:
    """Complete `tree`, which was read from the first `limit_bytes` of this body.

    Of two values of one key the last counts, as for llama-server. Of a long value about the first
    `limit_bytes` are read. `lists` are the keys of `LISTS` whose inputs are counted. `is_in_list`
    says that the last value of `tree` is a list, and that nothing between it and the limit was left
    out as damaged; then faults in the rest of that list are left to the server.
    O(its size): 5 to 15 us for 220 KB of one text or of many messages, up to 250 where all of it
    has to be read.
    """
    cut = next(reversed(tree), None)
    try:
        can_skip = is_in_list and cut not in LONG and cut not in LISTS
        found = read_behind_list(body, tree, limit_bytes) if can_skip else None
        found = found or read_behind(body, tree, limit_bytes) or _TOP.decode(body)
    except msgspec.ValidationError:
        return TopLevel(NO_OBJECT)
    except (msgspec.DecodeError, RecursionError) as error:
        return TopLevel(f"is not JSON: {error}")
    for key in SHORT:
        raw = getattr(found, key)
        if 0 < len(raw) <= MAX_SHORT_BYTES:
            tree[key] = _beginning(bytes(raw))
    for key in LONG:
        if key == cut or key not in tree:
            raw = bytes(getattr(found, key))
            if key == "tools" and len(raw) <= limit_bytes and (text := skim_tools(raw)):
                tree[key] = text
            elif raw:
                tree[key] = _beginning(raw[: max(limit_bytes, MAX_SHORT_BYTES)])
    for key in lists:
        if key == cut or key not in tree:
            raw = getattr(found, key)
            if len(raw):
                return TopLevel(None, _count(bytes(raw)))
    return TopLevel(None)


def read_behind_list(body: bytes, tree: dict[str, Any], limit_bytes: int) -> Any:
    """The keys behind the list at the top in which the beginning of a body ends, without reading
    the rest of that list; None if all must be read.

    A bracket ends that list if what is behind it reads as the rest of an object. That is exact in
    JSON: read from within a text, the rest has its quotes the wrong way round, so that it either
    ends within a text or has a backslash outside of one; and its brackets close as many levels as
    are open. The first such bracket is the end of the list, as long as that is open at the limit.
    """
    if not _is_open(body, tree, limit_bytes):
        return None
    place, ends = limit_bytes - 1, 0
    for _ in range(MAX_BRACKETS):
        place = body.find(b"]", place + 1)
        if place < 0 or ends == MAX_ENDS:
            return None
        if _BEHIND_A_LIST.match(body, place + 1):
            try:
                return _TOP.decode(b'{"":0' + memoryview(body)[place + 1 :])
            except msgspec.DecodeError:
                ends += 1
            except RecursionError:
                return None
    return None


def _is_open(body: bytes, tree: dict[str, Any], limit_bytes: int) -> bool:
    """Whether the last value of `tree`, a list, surely goes on at the limit: no bracket before it
    ends that list.

    Behind its end would stand half of a key, a key with half of a value that `tree` does not have,
    or another key of `tree`: one that is there twice, as a later value leaves a key in its place.
    """
    last = next(reversed(tree))
    place = limit_bytes
    for _ in range(MAX_BRACKETS):
        place = body.rfind(b"]", 0, place)
        if place < 0:
            return True
        if body[place + 1 : place + 2] == b"}":
            continue
        if _UNTIL_A_VALUE.match(body, place + 1, limit_bytes):
            return False
        if key := _NEXT_KEY.match(body, place + 1, limit_bytes):
            name = key[1].decode(errors="replace")
            if "\\" in name or (name in tree and not (name == last and key[2] == b"[")):
                return False
    return False


def read_behind(body: bytes, tree: dict[str, Any], limit_bytes: int) -> Any:
    """The keys behind the text in which the beginning of a body ends, without reading what was read
    or the rest of that text; None if all must be read.

    The beginning ends in a text if no quote is among its last bytes, but letters that stand in no
    number, `true`, `false` or `null`, and the last text of `tree` has them. What is around that
    text is known, too.
    """
    ending = body[max(0, limit_bytes - ENDING_BYTES) : limit_bytes]
    run = max(ending.split(b"\\"), key=len)[MAX_ESCAPE_BYTES:]  # it may begin within an escape
    key = next(reversed(tree), None)
    if key is None or key in LONG or b'"' in ending or not run.strip(_OUTSIDE):
        return None
    last, around = tree[key], b'{"":'
    if key in LISTS and not isinstance(last, str):
        return None
    while last and isinstance(last, dict | list):
        is_list = isinstance(last, list)
        last = last[-1] if is_list else last[next(reversed(last))]
        around += b"[" if is_list else b'{"":'
    if not isinstance(last, str) or run.decode(errors="ignore") not in last[-ENDING_BYTES:]:
        return None
    end = limit_bytes
    for _ in range(MAX_TRIES):
        end = body.find(b'"', end)
        before = body[max(0, end - ENDING_BYTES) : end]
        slashes = len(before) - len(before.rstrip(b"\\"))
        if end < 0 or slashes == ENDING_BYTES:
            return None
        if slashes % 2 == 0:
            try:
                return _TOP.decode(around + b'"' + memoryview(body)[end:])
            except (msgspec.DecodeError, RecursionError):
                return None  # the fault is found where it is
        end += 1
    return None


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
