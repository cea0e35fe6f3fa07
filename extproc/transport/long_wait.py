"""Whether an Envoy waits for a reply as long as a request may be queued.

Most Envoys wait for a second, and are asked for more where a request is queued. Such a word is an
answer: a stream that has had one cannot be opened again at another front. So a configuration whose
message timeout is long enough says so in a header of its streams, and is asked for nothing.
"""

from typing import Final

from extproc.transport.call import Metadata

LONG_WAIT: Final = "x-coxswain-patience"
LONG: Final = "long"


def waits_long(metadata: Metadata) -> bool:
    """Whether the client of a call with these headers need not be asked to wait."""
    return (LONG_WAIT, LONG) in metadata
