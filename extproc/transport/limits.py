"""What one client of the data plane's port may make the picker keep or do."""

from dataclasses import dataclass, field
from typing import Final

from extproc.transport.http2.limits import Limits

MESSAGE_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportLimits:
    """Bounds of one connection: `message_bytes` of one message, `held_bytes` of all messages
    together that are incomplete or wait for their handler. `connections` may be open at once.

    A connection is pinged after `ping_after_s` of silence, and cut if it stays silent for
    `ping_timeout_s` more: the leases of an Envoy that vanished must end some time.
    """

    message_bytes: int = MESSAGE_BYTES
    held_bytes: int = 256 << 20
    connections: int = 1_000
    ping_after_s: float = 20.0
    ping_timeout_s: float = 10.0
    http2: Limits = field(default_factory=Limits)
