"""The endpoint discovery service: a thin shell around the two state machines.

Each stream feeds its `Subscription`, and is sent the newest version whenever an answer is due. What
that makes routable is reported to the sink at once.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from extproc.core.address import Address
from extproc.core.fleet.membership import ConnectedEnvoy, Membership
from extproc.core.observation import Issue
from extproc.pb.discovery_pb2 import DiscoveryResponse
from extproc.transport import Call
from extproc.xds.acknowledgements import Acknowledgements, Shift
from extproc.xds.assignment import Assignments
from extproc.xds.capabilities import EnvoyCapabilities, needs, secured
from extproc.xds.gate import Gate
from extproc.xds.stream import CONTROL_PLANE, DiscoveryService, DiscoveryStream, in_short, some_of
from extproc.xds.subscription import (
    ENDPOINT_TYPE,
    Acknowledged,
    Answer,
    Refused,
    Subscription,
)

STREAM_ENDPOINTS: Final = "/envoy.service.endpoint.v3.EndpointDiscoveryService/StreamEndpoints"

log = logging.getLogger("coxswain.xds")


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


class _Stream(DiscoveryStream):
    """`is_counted` while its Envoy wants endpoints."""

    def __init__(self, call: Call, number: int, service: EndpointDiscovery) -> None:
        super().__init__(call, Subscription(), service)
        self.number = number
        self.is_counted = False


class EndpointDiscovery(DiscoveryService[_Stream]):
    """Sends every Envoy the fleet, and reports to the core which endpoints every Envoy knows.

    `membership` gives the present picture of the fleet (the same version, the same picture);
    `set_routable` is called from the event loop, never from inside `membership_changed`;
    `set_issue` hears why an endpoint is withheld from an Envoy, None when it is not.
    `clock` must be the clock of the core. One instance belongs to one event loop.
    """

    def __init__(
        self,
        membership: Callable[[], Membership],
        set_routable: Callable[[Address, bool, float], None],
        options: EndpointDiscoveryOptions | None = None,
        clock: Callable[[], float] = time.monotonic,
        set_issue: Callable[[Address, Issue | None], None] = lambda *_: None,
    ) -> None:
        self._options = options or EndpointDiscoveryOptions()
        super().__init__(STREAM_ENDPOINTS, Gate(self._options.hold_s))
        self._fetch = membership
        self._set_routable = set_routable
        self._clock = clock
        self._numbers = itertools.count(1)
        self._acknowledgements = Acknowledgements(self._options.grace_s)
        self._abilities = EnvoyCapabilities()
        self._set_issue = set_issue
        self._assignments = Assignments()
        self._membership: Membership | None = None
        self._withheld: dict[Address, Issue] = {}
        self._remarked: frozenset[Address] = frozenset()
        """Those with an issue, although they get requests."""
        self._is_refresh_due = False
        self.gate.on_open.append(self._opened)
        self._timer: asyncio.TimerHandle | None = None

    def membership_changed(self) -> None:
        """The fleet changed: read it in the event loop's next turn. Never blocks."""
        if not self._is_refresh_due:
            self._is_refresh_due = True
            asyncio.get_running_loop().call_soon(self._refresh)

    def set_refused(self, profiles: frozenset[str]) -> None:
        """Record that some Envoy rejects the current CAs of these profiles."""
        self._abilities.refused = profiles
        self._withhold()

    def open(self) -> None:
        """The fleet is known, though it may be empty: answer from now on."""
        self.gate.open()

    def expect(self, known: Iterable[Address]) -> None:
        """This process takes the place of another one, which has sent Envoys `known`: what
        they do not know gets no request before they had time to subscribe."""
        known = tuple(known)
        shift = self._acknowledgements.expect(known)
        self._abilities.expect(known)
        self._withhold()
        self._apply(shift)

    def may_subscribe(self) -> None:
        """The Envoys that are expected are heard from now on."""
        self._acknowledgements.may_subscribe(self._clock())
        self._arm()

    def envoys(self) -> tuple[ConnectedEnvoy, ...]:
        """Who is subscribed now."""
        return tuple(
            ConnectedEnvoy(
                node_id=stream.node_id,
                acknowledged_version=self._acknowledgements.acknowledged_by(stream.number),
            )
            for stream in self._streams
            if stream.is_counted
        )

    def close(self) -> None:
        self._cancel(self._timer)
        super().close()

    def new_stream(self, call: Call) -> _Stream:
        return _Stream(call, next(self._numbers), self)

    def heard(self, stream: _Stream, event: Acknowledged | Refused | None) -> None:
        self._count(stream)
        if isinstance(event, Acknowledged) and stream.is_counted:
            self._apply(self._acknowledgements.acknowledge(stream.number, event.version))
        elif isinstance(event, Refused):
            log.error(
                "Envoy %r rejected version %d of the fleet and keeps the previous one: %s",
                stream.node_id,
                event.version,
                in_short(event.error),
            )
        self._answer(stream, self._refresh())

    def _answer(self, stream: _Stream, membership: Membership) -> None:
        """Send the newest version if an answer is due."""
        if not self.gate.is_open or self._is_closed:
            return
        answer = stream.subscription.next_answer(membership.version)
        if answer is not None:
            response = self._response(answer, membership, stream.abilities)
            stream.call.send(response.SerializeToString())
            self._acknowledgements.sent()

    def _response(
        self, answer: Answer, membership: Membership, abilities: frozenset[str]
    ) -> DiscoveryResponse:
        return DiscoveryResponse(
            version_info=str(answer.version),
            nonce=answer.nonce,
            type_url=ENDPOINT_TYPE,
            resources=[
                self._assignments.resource(name, membership, abilities) for name in answer.names
            ],
            control_plane=CONTROL_PLANE,
        )

    def _refresh(self) -> Membership:
        """Take over the fleet's present membership if it is another one than before."""
        self._is_refresh_due = False
        membership = self._fetch()
        if self._membership is None or membership.version != self._membership.version:
            before = self._membership.members if self._membership is not None else ()
            self._membership = membership
            shift = self._acknowledgements.publish(
                membership.version,
                (member.address for member in membership.members),
                self._clock(),
                secured(before, membership.members),
            )
            self._withhold()
            self._apply(shift)
            for stream in list(self._streams):
                self._answer(stream, membership)
        return membership

    def _opened(self) -> None:
        asyncio.get_running_loop().call_soon(self._answer_all)

    def _answer_all(self) -> None:
        membership = self._refresh()
        for stream in list(self._streams):
            self._answer(stream, membership)

    def _count(self, stream: _Stream) -> None:
        """An Envoy that wants no endpoints is not waited for."""
        wants = bool(stream.subscription.names)
        if wants and not stream.is_counted:
            stream.is_counted = True
            self._acknowledgements.connect(stream.number)
            self._abilities.connect(stream.number, stream.abilities)
            self._withhold()
            names = some_of(stream.subscription.names)
            log.info("Envoy %r subscribed to %s", stream.node_id, names)
        elif stream.is_counted and not wants:
            self._discount(stream)

    def _discount(self, stream: _Stream) -> None:
        stream.is_counted = False
        log.info("Envoy %r is no longer subscribed", stream.node_id)
        self._abilities.disconnect(stream.number)
        shift = self._acknowledgements.disconnect(stream.number)
        self._withhold()
        self._apply(shift)

    def forget(self, stream: _Stream) -> None:
        super().forget(stream)
        if stream.is_counted:
            self._discount(stream)

    def _apply(self, shift: Shift) -> None:
        now = self._clock()
        for address in shift.awaited:
            self._set_routable(address, False, now)
        for address in shift.routable:
            self._set_routable(address, address not in self._withheld, now)
        self._arm()

    def _withhold(self) -> None:
        """Keep requests away from servers that some Envoy cannot reach as it should."""
        members = self._membership.members if self._membership is not None else ()
        before, now = self._withheld, self._clock()
        demanding = {
            each.address: self._abilities.obstacle(each) for each in members if needs(each)
        }
        self._withheld = {address: issue for address, issue in demanding.items() if issue}
        found = {each.address: self._abilities.remark(each) for each in members}
        remarks = {address: issue for address, issue in found.items() if issue}
        concerned = demanding.keys() | before.keys() | self._remarked
        self._remarked = frozenset(remarks)
        for address in concerned:
            issue = self._withheld.get(address)
            self._set_issue(address, issue or remarks.get(address))
            is_known = self._acknowledgements.is_routable(address)
            self._set_routable(address, is_known and issue is None, now)
            if issue is not None and issue != before.get(address) and self._streams:
                loop = asyncio.get_running_loop()
                loop.call_later(self._options.log_after_s, self._complain, address, issue)

    def _complain(self, address: Address, issue: Issue) -> None:
        """Log what was not fixed meanwhile, as it is where Envoy takes another cluster over."""
        if self._withheld.get(address) == issue and not self._is_closed:
            log.warning("%s: %s; %s", address, issue.message, issue.remedy)

    def _arm(self) -> None:
        self._cancel(self._timer)
        self._timer = None
        wakeup = self._acknowledgements.next_wakeup()
        if wakeup is not None and not self._is_closed:
            delay_s = max(0.0, wakeup - self._clock())
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._advance)

    @staticmethod
    def _cancel(timer: asyncio.TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()

    def _advance(self) -> None:
        self._timer = None
        self._apply(self._acknowledgements.advance(self._clock()))
