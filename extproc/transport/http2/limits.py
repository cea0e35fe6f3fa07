"""What one peer may make the server keep or do."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of one connection. `streams` are open at once; `header_bytes` bounds a header block,
    compressed and decoded, and `table_bytes` HPACK's dynamic table; `continuations` are frames of
    one block. `stream_window_bytes` may come before the application has read anything of a stream,
    `connection_window_bytes` at once on all of them. `frame_bytes` bounds one frame.

    `resets` counts streams that the peer resets before it has half-closed them, `chores` frames
    that ask for an answer or carry nothing: pings, settings, priorities, empty frames, frames of
    closed streams. Both are rates: the number at once, and the number that is added each second.
    """

    streams: int = 16_384
    header_bytes: int = 256 * 1024
    table_bytes: int = 0
    continuations: int = 64
    frame_bytes: int = 1 << 20
    stream_window_bytes: int = 256 * 1024
    connection_window_bytes: int = 16 << 20
    resets: int = 32_768
    resets_per_s: float = 5_000.0
    chores: int = 10_000
    chores_per_s: float = 1_000.0


class RateLimit:
    """A token bucket: `burst` at once, refilled with `per_s` a second."""

    def __init__(self, burst: int, per_s: float, now: float) -> None:
        self._burst = float(burst)
        self._per_s = per_s
        self._tokens = float(burst)
        self._filled_at = now

    def allows(self, now: float) -> bool:
        """Take a token; False when there is none."""
        if self._tokens < 1.0:
            refill = max(0.0, now - self._filled_at) * self._per_s
            self._tokens = min(self._burst, self._tokens + refill)
            self._filled_at = now
            if self._tokens < 1.0:
                return False
        self._tokens -= 1.0
        return True
