"""Ports to listen on: free ones to choose from, and what is wrong with a wanted one."""

import secrets
import socket
from pathlib import Path

LOOPBACK = "127.0.0.1"
LOWEST = 16_384
TRIES = 100
KERNELS = Path("/proc/sys/net/ipv4/ip_local_port_range")
_given: set[int] = set()  # by this process, and perhaps not listened on yet


def free_ports(count: int, host: str = LOOPBACK) -> list[int]:
    """Choose that many ports on which nobody listens on `host` right now, none of them twice.

    The kernel does not give them to processes that ask for any port. Another process may take
    one before it is used; nothing can prevent that. Raises OSError when there are no more.
    """
    held: list[socket.socket] = []
    ports: list[int] = []
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    tries = TRIES * count
    try:
        while len(ports) < count:
            one = socket.socket(family, socket.SOCK_STREAM)
            held.append(one)  # open until the end, or the kernel could offer the same again
            tries -= 1
            wanted = _any_port() if tries > 0 else 0
            try:
                one.bind((host, wanted))
            except OSError:
                if wanted:
                    continue
                raise
            port = int(one.getsockname()[1])
            if port not in _given:
                _given.add(port)
                ports.append(port)
        return ports
    finally:
        for one in held:
            one.close()


def _any_port() -> int:
    """One below those that the kernel gives; 0, which makes it choose, where there are few."""
    try:
        end = int(KERNELS.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return 0
    return LOWEST + secrets.randbelow(end - LOWEST) if end > LOWEST + TRIES else 0


def free_port(host: str = LOOPBACK) -> int:
    """Choose one port; see `free_ports`."""
    return free_ports(1, host)[0]


def listening_problem(port: int, host: str = LOOPBACK) -> str | None:
    """Why listening on `host` and `port` would fail now; None if it would succeed.

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
