"""The host names that the pages accept, so that other web sites cannot read them.

A browser sends the name that it resolved. Who owns a name can let it point to 127.0.0.1 after its
own page was loaded from it (DNS rebinding), and then that page may read what answers there. So
only names count that nobody else can own: IP addresses, localhost, and those in the settings.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Final

from extproc.settings.listen_section import ListenSettings
from extproc.settings.values import split_host_port

LOOPBACK: Final = "localhost"


class Hosts:
    """`names` are allowed besides IP addresses and loopback's names, in any case of letters."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = frozenset(_plain(name) for name in names) | {LOOPBACK}

    @classmethod
    def of(cls, listen: ListenSettings) -> Hosts:
        """Those by which the pages of these settings may be requested."""
        return cls([*listen.http_hosts, split_host_port(listen.http)[0]])

    def allows(self, host: str) -> bool:
        """Whether a request with this `Host` (with or without a port) is answered. One without
        any is: no browser sends such."""
        name = _plain(_without_port(host))
        if not name or name in self._names or name.endswith(f".{LOOPBACK}"):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _plain(name: str) -> str:
    return name.strip().rstrip(".").lower()
