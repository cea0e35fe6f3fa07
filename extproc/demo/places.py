"""Where the parts of `coxswain up` listen: all found free before anything is started."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from extproc.demo.port import LOOPBACK, free_port, listening_problem
from extproc.settings.values import split_host_port

if TYPE_CHECKING:
    from extproc.settings import Settings


class PlaceError(Exception):
    """A part cannot listen where it should; the text names the port and what to pass instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One listening part: its setting's key and value, and how to move it elsewhere."""

    part: str
    key: str
    host: str
    port: int
    remedy: str

    @property
    def address(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def places_of(settings: Settings) -> list[Place]:
    """Every place where `coxswain up` will listen with these settings."""
    return [
        _place("Envoy", "envoy.listen", settings.envoy.listen, "--port {port}"),
        _place("Envoy's admin pages", "envoy.admin", settings.envoy.admin),
        _place("the picker", "listen.grpc", settings.listen.grpc),
        _place("the picker's status pages", "listen.http", settings.listen.http),
        _place("the picker's admin services", "listen.admin", settings.listen.admin),
    ]


def settle(places: Sequence[Place]) -> list[str]:
    """Check that each place is free; returns assignments for those whose port 0 was chosen.

    Raises `PlaceError` for the first that is not.
    """
    assignments = []
    taken: dict[int, Place] = {}
    for place in places:
        if place.port == 0:
            port = free_port(connectable(place.host))
            assignments.append(f"{place.key}={replace(place, port=port).address}")
            continue
        other = taken.setdefault(place.port, place)
        if other is not place:
            raise PlaceError(
                f"port {place.port} is wanted for {other.part} and for {place.part}; "
                f"pass {place.remedy}"
            )
        problem = listening_problem(place.port, place.host)
        if problem is not None:
            raise PlaceError(
                f"port {place.port} for {place.part} cannot be used ({problem}: "
                f"{place.address}); free it, or pass {place.remedy}"
            )
    return assignments


def connectable(host: str) -> str:
    """Where to connect to reach a listener on `host`: loopback when that is all interfaces."""
    try:
        literal = ipaddress.ip_address(host)
    except ValueError:
        return host
    if not literal.is_unspecified:
        return host
    return LOOPBACK if literal.version == 4 else "::1"


def url_of(listens_at: str) -> str:
    """The URL under which a listener on `host:port` is reached from this machine."""
    host, port = split_host_port(listens_at)
    reached = connectable(host)
    return f"http://[{reached}]:{port}" if ":" in reached else f"http://{reached}:{port}"


def _place(part: str, key: str, value: str, remedy: str | None = None) -> Place:
    host, port = split_host_port(value)
    place = Place(part=part, key=key, host=host, port=port, remedy="")
    other = replace(place, port=port + 10 if port < 65_000 else port - 10)
    remedy = remedy or f"--set {key}={other.address}"
    return replace(place, remedy=remedy.format(port=other.port))
