"""The rest of a request's body, while a slot is held for it: does it come, and fast enough?

    idle   nothing came for the idle timeout: the client has stopped, also if no request is queued
    lag    how far the client is behind a sender of the least rate; it grows only while another
           request waits for the slot, and what comes faster than that pays for no later pause

So an upload keeps a slot from others for the time that the least rate takes, and the grace.
"""

from typing import Final

from extproc.settings.envoy_section import REPORTS_PER_GRACE, EnvoySettings

LAG_SHARE: Final = 1 - 1.5 / REPORTS_PER_GRACE
"""An upload ends at the first report at which it lags by more than this share of the grace: a
report comes up to one interval late, and the server's slot is free a moment later."""


class UploadPace:
    """Fed with Envoy's reports about one request. Pure; `now` is monotonic seconds."""

    __slots__ = ("_body_bytes", "_limits", "_moved_at", "_reported_at", "lag_s")

    def __init__(self, limits: EnvoySettings, now: float) -> None:
        """`limits` are its `request_body_*`; `now` is the time at which the slot was assigned."""
        self._limits = limits
        self._reported_at = now
        self._moved_at = now
        self._body_bytes: int | None = None
        self.lag_s = 0.0
        """How long other requests have waited because of it."""

    def reported(self, body_bytes: int, now: float, *, is_wanted: bool) -> str | None:
        """Learn how much has come in all; `is_wanted` says that a request waits for the slot.
        Returns why the upload has to end, in words for its client, or None."""
        limits = self._limits
        before, elapsed_s = self._body_bytes, now - self._reported_at
        self._body_bytes, self._reported_at = body_bytes, now
        # The bytes in the first report may have arrived before the slot was assigned.
        new_bytes = 0 if before is None else body_bytes - before
        if new_bytes or before is None:
            self._moved_at = now
        idle_s, min_rate = (
            limits.request_body_idle_timeout_s,
            limits.request_body_min_rate_bytes_per_s,
        )
        if idle_s and now - self._moved_at >= idle_s:
            return STOPPED
        if not min_rate:
            return None
        lag_s = self.lag_s - new_bytes / min_rate
        self.lag_s = max(0.0, lag_s + elapsed_s if is_wanted else lag_s)
        if self.lag_s <= limits.request_body_grace_s * LAG_SHARE:
            return None
        return TOO_SLOW % min_rate


STOPPED: Final = "The rest of the request did not arrive."
TOO_SLOW: Final = (
    "The rest of the request arrived at less than %d bytes per second while other "
    "requests waited for its slot."
)
