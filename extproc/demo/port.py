"""Ports to listen on: free ones to choose from, and what is wrong with a wanted one."""

from __future__ import annotations

import socket

LOOPBACK = "127.0.0.1"


def free_ports(count: int, host: str = LOOPBACK) -> list[int]:
    """Choose that many different ports on which nobody listens on `host` right now.

    Another process may take one before it is used; nothing can prevent that.
    """
    held: list[socket.socket] = []
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        for _ in range(count):
            one = socket.socket(family, socket.SOCK_STREAM)
            held.append(one)
            one.bind((host, 0))
        return [int(one.getsockname()[1]) for one in held]
    finally:
        for one in held:
            one.close()


def free_port(host: str = LOOPBACK) -> int:
    """Choose one port; see `free_ports`."""
    return free_ports(1, host)[0]


def listening_problem(port: int, host: str = LOOPBACK) -> str | None:
    """Why listening on `host` and `port` would fail now; None when it would not.

    `host` is an address of this machine or its name; names are looked up, which may block.
    """
    try:
        family, kind, _, _, place = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind) as one:
            # As servers do, so that connections of a server that just ended do not count.
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind(place)
            one.listen(1)
    except OSError as error:
        return error.strerror or str(error)
    return None
