"""The caller's IP address, from gRPC."""

from urllib.parse import unquote


def peer_host(peer: str) -> str:
    """The IP address in `ipv4:10.0.0.5:41234` or `ipv6:%5B::1%5D:41234`; empty for others."""
    kind, _, place = peer.partition(":")
    if kind not in ("ipv4", "ipv6"):
        return ""
    return unquote(place).rpartition(":")[0].removeprefix("[").removesuffix("]")
