"""The command line of a server that runs on this machine, from /proc.

A server does not say how it was started. If it listens on this machine and belongs to the same
user, the kernel does. Anything else is no error: then it is not known.
"""

import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from extproc.core.address import Address

PROC: Final = Path("/proc")
_LISTENING: Final = "0A"
_NAME: Final = re.compile(r"llama([-_]server)?(\.exe)?", re.IGNORECASE)
MAX_BYTES: Final = 1 << 20
"""More than any command line or environment."""


class LocalServer(NamedTuple):
    """How a llama-server was started: its arguments, and the variables that are for it."""

    arguments: list[str]
    environment: dict[str, str]


def find_local_server(address: Address, proc: Path = PROC) -> LocalServer | None:
    """The llama-server that listens at `address`, None if it is not here or not to be read. Blocks
    for some milliseconds: it goes through the open files of all processes of this user."""
    try:
        if not _is_here(address.host):
            return None
        sockets = {f"socket:[{inode}]" for inode in _listeners(address.port, proc)}
        for process in _owners(sockets, proc) if sockets else ():
            found = _read(process)
            if found is not None:
                return found
    except OSError:
        pass
    return None


def _is_here(host: str) -> bool:
    """Whether the address is one of this machine."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return False
    return True


def _listeners(port: int, proc: Path) -> Iterator[str]:
    """The inodes of sockets that listen on that port, on any address."""
    for name in ("tcp", "tcp6"):
        table = proc / "self" / "net" / name
        if not table.is_file():
            continue
        for line in table.read_text().splitlines()[1:]:
            columns = line.split()
            is_listening = len(columns) > 9 and columns[3] == _LISTENING
            if is_listening and int(columns[1].rpartition(":")[2], 16) == port:
                yield columns[9]


def _owners(sockets: set[str], proc: Path) -> Iterator[Path]:
    """The processes that have one of the sockets open."""
    for process in proc.iterdir():
        if not process.name.isdecimal():
            continue
        try:
            files = list((process / "fd").iterdir())
        except OSError:
            continue  # of another user, or gone
        for file in files:
            try:
                target = os.readlink(file)
            except OSError:
                continue
            if target in sockets:
                yield process
                break


def _read(process: Path) -> LocalServer | None:
    """How the process was started, None if it is no llama-server, but a proxy, for example."""
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
