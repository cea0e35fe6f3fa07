"""The caller's IP address, from gRPC."""

from typing import Final
from urllib.parse import unquote

PASSED_ON: Final[dict[tuple[str, int], str]] = {}
"""The callers of connections that another member of the cluster has passed on, by the address and
port from which these reach the admin port."""


def peer_host(peer: str) -> str:
    """The IP address in `ipv4:10.0.0.5:41234` or `ipv6:%5B::1%5D:41234`; empty for others. For a
    connection that was passed on, that of its caller."""
    kind, _, place = peer.partition(":")
    if kind not in ("ipv4", "ipv6"):
        return ""
    host, _, port = unquote(place).rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if PASSED_ON and port.isdigit():
        return PASSED_ON.get((host, int(port)), host)
    return host
