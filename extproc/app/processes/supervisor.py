"""Starts a core, a spare core and fronts, and replaces what dies.

    spare --the core is gone--> leads; another spare is started
    front --gone--> another one is started; Envoys connect again, and reach any front

It accepts Envoys' connections and gives each to the front with the fewest, so that none is lost
with a front that has not accepted it. It serves nothing itself. A process that gives no sign of
life is killed before it is replaced: two cores never decide at the same time.

In a cluster a core leads only while this machine does (`cluster_part.py`). Otherwise the fronts
follow the core of another machine.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from extproc.app.ports import listening_sockets
from extproc.app.processes.cluster_part import ClusterPart
from extproc.app.processes.control import in_parts
from extproc.app.processes.member import Member, Role
from extproc.app.security.cluster_access import make_engine
from extproc.app.service_manager import ServiceManager
from extproc.core.processes import TakeoverReason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from extproc.app.processes.control import Message
    from extproc.settings import Settings

CHECK_S: Final = 0.25
HUNG_S: Final = 2.0
"""A process that is silent for so long is killed; eight signs of life are due in this time."""
START_S: Final = 60.0
"""The same for one that starts."""
PAUSED_S: Final = 0.75
"""If a check comes so much too late, it was this process that stood still."""
RESTART_MIN_S: Final = 0.5
RESTART_MAX_S: Final = 10.0
FREE_RESTARTS: Final = 3
"""The number in a row that is started again at once."""
PUBLISH_S: Final = 0.5
STEADY_S: Final = 10.0
"""A process that ends sooner than this is started again with a delay."""
RELINK_S: Final = 0.05
STOP_MARGIN_S: Final = 5.0
MAX_HASH_SEED: Final = 2**32 - 1
OWN_VARIABLES: Final = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
"""What systemd sets for the supervisor is not for its processes."""

log = logging.getLogger("coxswain.processes")


def front_count(settings: Settings) -> int:
    """The number of fronts; 0 for one process that does everything."""
    if settings.fronts == "auto":
        return max(1, (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2) - 1)
    return settings.fronts


async def supervise(settings: Settings, command: Sequence[str]) -> int:
    """Serve until SIGTERM or SIGINT, then stop all processes; a second signal kills them.

    `command` starts a process of ours; its role follows. Returns the exit code: that of the first
    core, if it could not begin to serve. Raises `ListenError`.
    """
    listeners, port = listening_sockets(settings.listen.grpc, "listen.grpc")
    cluster = settings.cluster
    peers: list[socket.socket] = []
    try:
        if cluster.name:
            setting = "cluster.listen" if cluster.listen else "cluster.advertise"
            address = cluster.listen or cluster.advertise
            peers, _ = listening_sockets(str(address), setting)
        supervisor = Supervisor(settings, command, listeners, port, peers)
        return await supervisor.run()
    finally:
        for each in (*listeners, *peers):
            each.close()


class Supervisor:
    """Belongs to one event loop."""

    def __init__(
        self,
        settings: Settings,
        command: Sequence[str],
        listeners: list[socket.socket],
        port: int,
        peers: Sequence[socket.socket] = (),
    ) -> None:
        """`peers` listen for the other members of the cluster."""
        self._peers = peers
        self._settings = settings
        self._command = [*command, str(os.getpid())]
        self._listeners = listeners
        self._port = port
        self._fronts_wanted = front_count(settings)
        self._members: dict[str, Member] = {}
        self._core: Member | None = None
        self._has_led = False
        self._lost_at: float | None = None
        self._serials = {Role.CORE: 0, Role.FRONT: 0}
        self._links = 0
        self._takeovers = dict.fromkeys(TakeoverReason, 0)
        self._restarts = {Role.CORE: 0, Role.FRONT: 0}
        self._short_lives = {Role.CORE: 0, Role.FRONT: 0}
        self._starting: set[asyncio.Task[None]] = set()
        self._is_accepting = False
        self._is_stopping = False
        self._is_ending = False
        """Whether the fronts of a member that stops need no leader any more."""
        self._exit_code = 0
        self._over = asyncio.Event()
        self._signalled = asyncio.Event()
        self._manager = ServiceManager(os.environ)
        self._checked_at = self._published_at = time.monotonic()
        self._was_followed = False
        self._term: tuple[object, object] = (None, None)
        self._cluster: ClusterPart | None = None
        if settings.cluster.name:
            self._cluster = ClusterPart(
                settings.cluster,
                make_engine(settings.cluster),
                can_lead=self._can_lead,
                follows=self._follows,
                fronts=self._front_names,
                changed=self._cluster_changed,
            )
        self._environment = {
            # Of the hashes of prompts, which a core hands on to its spare.
            "PYTHONHASHSEED": str(1 + secrets.randbelow(MAX_HASH_SEED)),
            **{key: value for key, value in os.environ.items() if key not in OWN_VARIABLES},
        }

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        self._reconcile()
        loop.call_later(CHECK_S, self._check)
        if self._cluster is not None:
            for each in self._peers:
                loop.add_reader(each.fileno(), self._take_peer, each)
            self._cluster.start()
        signalled = asyncio.create_task(self._signalled.wait())
        over = asyncio.create_task(self._over.wait())
        await asyncio.wait({signalled, over}, return_when=asyncio.FIRST_COMPLETED)
        await self._stop()
        signalled.cancel()
        over.cancel()
        return self._exit_code

    # Members

    def _fronts(self) -> list[Member]:
        return [
            each
            for each in self._members.values()
            if each.role is Role.FRONT and not each.is_leaving
        ]

    def _spares(self) -> list[Member]:
        return [
            each
            for each in self._members.values()
            if each.role is Role.CORE and each is not self._core and not each.is_leaving
        ]

    def _reconcile(self) -> None:
        """Start and promote what is missing."""
        if self._is_stopping or self._over.is_set():
            return
        may_lead = self._cluster is None or self._cluster.is_leading
        if self._core is None and may_lead:
            spare = next((each for each in self._spares() if each.has_started), None)
            if spare is not None:
                self._promote(spare)
        starting = [task.get_name() for task in self._starting]
        cores = len(self._spares()) + starting.count(Role.CORE.value)
        self._start(Role.CORE, 1 + (self._core is None and may_lead) - cores)
        fronts = len(self._fronts()) + starting.count(Role.FRONT.value)
        self._start(Role.FRONT, self._fronts_wanted - fronts)
        self._publish()

    def _start(self, role: Role, count: int) -> None:
        for _ in range(count):
            self._serials[role] += 1
            name = f"{role.value}-{self._serials[role]}"
            task = asyncio.create_task(
                self._start_one(role, name, _delay_s(self._short_lives[role])), name=role.value
            )
            self._starting.add(task)
            task.add_done_callback(self._started_one)

    def _started_one(self, task: asyncio.Task[None]) -> None:
        self._starting.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a process could not be started: %s", error)
            asyncio.get_running_loop().call_later(RESTART_MAX_S, self._reconcile)
        else:
            self._reconcile()

    async def _start_one(self, role: Role, name: str, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        if self._is_stopping:
            return
        member = await Member.start(
            role, name, self._command, self._environment, self._heard, self._ended
        )
        if role is Role.FRONT:
            member.number = self._free_number()
        self._members[name] = member
        log.info("%s started as process %d", name, member.pid)

    def _free_number(self) -> int:
        """The lowest that no front has."""
        used = {each.number for each in self._members.values()}
        return next(number for number in range(1, len(used) + 2) if number not in used)

    def _promote(self, spare: Member) -> None:
        self._core = spare
        fronts = [each for each in self._fronts() if each.has_started]
        for front in fronts:
            self._link(front)
        names = [front.name for front in fronts]
        more: dict[str, object] = {}
        if self._cluster is not None:
            names = [self._cluster.qualified(name) for name in names]
            permission = self._cluster.permission()
            names += [front for each in self._cluster.others() for front in each.fronts]
            more = {"term": self._cluster.term(), "permission": permission}
            self._restore(spare, self._cluster)
        spare.order("lead", fronts=names, port=self._port, since=self._lost_at, **more)
        if self._lost_at is not None:
            log.warning("%s takes over", spare.name)

    def _restore(self, core: Member, cluster: ClusterPart) -> None:
        """Give a core what operators asked for, if the engine has said it."""
        if cluster.intents.is_loaded:
            for begins, ends, part in in_parts(cluster.intents.entries()):
                core.order("restore", entries=part, begins=begins, ends=ends)

    def _link(self, front: Member) -> None:
        """Connect a front with the core that leads."""
        core, cluster = self._core, self._cluster
        term: dict[str, object] = {}
        name = front.name
        if cluster is not None:
            term = cluster.term()
            name = cluster.qualified(name)
            if not cluster.is_leading:
                if cluster.leader() is not None:
                    self._links += 1
                    front.link = self._links
                    front.order("follow", number=front.link, term=term)
                return
        if core is None:
            return
        self._links += 1
        front.link = self._links
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        core.order("link", ours, front=name)
        front.order("link", theirs, number=front.link, term=term)

    def _feed(self, spare: Member) -> None:
        """Let the core send a spare what it learns."""
        core = self._core
        if core is None or spare is core or not spare.has_started:
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        core.order("feed", ours, spare=spare.name)
        spare.order("learn", theirs)

    # What they say

    def _heard(self, member: Member, message: Message) -> None:
        member.alive_at = time.monotonic()
        match message["is"]:
            case "alive":
                member.connections = int(message.get("connections", 0))
                member.calls = int(message.get("calls", 0))
                member.follows_until = float(message.get("follows_until", 0.0))
            case "started":
                member.has_started = True
                if member.role is Role.FRONT:
                    self._link(member)
                elif self._core is not None and self._core.is_ready:
                    self._feed(member)
                self._reconcile()
            case "leads":
                member.is_ready = True
                for spare in self._spares():
                    self._feed(spare)
                self._led()
            case "opened":
                if not member.is_ready:
                    member.is_ready = True
                    self._led()
                    if self._has_led:
                        self._accept(True)
            case "unlinked":
                number = message["number"]
                asyncio.get_running_loop().call_later(RELINK_S, self._relink, member, number)
            case "leaving":
                self._replace(member)
            case "intents":
                if self._cluster is not None and member is self._core:
                    begins, ends = message["begins"], message["ends"]
                    self._cluster.intents.said(message["entries"], begins=begins, ends=ends)
            case "reloaded":
                for spare in self._spares():
                    self._replace(spare)
        self._publish_soon(message["is"])

    def _led(self) -> None:
        """A core leads, or a front is ready: report to systemd the first time that all are."""
        is_member = self._cluster is not None and not self._cluster.is_leading
        if not is_member and (self._core is None or not self._core.is_ready):
            return
        is_complete = sum(each.is_ready for each in self._fronts()) >= self._fronts_wanted
        if is_complete and not self._has_led:
            self._has_led = True
            text = (
                f"serving Envoy on {self._settings.listen.grpc} with {self._fronts_wanted} fronts"
            )
            log.info(text)
            self._accept(True)  # not before: the first front would get every connection
            self._manager.ready(text)

    def _relink(self, front: Member, number: int) -> None:
        """A front lost its core; if the core lives, it is connected again."""
        is_current = self._members.get(front.name) is front and front.link == number
        may_link = not self._is_stopping if self._cluster is None else not self._is_ending
        if is_current and may_link:
            self._link(front)

    def _replace(self, member: Member) -> None:
        """A process got SIGTERM: what it holds is handed over first."""
        if self._is_stopping or member.is_leaving:
            return
        if member is self._core:
            log.info("%s leaves: its spare takes over when it is ready", member.name)
            if not any(spare.has_started for spare in self._spares()):
                asyncio.get_running_loop().call_later(CHECK_S, self._replace, member)
                return
            _end_core(member)
        elif member.role is Role.CORE:
            member.is_leaving = True
            member.order("stop")
        else:
            member.is_leaving = True
            member.order("leave")
        self._reconcile()

    def _ended(self, member: Member) -> None:
        self._members.pop(member.name, None)
        code = member.process.returncode
        lived_s = time.monotonic() - member.since
        role = member.role
        self._short_lives[role] = self._short_lives[role] + 1 if lived_s < STEADY_S else 0
        if member is self._core:
            self._core = None
            if not self._has_led and not member.is_ready:
                self._exit_code = 1 if code is None or code < 0 else code or 1
                self._over.set()
                return
            if not self._is_stopping:
                self._lost_at = time.monotonic()
                if self._cluster is None or self._cluster.is_leading:
                    self._takeovers[member.takeover_reason()] += 1
        if self._is_stopping or member.is_leaving:
            log.info("%s ended", member.name)
        else:
            self._restarts[role] += 1
            log.error("%s ended after %.0f s: %s", member.name, lived_s, _how(code))
        if not any(front.is_ready for front in self._fronts()):
            self._accept(False)
        self._reconcile()

    # Connections

    def _accept(self, is_accepting: bool) -> None:
        """While there is no front, connections wait in the kernel."""
        if is_accepting is self._is_accepting:
            return
        self._is_accepting = is_accepting
        loop = asyncio.get_running_loop()
        for each in self._listeners:
            if is_accepting:
                loop.add_reader(each.fileno(), self._take, each)
            else:
                loop.remove_reader(each.fileno())

    def _take(self, listener: socket.socket) -> None:
        while self._is_accepting:
            try:
                connection, _ = listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                log.error("a connection could not be accepted: %s", error)
                return
            connection.setblocking(False)
            ready = [front for front in self._fronts() if front.is_ready]
            if not ready:
                connection.close()
                return
            front = min(ready, key=lambda each: each.connections)
            front.connections += 1
            front.order("serve", connection)

    # The cluster

    def _can_lead(self) -> bool:
        """Whether a core of ours could decide now."""
        if self._is_stopping:
            return False
        return self._core is not None or any(each.has_started for each in self._spares())

    def _follows(self) -> bool:
        """Whether a front of ours hears a leader of another machine that decides."""
        now = time.monotonic()
        return any(each.follows_until > now for each in self._members.values())

    def _front_names(self) -> tuple[str, ...]:
        """The fronts that hold calls, also those that leave."""
        assert self._cluster is not None
        fronts = [each for each in self._members.values() if each.role is Role.FRONT]
        return tuple(self._cluster.qualified(each.name) for each in fronts if each.has_started)

    def _cluster_changed(self) -> None:
        """The engine answered, or it did not."""
        cluster = self._cluster
        assert cluster is not None
        term = cluster.term()
        has_changed = (term.get("leader"), term.get("epoch")) != self._term
        self._term = (term.get("leader"), term.get("epoch"))
        if self._core is not None and (has_changed or not cluster.is_leading):
            log.error("another member leads: %s is ended", self._core.name)
            core, self._core = self._core, None
            _end_core(core)
        if cluster.is_leading:
            if self._core is not None:
                self._core.order("permit", permission=cluster.permission())
                if cluster.intents.is_news:
                    self._restore(self._core, cluster)
            else:
                if self._was_followed:
                    self._lost_at = time.monotonic()
                    self._takeovers[TakeoverReason.MEMBER] += 1
                    self._was_followed = False
                self._reconcile()
        elif cluster.leader() is not None:
            self._was_followed = True
        if has_changed and not cluster.is_leading and not self._is_ending:
            for each in self._members.values():
                if each.role is Role.FRONT and each.has_started:
                    self._link(each)
        self._publish()

    def _take_peer(self, listener: socket.socket) -> None:
        """Another member connects: its connection goes to our core, if it leads."""
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        connection.setblocking(False)
        if self._core is None:
            connection.close()
        else:
            self._core.order("peer", connection)

    # Time

    def _check(self) -> None:
        now = time.monotonic()
        was_paused = now - self._checked_at > CHECK_S + PAUSED_S
        self._checked_at = now
        for member in list(self._members.values()):
            if was_paused:
                member.alive_at = now
            limit_s = HUNG_S if member.has_started else START_S
            if now - member.alive_at > limit_s:
                log.error("%s has not answered for %g s: killed", member.name, limit_s)
                member.alive_at = now
                member.is_hung = True
                member.send_signal(signal.SIGKILL)
        if now - self._published_at > PUBLISH_S:
            self._publish()
        asyncio.get_running_loop().call_later(CHECK_S, self._check)

    # What operators see

    def _publish_soon(self, cause: str) -> None:
        if cause != "alive":
            self._publish()

    def _publish(self) -> None:
        core = self._core
        if core is None and self._cluster is not None:
            core = next((each for each in self._spares() if each.has_started), None)
        if core is None:
            return
        if core is not self._core and self._cluster is not None and not self._is_stopping:
            term = self._cluster.term()
            if self._cluster.leader() is not None:
                core.order("stand_by", term=term)
        self._published_at = time.monotonic()
        core.order(
            "processes",
            fronts=self._fronts_wanted,
            takeovers={reason.value: count for reason, count in self._takeovers.items()},
            restarts={role.value: count for role, count in self._restarts.items()},
            cluster=None if self._cluster is None else self._cluster.report(),
            members=[each.describe(self._role_of(each)) for each in self._members.values()],
        )

    def _role_of(self, member: Member) -> str:
        if member.role is Role.FRONT:
            return "front" if member.is_ready else "starting front"
        if member is self._core:
            return "core"
        return "spare" if member.has_started else "starting spare"

    # Signals

    def _reload(self) -> None:
        """The core reads its settings again, and says when a spare must do so too."""
        if self._core is not None:
            self._core.send_signal(signal.SIGHUP)

    async def _stop(self) -> None:
        """Stop accepting, let the core drain, then end the others."""
        if self._is_stopping:
            return
        self._is_stopping = True
        self._manager.stopping()
        self._signalled.clear()
        self._accept(False)
        for peer in self._peers:
            asyncio.get_running_loop().remove_reader(peer.fileno())
        for listener in (*self._listeners, *self._peers):
            listener.close()
        hurry = asyncio.create_task(self._signalled.wait())
        leaving = asyncio.create_task(self._stop_members())
        await asyncio.wait({hurry, leaving}, return_when=asyncio.FIRST_COMPLETED)
        for task in (hurry, leaving):
            task.cancel()
        members = list(self._members.values())
        for member in members:
            member.send_signal(signal.SIGKILL)
        await asyncio.gather(*(member.wait() for member in members))
        await asyncio.gather(hurry, leaving, return_exceptions=True)
        if self._cluster is not None:
            await self._cluster.aclose()
        self._manager.close()

    async def _stop_members(self) -> None:
        for task in self._starting:
            task.cancel()
        if self._cluster is not None:
            await self._hand_over(self._cluster)
        core = self._core
        for front in self._fronts():
            front.order("unready")
        for spare in self._spares():
            spare.order("stop")
        if core is not None:
            core.order("stop")
            async with asyncio.timeout(self._settings.drain_timeout_s + STOP_MARGIN_S):
                await core.wait()
        rest = list(self._members.values())
        for member in rest:
            member.order("stop")
        async with asyncio.timeout(STOP_MARGIN_S):
            await asyncio.gather(*(member.wait() for member in rest))

    async def _hand_over(self, cluster: ClusterPart) -> None:
        """Let another member lead, and let our fronts follow it until what they hold has ended."""
        if cluster.is_leading and not cluster.others():
            return
        fronts = self._fronts()
        core, self._core = self._core, None
        if core is not None:
            _end_core(core)
            await core.wait()
        if cluster.is_leading:
            await cluster.resign()
        for front in fronts:
            front.order("leave")
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.drain_timeout_s + STOP_MARGIN_S):
                await asyncio.gather(*(front.wait() for front in fronts))
        self._is_ending = True


def _end_core(core: Member) -> None:
    """End one that leads at once: the fronts hold all that counts."""
    core.is_leaving = True
    core.send_signal(signal.SIGKILL)


def _delay_s(short_lives: int) -> float:
    """How long a start waits after this number of processes in a row that ended early."""
    if short_lives < FREE_RESTARTS:
        return 0.0
    return float(min(RESTART_MAX_S, RESTART_MIN_S * 2 ** min(short_lives - FREE_RESTARTS, 10)))


def _how(code: int | None) -> str:
    if code is not None and code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"
