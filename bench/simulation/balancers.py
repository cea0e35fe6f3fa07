"""What people use instead: balancers without knowledge of slots, and an oracle with all of it."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from itertools import cycle
from random import Random

from bench.simulation.job import Job
from bench.simulation.server import Server


class Balancer(ABC):
    """Sends every job to a server, at once or later."""

    @abstractmethod
    def arrive(self, job: Job, now: float) -> None: ...

    @abstractmethod
    def lost(self, job: Job, now: float) -> None:
        """The server that had it died: its client asks again at once."""

    def returned(self, now: float) -> None:  # noqa: B027  # what most do: nobody waited for it
        """A server is there again: a balancer with a queue serves it now."""


class Plain(Balancer):
    """What all balancers here have in common: they know at once which servers are up."""

    def __init__(self, servers: Sequence[Server], random: Random) -> None:
        self._servers = servers
        self._random = random

    def arrive(self, job: Job, now: float) -> None:
        self._best([server for server in self._servers if server.is_up]).take(job, now)

    def lost(self, job: Job, now: float) -> None:
        self.arrive(job, now)

    @abstractmethod
    def _best(self, servers: list[Server]) -> Server:
        """The one of `servers`, all of them up, that gets the next job."""


class RoundRobin(Plain):
    def __init__(self, servers: Sequence[Server], random: Random) -> None:
        super().__init__(servers, random)
        self._next = cycle(servers)

    def _best(self, servers: list[Server]) -> Server:
        return next(server for server in self._next if server.is_up)


class LeastConnections(Plain):
    """The fewest requests, whatever the number of slots."""

    def _best(self, servers: list[Server]) -> Server:
        return min(servers, key=lambda server: (server.load, self._random.random()))


class WeightedLeastConnections(Plain):
    """The fewest requests for each slot."""

    def _best(self, servers: list[Server]) -> Server:
        return min(
            servers,
            key=lambda server: (
                (server.load + 1) / server.hardware.slots,
                self._random.random(),
            ),
        )


class PowerOfTwo(Plain):
    """The less loaded of two at random: Envoy's least_request."""

    def _best(self, servers: list[Server]) -> Server:
        one, other = self._random.sample(servers, 2)
        return one if one.load <= other.load else other


class CentralLine(Plain):
    """One line before all servers, each of which gets as many as its limit allows.

    With the slots for limits, perfect knowledge and no delay it is the oracle of waiting.
    """

    def __init__(
        self, servers: Sequence[Server], random: Random, limits: Sequence[int] | None = None
    ) -> None:
        super().__init__(servers, random)
        self._limits = limits or [server.hardware.slots for server in servers]
        self._line: deque[Job] = deque()
        for server in servers:
            server.on_end = server.on_killed = self._ended

    def arrive(self, job: Job, now: float) -> None:
        self._line.append(job)
        self._serve(now)

    def lost(self, job: Job, now: float) -> None:
        self._line.appendleft(job)  # the oracle's justice: it has waited before
        self._serve(now)

    def returned(self, now: float) -> None:
        self._serve(now)

    def _ended(self, job: Job, now: float) -> None:
        self._serve(now)

    def _serve(self, now: float) -> None:
        while self._line:
            free = [s for s in self._servers if s.is_up and s.load < self._limits[s.index]]
            if not free:
                return
            self._best(free).take(self._line.popleft(), now)

    def _best(self, servers: list[Server]) -> Server:
        return max(
            servers,
            key=lambda s: (1 - s.load / self._limits[s.index], self._random.random()),
        )


class ProxyLine(CentralLine):
    """HAProxy's maxconn: a limit for each server, set by hand, and the fewest connections.

    Where somebody counted the slots right it waits like the oracle; it knows no caches, no
    SLOs, no foreign requests, and nothing of a server that comes back with other slots.
    """

    def lost(self, job: Job, now: float) -> None:
        self.arrive(job, now)

    def _best(self, servers: list[Server]) -> Server:
        return min(servers, key=lambda s: (s.load, self._random.random()))


def one_limit(servers: Sequence[Server], random: Random) -> ProxyLine:
    """The same limit for all servers: the mean number of slots."""
    mean = round(sum(server.hardware.slots for server in servers) / len(servers))
    return ProxyLine(servers, random, [mean] * len(servers))
