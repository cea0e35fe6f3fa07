"""Starts a core, a spare core and fronts, and replaces what dies.

    spare --the core is gone--> leads; another spare is started
    front --gone--> another one is started; Envoys connect again, and reach any front

It serves nothing itself: its fronts serve the connections that it accepts
(`connection_balancer.py`), connected with the core (`core_links.py`). A process that gives no sign
of life is killed before it is replaced (`liveness.py`).

In a cluster a core leads only while this machine does (`cluster_part.py`). Otherwise the fronts
follow the core of another machine.
"""

import asyncio
import logging
import os
import secrets
import signal
import socket
import time
from collections.abc import Sequence
from typing import Final

from extproc.app.pool_ports import pool_address
from extproc.app.ports import listening_sockets
from extproc.app.service_manager import ServiceManager
from extproc.core.processes import TakeoverReason
from extproc.processes.cluster_access import make_engine
from extproc.processes.cluster_part import ClusterPart
from extproc.processes.connection_balancer import ConnectionBalancer
from extproc.processes.control import Message
from extproc.processes.core_links import CoreLinks
from extproc.processes.drain import drain, hand_over
from extproc.processes.learned_frames import SEED_VARIABLE
from extproc.processes.liveness import CHECK_S, Liveness
from extproc.processes.member import Member, Role
from extproc.processes.process_table import ProcessTable
from extproc.settings import Settings

PUBLISH_S: Final = 0.5
RELINK_S: Final = 0.05
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
        for name, pool in settings.pools.items():
            if pool.port is not None:
                place = pool_address(settings, pool.port)
                listeners += listening_sockets(place, f"pools.{name}.port")[0]
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
        self._listeners = listeners
        self._fronts_wanted = front_count(settings)
        self._has_led = False
        self._lost_at: float | None = None
        self._takeovers = dict.fromkeys(TakeoverReason, 0)
        self._is_stopping = False
        self._is_ending = False
        """Whether the fronts of a member that stops need no leader any more."""
        self._exit_code = 0
        self._over = asyncio.Event()
        self._signalled = asyncio.Event()
        self._manager = ServiceManager(os.environ)
        self._outdated: Member | None = None
        """A spare that leaves as soon as another one has started."""
        self._published_at = time.monotonic()
        self._was_followed = False
        self._is_successor = False
        """Whether the next core follows one on another machine."""
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
        environment = {
            # Of the hashes of prompts, which a core hands on to its spare.
            SEED_VARIABLE: str(1 + secrets.randbelow(MAX_HASH_SEED)),
            **{key: value for key, value in os.environ.items() if key not in OWN_VARIABLES},
        }
        self._environment = environment
        self._table = ProcessTable(
            [*command, str(os.getpid())],
            environment,
            heard=self._heard,
            ended=self._ended,
            changed=self._reconcile,
        )
        self._links = CoreLinks(self._table, self._cluster, port)
        pools = {pool.port: name for name, pool in settings.pools.items() if pool.port is not None}
        self._balancer = ConnectionBalancer(listeners, self._table.ready_fronts, pools)
        self._liveness = Liveness(self._table, self._links.report_silence, time.monotonic())

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

    def _reconcile(self) -> None:
        """Start and promote what is missing."""
        if self._is_stopping or self._over.is_set():
            return
        may_lead = self._cluster is None or self._cluster.is_leading
        if self._table.core is None and may_lead and not self._table.ending_core():
            spare = self._table.started_spare()
            if spare is not None:
                self._links.promote(spare, self._lost_at, is_successor=self._is_successor)
                self._is_successor = False
        if self._outdated not in self._table.spares():
            self._outdated = None
        wanted = 1 + (self._table.core is None and may_lead) + (self._outdated is not None)
        self._table.start_missing(Role.CORE, wanted)
        self._table.start_missing(Role.FRONT, self._fronts_wanted)
        self._publish()

    # What they say

    def _heard(self, member: Member, message: Message) -> None:
        self._liveness.heard(member, time.monotonic())
        match message["is"]:
            case "alive":
                member.connections = int(message.get("connections", 0))
                member.calls = int(message.get("calls", 0))
                member.follows_until = float(message.get("follows_until", 0.0))
            case "started":
                member.has_started = True
                if member.role is Role.FRONT:
                    self._links.link(member)
                elif self._table.core is not None and self._table.core.is_ready:
                    self._links.feed(member)
                if member.role is Role.CORE and self._outdated is not None:
                    self._replace_outdated(member)
                self._reconcile()
            case "leads":
                member.is_ready = True
                for spare in self._table.spares():
                    self._links.feed(spare)
                self._led()
            case "opened":
                if not member.is_ready:
                    member.is_ready = True
                    self._led()
                    if self._has_led:
                        self._balancer.accept(True)
            case "serves":
                self._balancer.served(message["number"])
                return
            case "unlinked":
                number = message["number"]
                asyncio.get_running_loop().call_later(RELINK_S, self._relink, member, number)
            case "leaving":
                self._replace(member)
            case "intents":
                if self._cluster is not None and member is self._table.core:
                    begins, ends = message["begins"], message["ends"]
                    self._cluster.intents.said(message["entries"], begins=begins, ends=ends)
            case "other_version":
                self._end_older(member, self._links.front_named(str(message["front"])))
            case "hash_seed":
                self._use_hash_seed(member, int(message["seed"]))
            case "reloaded":
                for spare in self._table.spares():
                    self._replace(spare)
        if message["is"] != "alive":
            self._publish()

    def _led(self) -> None:
        """A core leads, or a front is ready: report to systemd the first time that all are."""
        is_member = self._cluster is not None and not self._cluster.is_leading
        if not is_member and (self._table.core is None or not self._table.core.is_ready):
            return
        is_complete = sum(each.is_ready for each in self._table.fronts()) >= self._fronts_wanted
        if is_complete and not self._has_led:
            self._has_led = True
            text = (
                f"serving Envoy on {self._settings.listen.grpc} with {self._fronts_wanted} fronts"
            )
            log.info(text)
            self._balancer.accept(True)  # not before: the first front would get every connection
            self._manager.ready(text)

    def _relink(self, front: Member, number: int) -> None:
        """A front lost its core; if the core lives, it is connected again."""
        may_link = not self._is_stopping if self._cluster is None else not self._is_ending
        if may_link and self._links.is_present(front, number):
            self._links.link(front)

    def _replace(self, member: Member) -> None:
        """A process got SIGTERM: what it holds is handed over first."""
        if self._is_stopping or member.is_leaving:
            return
        if member is self._table.core:
            log.info("%s leaves: its spare takes over when it is ready", member.name)
            if self._table.started_spare() is None:
                asyncio.get_running_loop().call_later(CHECK_S, self._replace, member)
                return
            member.end_at_once()
        elif member.role is Role.CORE:
            member.is_leaving = True
            member.order("stop")
        else:
            member.is_leaving = True
            member.order("leave")
        self._reconcile()

    def _end_older(self, core: Member, front: Member | None) -> None:
        """Another version was installed since one of them started, and they do not understand each
        other. The older one ends, so that in the end all are of what is installed now."""
        if self._is_stopping or front is None or core is not self._table.core:
            return
        older, newer = (front, core) if front.since < core.since else (core, front)
        if older.is_leaving:
            return  # it was reported again before its end
        if older is core and self._table.started_spare() is None:
            return  # the front tries again
        log.warning("%s is replaced: %s is of a newer version", older.name, newer.name)
        older.end_at_once()
        self._reconcile()

    def _ended(self, member: Member) -> None:
        self._balancer.ended(member)
        if member is self._table.core:
            self._table.core = None
            if not self._has_led and not member.is_ready:
                code = member.process.returncode
                self._exit_code = 1 if code is None or code < 0 else code or 1
                self._over.set()
                return
            if not self._is_stopping:
                self._lost_at = time.monotonic()
                if self._cluster is None or self._cluster.is_leading:
                    self._takeovers[member.takeover_reason()] += 1
        self._table.count_end(member, is_wanted=self._is_stopping or member.is_leaving)
        if not self._table.ready_fronts():
            self._balancer.accept(False)
        self._reconcile()

    # The cluster

    def _can_lead(self) -> bool:
        """Whether a core of ours could decide now."""
        if self._is_stopping:
            return False
        return self._table.core is not None or self._table.started_spare() is not None

    def _use_hash_seed(self, spare: Member, seed: int) -> None:
        """A spare of ours cannot use what the leader learns of prompts, as its hashes differ. It
        stands by until there is one that can."""
        if spare is not self._outdated and not (spare is self._table.core or spare.is_leaving):
            log.info("%s is replaced by one whose hashes are those of the leader", spare.name)
            self._environment[SEED_VARIABLE] = str(seed)
            self._outdated = spare
            self._reconcile()

    def _replace_outdated(self, spare: Member) -> None:
        """Another spare has started. It listens before the one that leaves ends."""
        if self._outdated in self._table.spares() and self._cluster is not None:
            spare.order("stand_by", term=self._cluster.term())
            self._report_to(spare)
            asyncio.get_running_loop().call_later(CHECK_S, self._end_spare, self._outdated)

    def _end_spare(self, spare: Member) -> None:
        if spare in self._table.spares():  # else it leads now
            self._replace(spare)

    def _follows(self) -> bool:
        """Whether a front of ours hears a leader of another machine that decides."""
        now = time.monotonic()
        return any(each.follows_until > now for each in self._table)

    def _front_names(self) -> tuple[str, ...]:
        """The fronts that hold calls, also those that leave."""
        assert self._cluster is not None
        fronts = [each for each in self._table if each.role is Role.FRONT]
        return tuple(self._cluster.qualified(each.name) for each in fronts if each.has_started)

    def _cluster_changed(self) -> None:
        """The engine answered, or it did not."""
        cluster = self._cluster
        assert cluster is not None
        term = cluster.term()
        has_changed = (term.get("leader"), term.get("epoch")) != self._term
        self._term = (term.get("leader"), term.get("epoch"))
        if self._table.core is not None and (has_changed or not cluster.is_leading):
            log.error("another member leads: %s is ended", self._table.core.name)
            core, self._table.core = self._table.core, None
            core.end_at_once()
        if cluster.is_leading:
            if self._table.core is not None:
                self._table.core.order("permit", lease_grant=cluster.lease_grant())
                if cluster.intents.is_news:
                    self._links.restore(self._table.core, cluster)
            else:
                if self._was_followed:
                    self._lost_at = time.monotonic()
                    self._takeovers[TakeoverReason.MEMBER] += 1
                    self._was_followed, self._is_successor = False, True
                self._reconcile()
        elif cluster.leader() is not None:
            self._was_followed = True
        if has_changed and not cluster.is_leading and not self._is_ending:
            for each in self._table:
                if each.role is Role.FRONT and each.has_started:
                    self._links.link(each)
        self._publish()

    def _take_peer(self, listener: socket.socket) -> None:
        """Another member connects: its connection goes to our core, if it leads."""
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        connection.setblocking(False)
        if self._table.core is None:
            connection.close()
        else:
            self._table.core.order("peer", connection)

    # Time

    def _check(self) -> None:
        now = time.monotonic()
        self._liveness.check(now)
        if now - self._published_at > PUBLISH_S:
            self._publish()
        asyncio.get_running_loop().call_later(CHECK_S, self._check)

    # What operators see

    def _publish(self) -> None:
        core, cluster = self._table.core, self._cluster
        if core is None and cluster is not None:
            core = self._table.started_spare()
            if core is not None and cluster.leader() is not None and not self._is_stopping:
                core.order("stand_by", term=cluster.term())
        if core is None:
            return
        self._published_at = time.monotonic()
        self._report_to(core)

    def _report_to(self, core: Member) -> None:
        core.order(
            "processes",
            fronts=self._fronts_wanted,
            takeovers={reason.value: count for reason, count in self._takeovers.items()},
            cluster=None if self._cluster is None else self._cluster.report(),
            **self._table.describe(),
        )

    # Signals

    def _reload(self) -> None:
        """The core reads its settings again, and says when a spare must do so too."""
        if self._table.core is not None:
            self._table.core.send_signal(signal.SIGHUP)

    async def _stop(self) -> None:
        """Stop accepting, let the core drain, then end the others."""
        if self._is_stopping:
            return
        self._is_stopping = True
        self._table.stop_starting()
        self._manager.stopping()
        self._signalled.clear()
        self._balancer.close()
        for peer in self._peers:
            asyncio.get_running_loop().remove_reader(peer.fileno())
        for listener in (*self._listeners, *self._peers):
            listener.close()
        hurry = asyncio.create_task(self._signalled.wait())
        leaving = asyncio.create_task(self._stop_members())
        await asyncio.wait({hurry, leaving}, return_when=asyncio.FIRST_COMPLETED)
        for task in (hurry, leaving):
            task.cancel()
        members = list(self._table)
        for member in members:
            member.send_signal(signal.SIGKILL)
        await asyncio.gather(*(member.wait() for member in members))
        await asyncio.gather(hurry, leaving, return_exceptions=True)
        if self._cluster is not None:
            await self._cluster.aclose()
        self._manager.close()

    async def _stop_members(self) -> None:
        timeout_s = self._settings.drain_timeout_s
        if self._cluster is not None:
            self._is_ending = await hand_over(self._table, self._cluster, timeout_s)
        await drain(self._table, timeout_s)
