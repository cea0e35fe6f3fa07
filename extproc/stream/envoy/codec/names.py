"""The names of the call, and the modes on the wire. Headers: `extproc/header_names.py`."""

from typing import Final

PROCESS: Final = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"
FILTER_ATTRIBUTES: Final = "envoy.filters.http.ext_proc"
STREAMED: Final = 1
"""`ProcessingMode.BodySendMode`: each chunk waits in Envoy for its answer."""
FULL_DUPLEX: Final = 4
"""`ProcessingMode.BodySendMode`: chunks flow both ways, and nobody waits for an answer."""
READABLE_MODES: Final = frozenset({0, 2, 3, FULL_DUPLEX})
"""Not streamed chunk by chunk: then the destination would be due before the first chunk, unless
Envoy sends the body without waiting."""
