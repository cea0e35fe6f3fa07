"""Routable means: every connected Envoy took it over, or its grace has passed."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from extproc.core.address import Address
from extproc.xds.acknowledgements import NEVER, NO_SHIFT, Acknowledgements, Shift

A, B, C = (Address.of("10.0.0.1", port) for port in (1, 2, 3))


def test_without_an_envoy_everything_is_routable() -> None:
    """Nobody to wait for."""
    acknowledgements = Acknowledgements()
    assert acknowledgements.publish(0, [B, A], now=0.0) == Shift(routable=(A, B))
    assert acknowledgements.next_wakeup() is None


def test_new_endpoint_waits_for_every_envoy() -> None:
    """Two Envoys: the second acknowledgement makes it routable, not the first."""
    acknowledgements = Acknowledgements()
    acknowledgements.connect(1)
    acknowledgements.connect(2)
    assert acknowledgements.publish(0, [A], now=0.0) == Shift(awaited=(A,))
    assert acknowledgements.acknowledge(1, 0) == NO_SHIFT
    assert not acknowledgements.is_routable(A)
    assert acknowledgements.acknowledge(2, 0) == Shift(routable=(A,))
    assert acknowledgements.is_routable(A)


def test_acknowledging_an_older_version_is_not_enough() -> None:
    """B came with version 1; an acknowledgement of version 0 speaks of A only."""
    acknowledgements = Acknowledgements()
    acknowledgements.connect(1)
    acknowledgements.publish(0, [A], now=0.0)
    acknowledgements.publish(1, [A, B], now=0.0)
    assert acknowledgements.acknowledge(1, 0) == Shift(routable=(A,))
    assert acknowledgements.acknowledge(1, 1) == Shift(routable=(B,))


def test_grace_ends_the_wait() -> None:
    """A straggler delays an endpoint by the grace, and no longer."""
    acknowledgements = Acknowledgements(grace_s=1.0)
    acknowledgements.connect(1)
    acknowledgements.publish(0, [A], now=10.0)
    acknowledgements.publish(1, [A, B], now=10.5)
    assert acknowledgements.next_wakeup() == 11.0
    assert acknowledgements.advance(10.99) == NO_SHIFT
    assert acknowledgements.advance(11.0) == Shift(routable=(A,))
    assert acknowledgements.next_wakeup() == 11.5
    assert acknowledgements.advance(99.0) == Shift(routable=(B,))
    assert acknowledgements.next_wakeup() is None


def test_an_endpoint_that_is_behind_tls_now_waits_without_grace() -> None:
    """An Envoy that does not know it yet would speak to it in the clear, however long."""
    acknowledgements = Acknowledgements(grace_s=1.0)
    acknowledgements.connect(1)
    acknowledgements.publish(0, [A], now=0.0)
    acknowledgements.acknowledge(1, 0)
    assert acknowledgements.publish(1, [A, B], now=10.0, secured=[A]) == Shift(awaited=(B, A))
    assert acknowledgements.next_wakeup() == 11.0
    assert acknowledgements.advance(99.0) == Shift(routable=(B,))
    assert acknowledgements.next_wakeup() is None
    assert not acknowledgements.is_routable(A)
    assert acknowledgements.acknowledge(1, 1) == Shift(routable=(A,))


def test_a_leaving_envoy_is_waited_for_no_more() -> None:
    """Its stream ended: what the others know is enough."""
    acknowledgements = Acknowledgements()
    acknowledgements.connect(1)
    acknowledgements.connect(2)
    acknowledgements.publish(0, [A], now=0.0)
    acknowledgements.acknowledge(1, 0)
    assert acknowledgements.disconnect(2) == Shift(routable=(A,))


def test_a_new_envoy_takes_nothing_away() -> None:
    """What is routable stays so; what is awaited waits for the new one too."""
    acknowledgements = Acknowledgements()
    acknowledgements.publish(0, [A], now=0.0)
    acknowledgements.connect(1)
    acknowledgements.publish(1, [A, B], now=0.0)
    acknowledgements.connect(2)
    assert acknowledgements.is_routable(A)
    assert acknowledgements.acknowledge(1, 1) == NO_SHIFT
    assert acknowledgements.acknowledge(2, 1) == Shift(routable=(B,))


def test_an_endpoint_that_returns_waits_again() -> None:
    """The Envoys forgot it with the version that lacked it."""
    acknowledgements = Acknowledgements()
    acknowledgements.connect(1)
    acknowledgements.publish(0, [A], now=0.0)
    acknowledgements.acknowledge(1, 0)
    acknowledgements.publish(1, [], now=0.0)
    assert not acknowledgements.is_routable(A)
    assert acknowledgements.publish(2, [A], now=0.0) == Shift(awaited=(A,))
    assert acknowledgements.acknowledge(1, 1) == NO_SHIFT
    assert acknowledgements.acknowledge(1, 2) == Shift(routable=(A,))


def test_versions_only_grow() -> None:
    """A version told twice, or a stream connected twice, is a bug of the caller."""
    acknowledgements = Acknowledgements()
    acknowledgements.publish(3, [A], now=0.0)
    acknowledgements.connect(1)
    with pytest.raises(ValueError, match="version 3 published after version 3"):
        acknowledgements.publish(3, [A], now=0.0)
    with pytest.raises(ValueError, match="connected already"):
        acknowledgements.connect(1)


def test_after_a_takeover_only_what_envoys_know_is_routable_at_once() -> None:
    """The process before sent A; B is new, and nobody has subscribed yet."""
    acknowledgements = Acknowledgements(grace_s=1.0)
    assert acknowledgements.expect([]) == NO_SHIFT
    assert acknowledgements.publish(0, [A], now=0.0) == Shift(awaited=(A,))
    assert acknowledgements.expect([A, B]) == Shift(routable=(A,))
    assert acknowledgements.publish(1, [A, B, C], now=5.0) == Shift(routable=(B,), awaited=(C,))
    assert acknowledgements.advance(99.0) == NO_SHIFT, "no Envoy could subscribe yet"
    assert acknowledgements.next_wakeup() is None
    acknowledgements.may_subscribe(100.0)
    acknowledgements.connect(1)
    assert acknowledgements.acknowledge(1, 1) == NO_SHIFT, "another Envoy may be on its way"
    assert acknowledgements.next_wakeup() == 101.0
    assert acknowledgements.advance(101.0) == Shift(routable=(C,))
    assert acknowledgements.publish(2, [A], now=102.0) == NO_SHIFT
    assert acknowledgements.publish(3, [A, B], now=102.0) == Shift(awaited=(B,)), "as ever"


def test_after_a_takeover_who_subscribed_is_waited_for_beyond_the_time_of_the_others() -> None:
    """C came late, and the Envoy that has subscribed has not acknowledged it."""
    acknowledgements = Acknowledgements(grace_s=1.0)
    acknowledgements.expect([A])
    acknowledgements.may_subscribe(0.0)
    acknowledgements.connect(1)
    acknowledgements.publish(0, [A, C], now=0.5)
    assert acknowledgements.advance(1.0) == NO_SHIFT
    assert acknowledgements.next_wakeup() == 1.5
    assert acknowledgements.acknowledge(1, 0) == Shift(routable=(C,))


def test_after_a_takeover_what_an_envoy_was_sent_a_fleet_without_is_new() -> None:
    """B's agent came back after an Envoy had subscribed, and that Envoy has dropped B."""
    acknowledgements = Acknowledgements(grace_s=1.0)
    acknowledgements.expect([A, B])
    assert acknowledgements.publish(0, [A], now=0.0) == Shift(routable=(A,))
    acknowledgements.may_subscribe(0.0)
    acknowledgements.connect(1)
    acknowledgements.sent()
    assert acknowledgements.publish(1, [A, B], now=0.5) == Shift(awaited=(B,))
    assert acknowledgements.acknowledge(1, 1) == NO_SHIFT, "another Envoy may be on its way"
    assert acknowledgements.advance(1.0) == Shift(routable=(B,))


class AgainstTheDefinition(RuleBasedStateMachine):
    """Random life of a fleet and its Envoys, held against the definition worked out naively.

    The model keeps each endpoint's waiting as its own list of facts and scrapes all of them
    after every event.
    """

    def __init__(self) -> None:
        super().__init__()
        self.acknowledgements = Acknowledgements(grace_s=1.0)
        self.now = 0.0
        self.version = NEVER
        self.streams: dict[int, int] = {}
        self.streams_seen = 0
        self.since: dict[Address, tuple[int, float]] = {}
        self.routable: set[Address] = set()
        self.told: set[Address] = set()

    def take(self, shift: Shift) -> None:
        self.told = (self.told - set(shift.awaited)) | set(shift.routable)
        for address, (version, published_at) in self.since.items():
            known = all(acknowledged >= version for acknowledged in self.streams.values())
            # Time is looked at only by `advance`, which the model's clock always calls.
            if known or self.now >= published_at + 1.0:
                self.routable.add(address)

    @rule(addresses=st.frozensets(st.sampled_from((A, B, C))))
    def publish(self, addresses: frozenset[Address]) -> None:
        self.version += 1
        self.since = {
            address: self.since.get(address, (self.version, self.now)) for address in addresses
        }
        self.routable &= addresses
        self.told &= addresses
        self.take(self.acknowledgements.publish(self.version, addresses, self.now))

    @rule()
    def connect(self) -> None:
        self.streams_seen += 1
        self.streams[self.streams_seen] = NEVER
        self.acknowledgements.connect(self.streams_seen)

    @precondition(lambda self: self.streams)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        stream = data.draw(st.sampled_from(sorted(self.streams)))
        version = data.draw(st.integers(NEVER, self.version))
        self.streams[stream] = max(self.streams[stream], version)
        self.take(self.acknowledgements.acknowledge(stream, version))

    @precondition(lambda self: self.streams)
    @rule(data=st.data())
    def disconnect(self, data: st.DataObject) -> None:
        stream = data.draw(st.sampled_from(sorted(self.streams)))
        del self.streams[stream]
        self.take(self.acknowledgements.disconnect(stream))

    @rule(passed_s=st.sampled_from((0.0, 0.3, 1.0, 5.0)))
    def wait(self, passed_s: float) -> None:
        self.now += passed_s
        self.take(self.acknowledgements.advance(self.now))

    @invariant()
    def routable_is_what_the_definition_says(self) -> None:
        routable = {address for address in (A, B, C) if self.acknowledgements.is_routable(address)}
        assert routable == self.routable

    @invariant()
    def shifts_tell_the_same(self) -> None:
        assert self.told == self.routable

    @invariant()
    def whoever_waits_is_woken(self) -> None:
        is_waiting = set(self.since) != self.routable
        assert (self.acknowledgements.next_wakeup() is not None) == is_waiting


TestAgainstTheDefinition = AgainstTheDefinition.TestCase
TestAgainstTheDefinition.settings = settings(max_examples=100, deadline=None)
