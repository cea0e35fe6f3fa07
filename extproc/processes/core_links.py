"""Connects fronts and spares with the core that leads, here or on another machine."""

import logging
import socket
import time

from extproc.processes.cluster_part import ClusterPart
from extproc.processes.control import in_parts
from extproc.processes.member import Member
from extproc.processes.process_table import ProcessTable

log = logging.getLogger("coxswain.processes")


class CoreLinks:
    """Gives each process its end of a connection; `port` is the data plane's."""

    def __init__(self, table: ProcessTable, cluster: ClusterPart | None, port: int) -> None:
        self._table = table
        self._cluster = cluster
        self._port = port
        self._links = 0

    def promote(self, spare: Member, lost_at: float | None, *, is_successor: bool = False) -> None:
        """Let a spare lead; `lost_at` is when the core before it was lost. A successor follows one
        on another machine."""
        self._table.core = spare
        fronts = [each for each in self._table.fronts() if each.has_started]
        for front in fronts:
            self.link(front)
        names = [self._name_of(front) for front in fronts]
        more: dict[str, object] = {}
        if self._cluster is not None:
            lease_grant = self._cluster.lease_grant()
            names += [front for each in self._cluster.others() for front in each.fronts]
            more = {"term": self._cluster.term(), "lease_grant": lease_grant}
            self.restore(spare, self._cluster)
        more["is_successor"] = is_successor
        spare.order("lead", fronts=names, port=self._port, since=lost_at, **more)
        if lost_at is not None:
            log.warning("%s takes over", spare.name)

    def restore(self, core: Member, cluster: ClusterPart) -> None:
        """Give a core what operators asked for, if the engine has said it."""
        if cluster.intents.is_loaded:
            for begins, ends, part in in_parts(cluster.intents.entries()):
                core.order("restore", entries=part, begins=begins, ends=ends)

    def link(self, front: Member) -> None:
        """Connect a front with the core that leads; nothing happens while none does."""
        core, cluster = self._table.core, self._cluster
        term: dict[str, object] = {}
        if cluster is not None:
            term = cluster.term()
            if not cluster.is_leading:
                if cluster.leader() is not None:
                    front.order("follow", number=self._number(front), term=term)
                return
        if core is None:
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        core.order("link", ours, front=self._name_of(front))
        front.order("link", theirs, number=self._number(front), term=term)

    def report_silence(self, front: Member) -> None:
        """Let the core know that a front stands still, or does so no more."""
        core = self._table.core
        if core is not None and (front.connections or not front.is_silent):
            core.order("silence", front=self._name_of(front), is_silent=front.is_silent)

    def front_named(self, name: str) -> Member | None:
        """The front of this machine that the core knows by this name."""
        return next((each for each in self._table.fronts() if self._name_of(each) == name), None)

    def is_present(self, front: Member, number: int) -> bool:
        """Whether this is the number of a front's present link."""
        return front in self._table and front.link == number

    def feed(self, spare: Member) -> None:
        """Let the core send a spare what it learns."""
        core = self._table.core
        if core is None or spare is core or not spare.has_started:
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        core.order("feed", ours, spare=spare.name)
        spare.order("learn", theirs)

    def _name_of(self, front: Member) -> str:
        return front.name if self._cluster is None else self._cluster.qualified(front.name)

    def _number(self, front: Member) -> int:
        """A new number for the link of a front."""
        self._links += 1
        front.link, front.linked_at = self._links, time.monotonic()
        return front.link
