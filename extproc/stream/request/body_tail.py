"""Reads the last keys of a long body, of which otherwise only the beginning is read.

Many clients write the model behind the messages, so that a long prompt hides it. A key stands at
the top if, behind a `{`, all from it on is one JSON object: any deeper and closing brackets are
left over, and in a text its quotes would be escaped. So the end of a body can be read exactly
without what stands before it.
"""

import re
from itertools import islice
from typing import Any, Final

import jiter

TAIL_BYTES: Final = 4096
"""The number of bytes to read at the end."""
MAX_TRIES: Final = 16
"""The number of positions to try as the beginning of a key, the last first."""
KEYS: Final = frozenset(
    {
        *("model", "n", "n_cmpl", "lora"),
        *("max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict"),
    }
)
"""What is wanted of the end. No prompt: a text without its beginning says nothing about caches."""
_KEY: Final = re.compile(rb'"(?:%s)"\s*:' % b"|".join(key.encode() for key in sorted(KEYS)))


def read_tail(body: bytes) -> dict[str, Any]:
    """The wanted keys at the end of a whole body.

    O(`TAIL_BYTES`), whatever the size of the body, and of whatever bytes it is made.
    """
    tail = body[-TAIL_BYTES:]
    found: dict[str, Any] = {}
    places = [match.start() for match in _KEY.finditer(tail)]
    for start in islice(reversed(places), MAX_TRIES):
        try:
            tree = jiter.from_json(b"{" + tail[start:], cache_mode="keys")
        except ValueError:
            continue
        found = tree
    return {key: value for key, value in found.items() if key in KEYS}
