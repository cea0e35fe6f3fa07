"""What people use instead: balancers without knowledge of slots, and an oracle with all of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import cycle
from random import Random
from typing import Protocol

from bench.simulation.job import Job
from bench.simulation.server import Server


class Balancer(Protocol):
    """Sends every job to a server, at once or later."""

    def arrive(self, job: Job, now: float) -> None: ...


class RoundRobin:
    def __init__(self, servers: Sequence[Server], random: Random) -> None:
        self._next = cycle(servers)

    def arrive(self, job: Job, now: float) -> None:
        next(self._next).take(job, now)


class LeastConnections:
    """The fewest requests, whatever the number of slots."""

    def __init__(self, servers: Sequence[Server], random: Random) -> None:
        self._servers = servers
        self._random = random

    def arrive(self, job: Job, now: float) -> None:
        self._best().take(job, now)

    def _best(self) -> Server:
        return min(self._servers, key=lambda server: (server.load, self._random.random()))


class WeightedLeastConnections(LeastConnections):
    """The fewest requests for each slot."""

    def _best(self) -> Server:
        return min(
            self._servers,
            key=lambda server: (
                (server.load + 1) / server.hardware.slots,
                self._random.random(),
            ),
        )


class PowerOfTwo(LeastConnections):
    """The less loaded of two at random: Envoy's least_request."""

    def _best(self) -> Server:
        one, other = self._random.sample(list(self._servers), 2)
        return one if one.load <= other.load else other


class CentralLine:
    """One line and perfect knowledge, without delay: the oracle of waiting.

    With `limit_factor` above 1 it is a proxy's line with limits per server that do not fit
    the slots: HAProxy's maxconn, set by hand.
    """

    def __init__(
        self, servers: Sequence[Server], random: Random, limits: Sequence[int] | None = None
    ) -> None:
        self._servers = servers
        self._random = random
        self._limits = limits or [server.hardware.slots for server in servers]
        self._line: deque[Job] = deque()
        for server in servers:
            server.on_end = self._ended

    def arrive(self, job: Job, now: float) -> None:
        self._line.append(job)
        self._serve(now)

    def _ended(self, job: Job, now: float) -> None:
        self._serve(now)

    def _serve(self, now: float) -> None:
        while self._line:
            free = [s for s in self._servers if s.load < self._limits[s.index]]
            if not free:
                return
            best = max(
                free, key=lambda s: (1 - s.load / self._limits[s.index], self._random.random())
            )
            best.take(self._line.popleft(), now)


def maxconn(servers: Sequence[Server], random: Random) -> CentralLine:
    """A proxy's line with one limit for all servers: the mean number of slots."""
    mean = round(sum(server.hardware.slots for server in servers) / len(servers))
    return CentralLine(servers, random, [mean] * len(servers))
