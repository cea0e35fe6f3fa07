"""How many requests the queue takes, and how much of their bodies."""

from dataclasses import dataclass
from typing import Final

from extproc.core.bounds import lacks_place
from extproc.core.queue.request_queue import RequestQueue
from extproc.core.request import Request, ResolvedRequest

SHORT_BODY_BYTES: Final = 65_536
"""A body of at most this length is queued even if the queue's bytes are used up: many such bodies
take little memory, and a few long bodies must not cause the rejection of all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimits:
    """The most requests, where there are pools in each of them, and the most body bytes of all."""

    max_requests: int = 1024
    max_body_bytes: int = 1024 * 1024 * 1024

    @property
    def has_queue(self) -> bool:
        """Whether any request may be queued."""
        return self.max_requests > 0

    def has_place(self, queue: RequestQueue, request: Request, resolved: ResolvedRequest) -> bool:
        """Whether neither the queue nor that of one of its bounds has too many requests."""
        has_place = queue.count_for(request.pool) < self.max_requests
        return has_place and not lacks_place(resolved.bounds)

    def lacks_bytes(self, queue: RequestQueue, request: Request) -> int:
        """How many body bytes others would have to release so that this one can be queued."""
        if request.body_bytes <= SHORT_BODY_BYTES:
            return 0
        return max(0, queue.body_bytes + request.body_bytes - self.max_body_bytes)

    def is_full(self, queue: RequestQueue, request: Request, resolved: ResolvedRequest) -> bool:
        """Whether this request can be queued only if another leaves."""
        has_place = self.has_place(queue, request, resolved)
        return not has_place or self.lacks_bytes(queue, request) > 0
