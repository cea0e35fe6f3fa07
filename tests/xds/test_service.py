"""The discovery service over real loopback gRPC, with fake Envoys."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable

import grpc.aio
import pytest

from extproc.core.address import Address
from extproc.core.fleet.membership import Member, Membership
from extproc.core.observation import Issue
from extproc.header_names import ABILITIES
from extproc.transport import ServiceTable
from extproc.xds import EndpointDiscovery, EndpointDiscoveryOptions
from extproc.xds.capabilities import KEEPS, LACKS_TLS, REFUSED, UNHEARD
from tests.fakes.data_plane import bound_server
from tests.fakes.discovery_client import DiscoveryClient, assignments
from tests.fakes.log import logged

A, B, C = (Address.of("10.0.0.1", port) for port in (1, 2, 3))


SERVICE = "envoy.service.endpoint.v3.EndpointDiscoveryService"


class FakeFleet:
    """A membership that the test sets, and what it was told to be routable."""

    def __init__(self) -> None:
        self.membership = Membership(0, ())
        self.routable: dict[Address, bool] = {}
        self.told: list[tuple[Address, bool]] = []
        """All that it was told of that, in order."""
        self.issues: dict[Address, Issue | None] = {}

    def set_issue(self, address: Address, issue: Issue | None) -> None:
        self.issues[address] = issue

    def set_routable(self, address: Address, is_routable: bool, now: float) -> None:
        self.routable[address] = is_routable
        self.told.append((address, is_routable))

    async def becomes(self, address: Address, is_routable: bool) -> None:
        """Wait until this was told."""
        await eventually(lambda: self.routable.get(address) is is_routable)


async def eventually(is_true: Callable[[], bool]) -> None:
    """Let the loop run until it is so; fails after 10 s."""
    async with asyncio.timeout(10):
        while not is_true():  # noqa: ASYNC110  # the subject has no event to await, on purpose
            await asyncio.sleep(0.001)


class Served:
    """A discovery service on a port of its own."""

    def __init__(self, grace_s: float = 3600, hold_s: float = 3600, log_after_s: float = 5) -> None:
        self.fleet = FakeFleet()
        self.discovery = EndpointDiscovery(
            lambda: self.fleet.membership,
            self.fleet.set_routable,
            EndpointDiscoveryOptions(grace_s=grace_s, hold_s=hold_s, log_after_s=log_after_s),
            set_issue=self.fleet.set_issue,
        )
        table: ServiceTable = {}
        self.discovery.add_to(table)
        self.server, self.port = bound_server(table)

    def set(self, *addresses: Address, draining: tuple[Address, ...] = ()) -> None:
        self.set_members(*(Member(a, is_draining=a in draining) for a in addresses))

    def set_members(self, *members: Member) -> None:
        self.fleet.membership = Membership(self.fleet.membership.version + 1, members)
        self.discovery.membership_changed()

    async def has_envoys(self, count: int) -> None:
        await eventually(lambda: len(self.discovery.envoys()) == count)


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    """Open, and with a grace so long that only acknowledgements count."""
    subject = Served()
    subject.discovery.open()
    await subject.server.start()
    yield subject
    subject.discovery.close()
    await subject.server.stop(0.0)


async def test_fleet_is_reported_and_followed(served: Served) -> None:
    """The first answer is the fleet as it is; a change follows, with the draining one marked."""
    served.set(A)
    async with DiscoveryClient(served.port) as envoy:
        envoy.ask("llama")
        first = await envoy.read_and_acknowledge()
        assert assignments(first) == {"llama": {"10.0.0.1:1": "unknown"}}
        assert first.control_plane.identifier == "coxswain"
        served.set(A, B, draining=(A,))
        second = await envoy.read()
        assert assignments(second) == {"llama": {"10.0.0.1:1": "draining", "10.0.0.1:2": "unknown"}}
        assert int(second.version_info) > int(first.version_info)


async def test_any_name_is_answered_with_the_fleet(served: Served) -> None:
    """Several names in one answer; a name added later is answered without a change."""
    served.set(A)
    async with DiscoveryClient(served.port) as envoy:
        fleet = {"10.0.0.1:1": "unknown"}
        envoy.ask("llama", "pool-b")
        first = await envoy.read()
        assert assignments(first) == {"llama": fleet, "pool-b": fleet}
        envoy.acknowledge(first, "llama", "pool-b", "pool-c")
        assert set(assignments(await envoy.read())) == {"llama", "pool-b", "pool-c"}


async def test_new_endpoint_is_routable_once_all_envoys_know_it(served: Served) -> None:
    """Each stream has its own acknowledged version; the last one decides."""
    async with (
        DiscoveryClient(served.port, "one") as one,
        DiscoveryClient(served.port, "two") as two,
    ):
        for envoy in (one, two):
            envoy.ask("llama")
            await envoy.read_and_acknowledge()
        await served.has_envoys(2)
        served.set(A)
        await one.read_and_acknowledge()
        answer = await two.read()
        assert served.fleet.routable == {A: False}
        assert {envoy.node_id for envoy in served.discovery.envoys()} == {"one", "two"}
        two.acknowledge(answer)
        await served.fleet.becomes(A, True)


async def test_a_server_behind_tls_is_sent_to_envoys_that_speak_it(served: Served) -> None:
    """Not routable before one did, nor while another one does not; it says why."""
    served.set_members(Member(A, tls_profile="tls-a"), Member(B))
    await served.fleet.becomes(B, True)
    assert (served.fleet.routable[A], served.fleet.issues[A]) == (False, UNHEARD)
    async with DiscoveryClient(served.port, metadata=((ABILITIES, "tls-a"),)) as able:
        able.ask("llama")
        told = assignments(await able.read_and_acknowledge())
        assert told == {"llama": {"10.0.0.1:1": "unknown", "10.0.0.1:2": "unknown"}}
        await served.fleet.becomes(A, True)
        assert served.fleet.issues[A] is None
        async with DiscoveryClient(served.port, "old") as unable:
            unable.ask("llama")
            assert assignments(await unable.read()) == {"llama": {"10.0.0.1:2": "unknown"}}
            await served.fleet.becomes(A, False)
            assert served.fleet.issues[A] is LACKS_TLS
        await served.fleet.becomes(A, True)
    await served.has_envoys(0)
    assert served.fleet.routable[A], "an Envoy without a stream still knows how"


async def test_cas_that_envoy_rejects_are_reported_at_the_server(served: Served) -> None:
    """It gets no requests where Envoy knows none for it, and goes on where it kept the old ones."""
    served.set_members(Member(A, tls_profile="tls-a"), Member(B))
    async with DiscoveryClient(served.port, "without") as without:
        without.ask("llama")
        await without.read_and_acknowledge()
        served.discovery.set_refused(frozenset({"tls-a"}))
        await eventually(lambda: served.fleet.issues.get(A) is REFUSED)
        assert not served.fleet.routable[A]
        async with DiscoveryClient(served.port, metadata=((ABILITIES, "tls-a"),)) as able:
            able.ask("llama")
            await able.read_and_acknowledge()
            without.leave()
            await eventually(lambda: served.fleet.issues.get(A) is KEEPS)
            await served.fleet.becomes(A, True)
            served.discovery.set_refused(frozenset())
            assert served.fleet.issues[A] is None and served.fleet.issues.get(B) is None


async def test_an_endpoint_that_becomes_plain_needs_no_cas_any_more(served: Served) -> None:
    served.set_members(Member(A, tls_profile="tls-a"))
    async with DiscoveryClient(served.port, metadata=((ABILITIES, "tls-a"),)) as able:
        able.ask("llama")
        await able.read_and_acknowledge()
        served.discovery.set_refused(frozenset({"tls-a"}))
        assert served.fleet.issues[A] is KEEPS
        served.set(A)
        await eventually(lambda: served.fleet.issues[A] is None)
        assert served.fleet.routable[A]


async def test_an_endpoint_that_becomes_plain_is_withheld_no_more(served: Served) -> None:
    served.set_members(Member(A, tls_profile="tls-a"))
    await eventually(lambda: served.fleet.issues.get(A) is UNHEARD)
    served.set(A)
    await served.fleet.becomes(A, True)
    assert served.fleet.issues[A] is None


async def test_an_endpoint_that_is_behind_tls_now_waits_to_be_known_as_such(
    served: Served,
) -> None:
    """Envoy was told that it is plain: until it takes the news over, nothing goes there."""
    served.set(A)
    async with DiscoveryClient(served.port, metadata=((ABILITIES, "tls-a"),)) as envoy:
        envoy.ask("llama")
        await envoy.read_and_acknowledge()
        await served.fleet.becomes(A, True)
        served.set_members(Member(A, tls_profile="tls-a"))
        news = await envoy.read()
        assert (served.fleet.routable[A], served.fleet.issues[A]) == (False, None)
        envoy.acknowledge(news)
        await served.fleet.becomes(A, True)


async def test_without_an_envoy_all_is_routable(served: Served) -> None:
    served.set(A)
    await served.fleet.becomes(A, True)


async def test_a_process_that_takes_over_waits_for_envoys_to_know_what_is_new() -> None:
    """Envoy knows A from the process before, and subscribes again after a while."""
    subject = Served(grace_s=0.05)
    subject.discovery.open()
    subject.discovery.expect(())
    await subject.server.start()
    subject.set(A, B)
    await eventually(lambda: subject.fleet.told == [(A, False), (B, False)])
    subject.discovery.expect([A])
    assert subject.fleet.routable == {A: True, B: False}
    async with DiscoveryClient(subject.port) as envoy:
        envoy.ask("llama")
        await envoy.read_and_acknowledge()
        assert subject.fleet.routable == {A: True, B: False}, "there may be other Envoys"
        subject.discovery.may_subscribe()
        await subject.fleet.becomes(B, True)
    subject.discovery.close()
    await subject.server.stop(0.0)


async def test_after_a_takeover_a_server_that_comes_back_late_is_awaited() -> None:
    """Its agent reaches the new process after Envoy has: Envoy has dropped it meanwhile."""
    subject = Served(grace_s=0.05)
    subject.discovery.open()
    subject.discovery.expect([A, B])
    await subject.server.start()
    subject.set(A)
    await subject.fleet.becomes(A, True)
    async with DiscoveryClient(subject.port) as envoy:
        envoy.ask("llama")
        await envoy.read_and_acknowledge()
        subject.set(A, B)
        news = await envoy.read()
        assert subject.fleet.routable == {A: True, B: False}
        envoy.acknowledge(news)
        subject.discovery.may_subscribe()
        await subject.fleet.becomes(B, True)
    subject.discovery.close()
    await subject.server.stop(0.0)


async def test_a_process_that_takes_over_uses_servers_with_tls_at_once() -> None:
    """Which TLS the Envoys have, it hears when they subscribe again; queued requests do not wait
    for that. B was not sent to them."""
    subject = Served(grace_s=0.05)
    subject.discovery.open()
    subject.discovery.expect(())
    await subject.server.start()
    subject.set_members(Member(A, tls_profile="tls-a"), Member(B, tls_profile="tls-a"))
    await eventually(lambda: subject.fleet.issues.get(A) is UNHEARD)
    assert subject.fleet.routable == {A: False, B: False}
    subject.discovery.expect([A])
    assert subject.fleet.routable == {A: True, B: False}
    assert subject.fleet.issues == {A: None, B: UNHEARD}
    subject.discovery.may_subscribe()
    async with DiscoveryClient(subject.port, metadata=((ABILITIES, "tls-a"),)) as envoy:
        envoy.ask("llama")
        await envoy.read_and_acknowledge()
        await subject.fleet.becomes(B, True)
    assert subject.fleet.routable[A]
    subject.discovery.close()
    await subject.server.stop(0.0)


async def test_a_lost_envoy_is_waited_for_no_more(served: Served) -> None:
    """It is cancelled while an endpoint waits for it."""
    async with DiscoveryClient(served.port) as envoy:
        envoy.ask("llama")
        await envoy.read_and_acknowledge()
        served.set(A)
        await envoy.read()
        assert served.fleet.routable == {A: False}
    await served.fleet.becomes(A, True)
    await served.has_envoys(0)


async def test_grace_ends_the_wait_for_a_silent_envoy() -> None:
    """A straggler never acknowledges; its endpoint becomes routable all the same."""
    subject = Served(grace_s=0.05)
    subject.discovery.open()
    await subject.server.start()
    async with DiscoveryClient(subject.port) as envoy:
        envoy.ask("llama")
        await envoy.read_and_acknowledge()
        subject.set(A)
        await subject.fleet.becomes(A, True)
        assert subject.fleet.told == [(A, False), (A, True)]
    subject.discovery.close()
    await subject.server.stop(0.0)


async def test_a_slow_envoy_skips_versions(served: Served) -> None:
    """While it has not acknowledged, nothing is sent; then only the newest is."""
    async with DiscoveryClient(served.port) as envoy:
        envoy.ask("llama")
        first = await envoy.read()
        for addresses in ((A,), (A, B), (A, B, C), (B, C)):
            served.set(*addresses)
            await asyncio.sleep(0)
        envoy.acknowledge(first)
        second = await envoy.read_and_acknowledge()
        assert second.version_info == str(served.fleet.membership.version)
        assert set(assignments(second)["llama"]) == {"10.0.0.1:2", "10.0.0.1:3"}


async def test_a_rejection_is_one_log_line_and_no_loop(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    """It names Envoy, version and reason in one line; the next version is sent as ever."""
    caplog.set_level(logging.ERROR, logger="coxswain.xds")
    async with DiscoveryClient(served.port, "edge-7") as envoy:
        envoy.ask("llama")
        answer = await envoy.read()
        envoy.ask("llama", nonce=answer.nonce, error="bad\nassignment")
        served.set(A)
        after = await envoy.read_and_acknowledge()
        assert after.version_info == str(served.fleet.membership.version)
    (record,) = logged(caplog)
    assert record.getMessage() == (
        "Envoy 'edge-7' rejected version 0 of the fleet and keeps the previous one: bad assignment"
    )


async def test_a_wrong_type_is_a_clear_error(served: Served) -> None:
    """The status says what was asked and what is served; the service lives on."""
    async with DiscoveryClient(served.port) as envoy:
        envoy.ask("llama", type_url="type.googleapis.com/envoy.config.cluster.v3.Cluster")
        code, details = await envoy.status()
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert "Cluster' is not served here, only" in details
    async with DiscoveryClient(served.port) as envoy:
        envoy.ask("llama", type_url="")
        assert assignments(await envoy.read()) == {"llama": {}}


async def test_bytes_that_are_no_question_are_rejected_in_one_line(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    """Not by a traceback; and nobody waits for the acknowledgement of who sent them."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{served.port}") as channel:
        method: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(
            f"/{SERVICE}/StreamEndpoints"
        )
        call = method()
        await call.write(b"\xff\xff\xff")
        assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
    (record,) = logged(caplog)
    assert record.getMessage().endswith("not a valid DiscoveryRequest")
    await served.has_envoys(0)


async def test_stale_and_repeated_nonces_change_nothing(served: Served) -> None:
    """Only the acknowledgement of the latest answer makes its endpoint routable."""
    async with DiscoveryClient(served.port) as envoy:
        envoy.ask("llama")
        first = await envoy.read_and_acknowledge()
        served.set(A)
        second = await envoy.read()
        envoy.acknowledge(first)
        envoy.acknowledge(first)
        envoy.ask("llama", nonce="no such")
        served.set(A, B)
        assert served.fleet.routable == {A: False}
        envoy.acknowledge(second)
        await served.fleet.becomes(A, True)
        third = await envoy.read()
        assert served.fleet.routable == {A: True, B: False}
        envoy.acknowledge(third)
        await served.fleet.becomes(B, True)


async def test_an_envoy_that_returns_gets_the_fleet_again(served: Served) -> None:
    """A new stream is answered even if Envoy says that it has this version already."""
    served.set(A)
    async with DiscoveryClient(served.port) as envoy:
        envoy.ask("llama")
        version = (await envoy.read_and_acknowledge()).version_info
    await served.has_envoys(0)
    async with DiscoveryClient(served.port) as envoy:
        envoy.ask("llama", version=version)
        assert assignments(await envoy.read()) == {"llama": {"10.0.0.1:1": "unknown"}}
        await served.has_envoys(1)
        assert served.fleet.routable == {A: True}


async def test_who_wants_nothing_is_not_waited_for(served: Served) -> None:
    """Names that are all dropped, and a stream that never asked."""
    async with DiscoveryClient(served.port) as silent, DiscoveryClient(served.port) as envoy:
        silent.ask()
        envoy.ask("llama")
        answer = await envoy.read()
        await served.has_envoys(1)
        envoy.ask(nonce=answer.nonce)
        await served.has_envoys(0)
        served.set(A)
        await served.fleet.becomes(A, True)


async def test_a_half_closed_stream_ends_well(served: Served) -> None:
    async with DiscoveryClient(served.port) as envoy:
        envoy.ask("llama")
        await envoy.read()
        envoy.leave()
        assert (await envoy.status())[0] is grpc.StatusCode.OK
    await served.has_envoys(0)


async def test_close_ends_every_stream(served: Served) -> None:
    """A server that goes down is not held up by streams that never end by themselves."""
    async with DiscoveryClient(served.port) as envoy:
        envoy.ask("llama")
        await envoy.read()
        served.discovery.close()
        assert (await envoy.status())[0] is grpc.StatusCode.OK


async def test_a_large_fleet_fits_one_message(served: Served) -> None:
    """5,000 endpoints under gRPC's default limit of 4 MiB."""
    served.set(*(Address.of(f"10.1.{n // 250}.{n % 250}", 8080) for n in range(5000)))
    async with DiscoveryClient(served.port) as envoy:
        envoy.ask("llama")
        answer = await envoy.read()
        assert len(assignments(answer)["llama"]) == 5000


async def test_an_unknown_fleet_is_not_reported_as_empty() -> None:
    """A picker that comes back answers when all is known, not with nothing or a part before."""
    subject = Served()
    await subject.server.start()
    async with DiscoveryClient(subject.port) as envoy:
        envoy.ask("llama")
        await subject.has_envoys(1)
        subject.set(A)
        await subject.fleet.becomes(A, False)
        subject.set(A, B)
        subject.discovery.open()
        known = {"10.0.0.1:1": "unknown", "10.0.0.1:2": "unknown"}
        assert assignments(await envoy.read()) == {"llama": known}
        subject.set()
        envoy.acknowledge(envoy.received[-1])
        assert assignments(await envoy.read()) == {"llama": {}}
    subject.discovery.close()
    await subject.server.stop(0.0)


@pytest.mark.parametrize("is_opened", [True, False], ids=["opened", "held"])
async def test_an_empty_fleet_is_reported_when_known_or_held_long(is_opened: bool) -> None:
    """Scale from zero: Envoy must not wait for endpoints that do not exist."""
    subject = Served(hold_s=3600 if is_opened else 0.02)
    await subject.server.start()
    async with DiscoveryClient(subject.port) as envoy:
        envoy.ask("llama")
        if is_opened:
            await subject.has_envoys(1)
            subject.discovery.open()
        assert assignments(await envoy.read()) == {"llama": {}}
    subject.discovery.close()
    await subject.server.stop(0.0)


async def test_the_log_complains_of_what_stays_withheld_and_of_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An Envoy that takes another cluster over lacks what a new server needs for a moment."""
    subject = Served(log_after_s=0.05)
    subject.discovery.open()
    await subject.server.start()
    async with DiscoveryClient(subject.port, "old") as old:
        old.ask("llama")
        await subject.has_envoys(1)
        subject.set_members(Member(A, tls_profile="tls-a"))
        await asyncio.sleep(0)  # no longer than that, or patience might be over
        assert subject.fleet.issues[A] is LACKS_TLS
        subject.set_members(Member(B, tls_profile="tls-b"))
        await eventually(lambda: LACKS_TLS.message in caplog.text)
    subject.discovery.close()
    await subject.server.stop(0.0)
    complaints = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(complaints) == 1 and complaints[0].startswith(str(B))
