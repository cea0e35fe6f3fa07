"""Whether the picker can pick an endpoint, and if not, why, as text."""

from typing import Final

from extproc.core.scheduler.dispatcher import Dispatcher

MAX_NAMED: Final = 10
"""More endpoints than this are counted, not named one by one."""


def why_not_ready(dispatcher: Dispatcher) -> tuple[str, ...]:
    """The obstacles, none when at least one endpoint can take requests or its machine be woken, or
    a keeper can load a model. Without side effects."""
    endpoints = list(dispatcher.fleet)
    if any(endpoint.is_pickable or endpoint.is_waited_for for endpoint in endpoints):
        return ()
    if dispatcher.resolver.names.loadable or dispatcher.view.can_wake_keepers:
        return ()  # a request is what lets a keeper load its model, or wakes its machine
    if not endpoints:
        return ("there are no endpoints",)
    reasons = ["no endpoint can get requests"]
    for endpoint in endpoints[:MAX_NAMED]:
        if endpoint.is_removed:
            what = "is removed"
        elif not endpoint.is_serving:
            what = f"is {endpoint.health.value}"
        elif not endpoint.is_routable:
            what = "is not published to Envoy yet"
        else:
            what = f"is {endpoint.intent.value}"
        issues = "".join(f"; {issue.message}" for issue in endpoint.issues)
        reasons.append(f"{endpoint.address} {what}{issues}")
    if len(endpoints) > MAX_NAMED:
        reasons.append(f"and {len(endpoints) - MAX_NAMED} more")
    return tuple(reasons)


class Readiness:
    """The service sets `is_serving`: false before it serves and once it stops."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self.is_serving = False

    def obstacles(self) -> tuple[str, ...]:
        """Why the picker is not ready, as text; empty if it is."""
        if not self.is_serving:
            return ("the picker is starting or stopping",)
        return why_not_ready(self._dispatcher)
