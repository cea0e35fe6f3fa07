"""The capabilities of the Envoys, so that no server with TLS gets unencrypted requests.

An Envoy opens a plain socket to every server for which its configuration has no TLS, and sends
no key that its configuration does not send. So each cluster that we print or serve
(`clusters.py`) says in a header, with its discovery stream, which TLS profiles it holds and whether
it sends keys. A server that needs more is withheld from that Envoy: it hears neither the address
nor the key. What one Envoy cannot reach as it should is routable through none.

    nothing heard yet               nothing is known: servers with needs wait, but for those that
                                    the Envoys of the process before reached
    Envoys are connected            known is what all of them are able to do
    the last one left               known stays, for an Envoy without a stream serves on
"""

from collections.abc import Iterable, Iterator
from typing import Final

from extproc.core.address import Address
from extproc.core.fleet.membership import Member
from extproc.core.observation import Issue
from extproc.header_names import ABILITIES, KEYS

_REMEDY: Final = (
    "an Envoy with the complete output of `coxswain config envoy` is updated "
    "within seconds, or the log says why not; for an Envoy with the printed parts, print them "
    "again, and set "
)
LACKS_TLS: Final = Issue(
    code="envoy-lacks-tls",
    message="Envoy has no TLS configuration for this server, so it gets no requests: they would "
    "be sent unencrypted",
    remedy=_REMEDY + "envoy.server_ca_files for servers that are added later",
)
LACKS_KEYS: Final = Issue(
    code="envoy-lacks-keys",
    message="Envoy's configuration does not send servers their keys, so this one gets no "
    "requests: it would reject them",
    remedy=_REMEDY + "envoy.inject_keys for servers that are added later",
)
_STRICT: Final = (
    "fix the file in ca_file, or in --server-ca of its agent: Envoy is stricter "
    "about certificates than other programs, and the log has its error message; a changed file is "
    "tried at once"
)
REFUSED: Final = Issue(
    code="envoy-rejects-ca",
    message="Envoy rejects the CA of this server, so the server gets no requests: Envoy could "
    "not verify it",
    remedy=_STRICT,
)
KEEPS: Final = Issue(
    code="envoy-keeps-previous-ca",
    message="Envoy rejects the new CA of this server and keeps the previous one",
    remedy=_STRICT,
)
UNHEARD: Final = Issue(
    code="no-envoy-yet",
    message="no Envoy has subscribed to endpoint discovery yet, so it is not known whether "
    "Envoy can use TLS or send the key to this server",
    remedy="start Envoy with the output of `coxswain config envoy`; servers with TLS or "
    "inject_key require envoy.discovery",
)


def read_capabilities(metadata: Iterable[tuple[str, str | bytes]]) -> frozenset[str]:
    """The capabilities in a stream's metadata; other Envoy configurations have none."""
    values = [value for name, value in metadata if name == ABILITIES and isinstance(value, str)]
    return frozenset(name for value in values for name in value.split(",") if name)


def needs(member: Member) -> frozenset[str]:
    """The capabilities that an Envoy needs for this endpoint."""
    found = {member.tls_profile} if member.tls_profile else set()
    return frozenset(found | {KEYS} if member.authorization else found)


def reachable(members: Iterable[Member], abilities: frozenset[str]) -> tuple[Member, ...]:
    """The members that an Envoy with these abilities may receive."""
    return tuple(member for member in members if needs(member) <= abilities)


def secured(before: Iterable[Member], after: Iterable[Member]) -> Iterator[Address]:
    """The endpoints that were sent without TLS `before` and are behind TLS now."""
    plain = {member.address for member in before if not member.tls_profile}
    return (each.address for each in after if each.tls_profile and each.address in plain)


class EnvoyCapabilities:
    """Pure and synchronous. Every call is O(streams)."""

    def __init__(self) -> None:
        self._streams: dict[int, frozenset[str]] = {}
        self._is_heard = False
        self._reached: set[Address] = set()
        self.known: frozenset[str] = frozenset()
        """The capabilities that all Envoys have."""
        self.refused: frozenset[str] = frozenset()
        """The profiles whose current CA some Envoy rejects."""

    def connect(self, stream: int, abilities: frozenset[str]) -> None:
        self._streams[stream] = abilities
        self._is_heard = True
        self._settle()

    def disconnect(self, stream: int) -> None:
        self._streams.pop(stream, None)
        self._settle()

    def expect(self, reached: Iterable[Address]) -> None:
        """The Envoys of the process before reach these endpoints; they count until the first of
        these Envoys is heard."""
        self._reached.update(reached)

    def obstacle(self, member: Member) -> Issue | None:
        """Why this endpoint is withheld; None if it is not."""
        missing = needs(member) - self.known
        if not missing:
            return None
        if not self._is_heard:
            return None if member.address in self._reached else UNHEARD
        if missing & self.refused:
            return REFUSED
        return LACKS_KEYS if missing == {KEYS} else LACKS_TLS

    def remark(self, member: Member) -> Issue | None:
        """An issue of an endpoint that still gets requests."""
        return KEEPS if member.tls_profile in self.refused else None

    def _settle(self) -> None:
        if self._streams:
            self.known = frozenset.intersection(*self._streams.values())
