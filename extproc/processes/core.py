"""A core: decides for all fronts once it leads, and waits as a spare until then."""

import asyncio
import logging
import signal
import socket
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, cast

from extproc.app import collector
from extproc.app.poller import start_poller
from extproc.app.ports import DataPlaneServer
from extproc.app.service import Service
from extproc.core.address import Address
from extproc.core.fleet.endpoint import Intent
from extproc.core.processes import Processes, Takeover
from extproc.processes.child import Child, Identity
from extproc.processes.control import Message, in_parts
from extproc.processes.fronts.core_calls import PING_S, CoreCalls
from extproc.processes.fronts.lease_grant import LeaseGrant
from extproc.processes.fronts.link import Link
from extproc.processes.fronts.resumption import Resumption
from extproc.processes.members_port import MembersPort
from extproc.processes.memory_feed import FEED_S, KEEP_S, Memory, MemoryFeed
from extproc.processes.memory_follower import MemoryFollower
from extproc.processes.operator_intents import OperatorIntents
from extproc.processes.standby import Page, Standby
from extproc.settings import Settings
from extproc.status.server import PROMETHEUS_TEXT
from extproc.telemetry.prometheus import prometheus_text
from extproc.telemetry.reading import Reading, read_cluster

HELLO_S: Final = 1.0
"""How long a core waits for a front that says nothing: what that one holds is not continued."""
MEMBERS_HELLO_S: Final = 3.0
"""The same in a cluster: a front of another machine may still count the time that it has pledged
to the leader before this one."""
FLEET_S: Final = 2.0
"""How long it waits for endpoints that the core before it used: agents report them again."""
SCRAPE_S: Final = 1.0
"""How long it waits for the servers' own word about their slots."""
POLL_S: Final = 0.005
DRAIN_POLL_S: Final = 0.01
FLEET_INTERVAL_S: Final = 0.5
LEARN_PAUSE_S: Final = 0.2
EPOCH_SHIFT: Final = 44
"""Tickets of a later epoch have higher ids: one lasts for less than 2**44 microseconds, which are
half a year."""

log = logging.getLogger("coxswain.core")


async def run_core(
    settings: Settings, load: Callable[[], Settings], file: str, identity: Identity
) -> int:
    """Wait as a spare, lead when the supervisor says so, and end when it says so. Returns the exit
    code. Raises `ListenError` for a port that cannot be had, and `SettingsError`."""
    return await Core(settings, load, file, identity).run()


class Core:
    """The process. Belongs to one event loop."""

    def __init__(
        self, settings: Settings, load: Callable[[], Settings], file: str, identity: Identity
    ) -> None:
        start_poller()
        self._loop = asyncio.get_running_loop()
        self._settings = settings
        self._calls: CoreCalls | None = None
        self._port = 0
        self._lease_grant = LeaseGrant() if settings.cluster.name else None
        """In a cluster: there is none before the supervisor gives it, whatever else comes first."""
        self._links: list[Link] = []
        self._standby: Standby | None = None
        self._report: Message | None = None
        self._takeover: Takeover | None = None
        self._end: asyncio.Future[int] = self._loop.create_future()
        self._tasks: set[asyncio.Task[None]] = set()
        self._service = Service(
            settings, load, file, data_plane=self._data_plane, processes=self._describe
        )
        self._intents = OperatorIntents(
            self._service.dispatcher, self._service.fleet_sources.added, time.monotonic
        )
        self._service.fleet_sources.on_members = self._members_changed
        self._entries: dict[str, str] = {}
        """What operators asked for, as the engine has it."""
        self._is_successor = False
        """Whether the leader before this one was on another machine."""
        self._is_warm = False
        """Whether fronts knew what the core before this one did."""
        self._memory = Memory()
        self._feed = MemoryFeed(
            self._service.dispatcher,
            self._service.telemetry.metrics.as_plain,
            self._service.client_keys.names,
            self._service.client_keys.ends,
        )
        self._follower = MemoryFollower(settings.cluster, self._memory, self._use_hash_seed)
        self._members_port = MembersPort(settings, self._service, self._calls_now, self._feed)
        self._child = Child(identity, self._hear)
        self._service.settings.on_reloaded = self._report_reload

    async def run(self) -> int:
        self._loop.add_signal_handler(signal.SIGTERM, self._child.report, "leaving")
        self._loop.add_signal_handler(signal.SIGHUP, self._reload)
        self._service.prepare()
        collector.settle()
        self._child.report("started")
        try:
            return await self._end
        finally:
            if self._calls is not None:
                self._calls.close()
            for link in self._links:
                link.close()
            await asyncio.sleep(0)  # uvloop does not end while a link is open

    def _report_reload(self) -> None:
        """A spare with the new settings is to be started; none with rejected ones."""
        self._child.report("reloaded")

    # The supervisor's word

    def _hear(self, message: Message, sockets: list[socket.socket]) -> None:
        match message["do"]:
            case "link":
                self._spawn(self._attach(str(message["front"]), sockets[0]))
            case "feed":
                self._spawn(self._open_feed(str(message["spare"]), sockets[0]))
            case "learn":
                self._spawn(self._learn(sockets[0]))
            case "lead":
                self._port = int(message["port"])
                if "term" in message:
                    self._members_port.term = message["term"]
                    self._permit(message["lease_grant"])
                self._is_successor = bool(message["is_successor"])
                self._spawn(self._lead(set(message["fronts"]), message["since"]))
            case "restore":
                self._hear_entries(message)
            case "processes":
                self._report = message
            case "permit":
                self._permit(message["lease_grant"])
            case "stand_by":
                self._stand_by(message["term"])
            case "silence":
                is_silent = bool(message["is_silent"])
                self._calls_now().silence(str(message["front"]), is_silent=is_silent)
            case "peer":
                self._spawn(self._members_port.greet(sockets[0]))
            case "stop":
                self._spawn(self._stop())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _attach(self, front: str, end: socket.socket) -> None:
        calls = self._calls_now()
        link = Link(calls, self._loop, front, may_send=calls.may_decide)
        calls.attach(link)
        await self._connect(link, end)

    async def _connect(self, link: Link, end: socket.socket) -> None:
        await self._loop.connect_accepted_socket(lambda: cast("asyncio.Protocol", link), end)

    async def _open_feed(self, spare: str, end: socket.socket) -> None:
        link = Link(self._feed, self._loop, spare)
        await self._connect(link, end)
        self._feed.attach(link)
        self._links = [*(each for each in self._links if each.is_open), link]

    async def _learn(self, end: socket.socket) -> None:
        link = Link(self._memory, self._loop)
        await self._connect(link, end)
        self._links = [link]

    def _feed_spares(self) -> None:
        self._loop.call_later(FEED_S, self._feed_spares)
        self._feed.feed()

    def _learn_the_rest(self, until: float) -> None:
        """What of the core before this one is left to learn, between requests."""
        if self._memory.go_on(self._service.dispatcher) and time.monotonic() < until:
            self._loop.call_later(LEARN_PAUSE_S, self._learn_the_rest, until)

    def _calls_now(self) -> CoreCalls:
        if self._calls is None:
            service = self._service
            resumption = Resumption(service.processor, service.dispatcher, time.monotonic)
            self._calls = CoreCalls(service.data_plane_table(), resumption, self._lease_grant)
            self._calls.on_response = service.take_response
            self._calls.on_other_version = self._report_version
            self._calls.progress.on_progress = self._child.progress
            if self._lease_grant is not None:
                self._tick()
        return self._calls

    # The other members of the cluster

    def _stand_by(self, term: dict[str, Any]) -> None:
        if self._standby is None:
            self._standby = Standby(self._settings, self._own_page)
        self._standby.follow(term)
        self._follower.follow(term)

    def _report_version(self, front: str) -> None:
        self._child.report("other_version", front=front)

    def _use_hash_seed(self, seed: int) -> None:
        self._child.report("hash_seed", seed=seed)

    def _own_page(self, path: str) -> Page:
        """What a member that stands by says of itself."""
        cluster = self._describe().cluster
        if path == "/healthz":
            return 200, "text/plain", b"ok\n"
        if path == "/readyz":
            if cluster is None or not cluster.leader:
                return 503, "text/plain", b"no member leads\n"
            heard_at = self._memory.heard_at
            learned = "has not said yet what it learns"
            if heard_at is not None:
                learned = f"said {time.monotonic() - heard_at:.1f} s ago what it learns"
            return 200, "text/plain", f"stands by; {cluster.leader} leads, {learned}\n".encode()
        families = {} if cluster is None else read_cluster(cluster)
        now = time.time_ns()
        reading = Reading(taken_at_ns=now, since_ns=now, families=families)
        return 200, PROMETHEUS_TEXT, prometheus_text(reading)

    def _permit(self, lease_grant: dict[str, Any]) -> None:
        assert self._lease_grant is not None, "only a cluster gives one"
        self._lease_grant.renew(
            lease_grant["until"], lease_grant["followed_until"], frozenset(lease_grant["fronts"])
        )

    def _tick(self) -> None:
        self._loop.call_later(PING_S, self._tick)
        assert self._calls is not None
        self._calls.tick()

    def _data_plane(self, *_: object) -> tuple[DataPlaneServer, int]:
        """The fronts listen, and the table was made for their links before."""
        assert self._calls is not None
        return CoreServer(self._calls), self._port

    # Leading

    async def _lead(self, fronts: set[str], since: float | None) -> None:
        try:
            await self._take_over(fronts, since)
        except Exception as error:  # noqa: BLE001 - it ends this process
            if not self._end.done():
                self._end.set_exception(error)

    async def _take_over(self, fronts: set[str], since: float | None) -> None:
        began = time.monotonic() if since is None else since
        calls, service = self._calls_now(), self._service
        dispatcher = service.dispatcher
        if self._standby is not None:
            await self._standby.stop()
            self._standby = None
        await self._follower.stop()
        epoch = int(self._members_port.term.get("epoch", 0))
        dispatcher.hold(epoch << EPOCH_SHIFT, time.monotonic())
        if since is not None:
            service.discovery.expect(())
        await service.start(self._memory.key_names, self._memory.key_ends)
        hello_s = HELLO_S if self._lease_grant is None else MEMBERS_HELLO_S
        await self._until(lambda: fronts <= calls.greeted(), hello_s)
        leased, fleet = calls.held_addresses()
        self._is_warm = bool(fleet)
        for _, _, added in fleet.values():
            await self._intents.add(added)
        if since is not None:
            service.discovery.expect(map(Address.parse, fleet))
        wanted = {Address.parse(each) for each in leased | fleet.keys()}
        await self._until(lambda: all(each in dispatcher.fleet for each in wanted), FLEET_S)
        for address, intent, _ in fleet.values():
            self._intents.set(Address.parse(address), Intent(intent))
        await self._intents.restore(self._entries, is_warm=self._is_warm)
        self._memory.relearn(dispatcher, service.telemetry.metrics.restore)
        self._learn_the_rest(began + KEEP_S)
        adopted = calls.adopt()
        if fleet:
            adopted_at = time.monotonic()
            service.fleet_sources.scrape_all()
            await self._until(lambda: self._is_observed_since(adopted_at), SCRAPE_S)
        service.discovery.may_subscribe()
        placed = calls.open(is_successor=self._is_successor)
        if self._lease_grant is not None:
            self._report_intents(is_all=True)
        self._publish_fleet()
        self._feed_spares()
        took_s = time.monotonic() - began
        if since is not None:
            self._takeover = Takeover(
                seconds=round(took_s, 3),
                running=adopted,
                queued=placed,
                fronts=len(calls.greeted()),
            )
            log.warning(
                "took over within %.2f s: fronts %d, running requests %d, queued requests %d",
                *(took_s, len(calls.greeted()), adopted, placed),
            )
            who = "another machine" if self._is_successor else "the core before it"
            service.events.add(
                "took-over",
                f"this core leads now, after {who}: within {took_s:.2f} s it took over "
                f"{adopted} running and {placed} queued requests",
            )
        self._child.report("leads", seconds=took_s)

    def _hear_entries(self, message: Message) -> None:
        """What the engine has of operators' intents; it may come late."""
        if message["begins"]:
            self._entries = {}
        self._entries.update(message["entries"])
        if message["ends"] and self._calls is not None and self._calls.is_open:
            self._spawn(self._restore_late())

    async def _restore_late(self) -> None:
        await self._intents.restore(self._entries, is_warm=self._is_warm)
        self._report_intents(is_all=True)

    def _report_intents(self, *, is_all: bool = False) -> None:
        """Let the engine keep what operators asked for."""
        changes = self._intents.changes(is_all=is_all)
        if changes or is_all:
            for begins, ends, part in in_parts(changes):
                self._child.report("intents", entries=part, begins=begins and is_all, ends=ends)

    def _is_observed_since(self, moment: float) -> bool:
        dispatcher = self._service.dispatcher
        return all(
            dispatcher.view.slots_at(endpoint.address).known_at >= moment
            for endpoint in dispatcher.fleet
            if not endpoint.is_removed
        )

    async def _until(self, is_so: Callable[[], bool], timeout_s: float) -> None:
        end = time.monotonic() + timeout_s
        while not is_so() and time.monotonic() < end:  # noqa: ASYNC110 - the servers' word
            await asyncio.sleep(POLL_S)

    def _publish_fleet(self) -> None:
        """Let the fronts keep what the next core must know of the fleet."""
        self._loop.call_later(FLEET_INTERVAL_S, self._publish_fleet)
        assert self._calls is not None
        self._calls.publish_fleet(tuple(self._intents.fleet()))
        if self._lease_grant is not None:
            self._report_intents()

    def _members_changed(self) -> None:
        """Endpoints came or went: what is gone, Envoy is about to forget."""
        self._intents.members_changed()
        if self._calls is not None and self._calls.is_open:
            self._calls.publish_fleet(tuple(self._intents.fleet()))

    def _describe(self) -> Processes:
        return Processes.reported(self._report or {}, self._takeover)

    # The end

    async def _stop(self) -> None:
        await self._follower.stop()
        if self._standby is not None:
            await self._standby.leave()
        if self._calls is not None and self._calls.is_open:
            await self._service.stop()
        self._finish(0)

    def _finish(self, code: int) -> None:
        if not self._end.done():
            self._end.set_result(code)

    def _reload(self) -> None:
        self._spawn(self._service.settings.follow(log))


class CoreServer:
    """Its data plane's server: the fronts listen, and their links bring the calls."""

    def __init__(self, calls: CoreCalls) -> None:
        self._calls = calls

    async def start(self) -> None:
        """Links are attached as they come."""

    async def stop(self, grace_s: float) -> None:
        """Let calls end within `grace_s`, then end them."""
        end = asyncio.get_running_loop().time() + grace_s
        while len(self._calls) and asyncio.get_running_loop().time() < end:  # noqa: ASYNC110
            await asyncio.sleep(DRAIN_POLL_S)
        self._calls.end_calls()
