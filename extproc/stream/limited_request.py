"""One request as the limits of its client count it, from its arrival to its end."""

from extproc.core.client_limits import ClientLimits, Draining, Exceeded
from extproc.stream.envoy import codec


class LimitedRequest:
    """What counts is kept in the limits alone: to end it twice, or in the middle, is no error."""

    __slots__ = ("_client", "_id", "_limits", "_reserved_tokens")

    def __init__(
        self, limits: ClientLimits, client: str, exchange_id: str, reserved_tokens: int = 0
    ) -> None:
        """Of its client's budgets it reserves these tokens."""
        self._limits = limits
        self._client = client
        self._id = exchange_id
        self._reserved_tokens = reserved_tokens

    def begin(self, now: float) -> Exceeded | None:
        """Count it; returns why it must be rejected instead."""
        return self._limits.begin(self._client, self._id, now, self._reserved_tokens)

    def adopt(self, now: float) -> None:
        """Count it, as another process did when it began."""
        self._limits.adopt(self._client, self._id, now, self._reserved_tokens)

    def queue_full(self, now: float) -> Exceeded | None:
        """Why it must not be queued, None if it may be."""
        return self._limits.queue_full(self._client, now)

    def enqueue(self) -> None:
        """Count it as queued."""
        self._limits.enqueue(self._client, self._id)

    def dequeue(self) -> None:
        """Its wait is over, if it has waited."""
        self._limits.dequeue(self._client, self._id)

    def end(self, draining: Draining | None = None, uncounted_at: float | None = None) -> None:
        """It has ended, or never begun; its server may still work on a `draining` one. If it had a
        slot until `uncounted_at`, its tokens are still to be counted."""
        self._limits.end(self._client, self._id, draining, uncounted_at)

    def headers(self, now: float) -> dict[str, str]:
        """What its client has left, as headers of the response."""
        standing = self._limits.standing(self._client, now)
        return {} if standing is None else codec.rate_limit_headers(standing)
