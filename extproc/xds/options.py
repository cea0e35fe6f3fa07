"""The time limits of endpoint discovery."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointDiscoveryOptions:
    """All in seconds.

    `grace_s`: how long a new endpoint waits for an Envoy that does not acknowledge it.
    `hold_s`: how long an Envoy waits for a fleet that is not known yet; keep it below Envoy's
    `initial_fetch_timeout`.
    `log_after_s`: after how long a withheld endpoint is logged.
    """

    grace_s: float = 1.0
    hold_s: float = 3.0
    log_after_s: float = 5.0
