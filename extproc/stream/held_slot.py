"""The slot of one exchange: taken once, given back once, whatever happens in between.

    take ---------------> leased ---give_back----------------> given back
                            |
                            +------finish---> free for others ---give_back---> given back

`finish` releases a slot with the response's headers; what the rest of the response shows is
reported when the exchange ends.
"""

from extproc.core.exchange_record import SeenTokens
from extproc.core.outliers.failure_evidence import Fault
from extproc.core.request import Request
from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.core.slots.lease import Lease, LeaseEnd
from extproc.settings.envoy_section import EnvoySettings
from extproc.stream.upload_pace import UploadPace


class HeldSlot:
    """`lease` is None before `take` and after `finish` and `give_back`, and where it was closed
    elsewhere and must not be released again. `now` is monotonic seconds everywhere."""

    __slots__ = (
        "_dispatcher",
        "_finished",
        "_first_token_at",
        "_opened",
        "_until",
        "_upload",
        "is_failed",
        "lease",
    )

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._opened: Lease | None = None
        self._finished: Lease | None = None
        """The lease that was released with the response's headers."""
        self._first_token_at: float | None = None
        self._until: float | None = None
        self._upload: UploadPace | None = None
        self.lease: Lease | None = None
        self.is_failed = False
        """Whether the server broke its response off."""

    @property
    def is_held(self) -> bool:
        """Whether `give_back` has something to do."""
        return self.lease is not None or self._finished is not None

    @property
    def opened_at(self) -> float | None:
        """When the slot was taken; None if it never was."""
        return None if self._opened is None else self._opened.opened_at

    @property
    def draining(self) -> Lease | None:
        """The lease, if its server may still work after its exchange has ended."""
        lease = self._opened
        return lease if lease is not None and lease.is_draining else None

    @property
    def asked_slots(self) -> int:
        """The slots that its request could use; 1 if it never had one."""
        return 1 if self._opened is None else self._opened.asked_slots

    @property
    def is_cold(self) -> bool:
        """Whether its model had to be loaded first."""
        return self._opened is not None and self._opened.is_cold

    @property
    def seen(self) -> SeenTokens | None:
        """What scrapes showed of its request; None if they showed nothing."""
        return None if self._opened is None else self._opened.seen

    def slot_s(self, now: float) -> float:
        """Slot-seconds until now, or until it was finished."""
        if self._opened is None:
            return 0.0
        until = now if self._until is None else self._until
        return max(0.0, until - self._opened.opened_at) * self._opened.weight_slots

    def take(self, lease: Lease) -> None:
        """Hold this lease."""
        self.lease = self._opened = lease

    def finish(self, now: float) -> None:
        """The server is free already: release the lease, which there must be."""
        lease = self.lease
        assert lease is not None
        self._first_token_at = self._dispatcher.release(
            lease, LeaseEnd.SERVED, now, is_received=False
        )
        self._finished, self.lease, self._until = lease, None, now

    def overflowed(self, now: float) -> None:
        """A stream ended because the context of its server was full: then it is no failure."""
        if self.lease is not None and self._dispatcher.overflowed(self.lease, now):
            self.is_failed = False

    def give_back(self, request: Request | None, end: LeaseEnd, now: float) -> float | None:
        """The exchange has ended: release what is held, as having ended like `end`. Returns the
        time of the first token, None if it is unknown."""
        finished, lease = self._finished, self.lease
        self._finished = self.lease = None
        if finished is not None:
            assert request is not None
            self._dispatcher.conclude(finished, request, now, is_broken=self.is_failed)
            return self._first_token_at
        if lease is None:
            return None
        try:
            if self.is_failed:
                self._dispatcher.failed(lease, Fault.BROKEN_ANSWER, now)
        finally:
            first_token_at = self._dispatcher.release(lease, end, now)
        return first_token_at

    def upload_reported(
        self,
        limits: EnvoySettings,
        request: Request,
        body_bytes: int,
        now: float,
        *,
        is_whole: bool,
        is_cancelled: bool,
    ) -> str | None:
        """Record how much of the body has arrived, and whether that is all. Returns why the upload
        has to end, as text for the client; None if it may continue, or no slot is held.
        """
        lease = self.lease
        if lease is None:
            return None
        if is_whole:
            self._dispatcher.upload_ended(lease)
            return None
        if self._upload is None:
            self._upload = UploadPace(limits, lease.opened_at)
        why = self._upload.reported(
            body_bytes, now, is_wanted=self._dispatcher.view.is_wanted(lease)
        )
        if why is not None and not is_cancelled:
            self._dispatcher.upload_failed(request, self._upload.lag_s, now)
        return why
