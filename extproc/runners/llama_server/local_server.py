"""The command lines of the llama-servers that run on this machine, from /proc.

A server does not say how it was started. If it listens on this machine and belongs to the same
user, the kernel does. Anything else is no error: then it is not known.
"""

import asyncio
import os
import re
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple

from extproc.core.address import Address

PROC: Final = Path("/proc")
_LISTENER: Final = re.compile(r":([0-9A-F]{4}) [0-9A-F]+:0000 0A (?:\S+ +){5}(\d+)")
"""The port and the inode of a socket that listens, in a line of /proc/net/tcp."""
_NAME: Final = re.compile(r"llama([-_]server)?(\.exe)?", re.IGNORECASE)
MAX_BYTES: Final = 1 << 20
"""More than any command line or environment."""


class LocalServer(NamedTuple):
    """How a llama-server was started: its arguments, and the variables that are for it."""

    arguments: list[str]
    environment: dict[str, str]


class LocalServers:
    """The llama-servers of this machine. /proc is read once for all who ask before that begins, so
    that each learns of a server that runs when it asks, and many cost little more than one."""

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        self._lock = Lock()
        self._readings = 0
        """How often /proc was read, or begun to be read."""
        self._by_port: Mapping[int, LocalServer] = {}

    async def find(self, address: Address) -> LocalServer | None:
        """The one that listens at `address`, None if it is not here or not to be read."""
        return await asyncio.to_thread(self._find, address, self._readings)

    def _find(self, address: Address, readings: int) -> LocalServer | None:
        """As `find`, for a call that came after that number of readings had begun."""
        if not _is_here(address.host):
            return None
        with self._lock:
            if self._readings == readings:
                self._readings += 1
                self._by_port = read_local_servers(self._proc)
            return self._by_port.get(address.port)


LOCAL_SERVERS: Final = LocalServers()


def read_local_servers(proc: Path = PROC) -> Mapping[int, LocalServer]:
    """The llama-servers of this user by the ports on which they listen, on any address. Blocks for
    some milliseconds."""
    ports: dict[str, int] | None = None
    found: dict[int, LocalServer] = {}
    for process in _processes(proc):
        try:
            server = _read(process)
            if server is None:
                continue
            if ports is None:
                ports = dict(_listeners(proc))
            for socket_name in _sockets(process):
                if socket_name in ports:
                    found.setdefault(ports[socket_name], server)
        except OSError:
            continue  # of another user, or gone
    return found


def _is_here(host: str) -> bool:
    """Whether the address is one of this machine."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((host, 0))
    except OSError:
        return False
    return True


def _processes(proc: Path) -> Iterator[Path]:
    try:
        names = os.listdir(proc)
    except OSError:
        return  # not Linux
    yield from (proc / name for name in names if name.isdecimal())


def _listeners(proc: Path) -> Iterator[tuple[str, int]]:
    """The sockets that listen, by their names among open files, with their ports."""
    for name in ("tcp", "tcp6"):
        table = proc / "self" / "net" / name
        if table.is_file():
            for port, inode in _LISTENER.findall(table.read_text()):
                yield f"socket:[{inode}]", int(port, 16)


def _sockets(process: Path) -> Iterator[str]:
    """What the process has open, as the kernel names it."""
    folder = process / "fd"
    for file in os.listdir(folder):
        try:
            yield os.readlink(folder / file)
        except OSError:
            continue  # closed meanwhile


def _read(process: Path) -> LocalServer | None:
    """How the process was started, None if it is no llama-server, but a proxy, for example. Raises
    `OSError`."""
    words = _words(process / "cmdline")
    if not any(_NAME.fullmatch(os.path.basename(word)) for word in words[:2]):
        return None
    pairs = (word.partition("=") for word in _words(process / "environ"))
    variables = {name: value for name, _, value in pairs if name.startswith("LLAMA_ARG_")}
    return LocalServer(words, variables)


def _words(file: Path) -> list[str]:
    with file.open("rb") as content:
        text = content.read(MAX_BYTES).decode(errors="replace")
    return text.rstrip("\0").split("\0")
