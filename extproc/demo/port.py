"""Ports to listen on: free ones to choose from, and whether a wanted one is taken."""

from __future__ import annotations

import socket

LOOPBACK = "127.0.0.1"


def free_ports(count: int, host: str = LOOPBACK) -> list[int]:
    """Choose that many different ports on which nobody listens on `host` right now.

    Another process may take one before it is used; nothing can prevent that.
    """
    held: list[socket.socket] = []
    try:
        for _ in range(count):
            one = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            held.append(one)
            one.bind((host, 0))
        return [int(one.getsockname()[1]) for one in held]
    finally:
        for one in held:
            one.close()


def free_port(host: str = LOOPBACK) -> int:
    """Choose one port; see `free_ports`."""
    return free_ports(1, host)[0]


def is_port_taken(port: int, host: str = LOOPBACK) -> bool:
    """Whether listening on `host` and `port` would fail now, e.g. since another process does."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as one:
        # As servers do, so that connections of a server that just ended do not count.
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind((host, port))
            one.listen(1)
        except OSError:
            return True
    return False
