"""Machines with networks of their own: network namespaces, joined by veth pairs that can be cut.

A cut is silent, as that of a cable far away: both ends send to a hardware address that nobody has,
and no connection is told. What does not go over a link crosses by relays, so each machine finds the
servers of the test on its own loopback, and the test finds the machine's ports on its own.
Needs root, and the programs of iproute2 and util-linux.
"""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import os
import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path

from extproc.demo.process import Child, Children

CLONE_NEWNET = 0x40000000
NO_ADDRESS = "02:00:00:00:00:ff"
PROGRAMS = ("ip", "nsenter", "unshare")
MISSING = "needs root, ip, nsenter and unshare"
HERE = os.getpid()
SERIALS = itertools.count(1)
CHUNK_BYTES = 64 * 1024


def is_possible() -> bool:
    """Whether this process may make namespaces."""
    return os.geteuid() == 0 and all(map(shutil.which, PROGRAMS))


@contextmanager
def inside(pid: int) -> Iterator[None]:
    """Sockets that are made in this block belong to the network of that process."""
    libc = ctypes.CDLL(None, use_errno=True)
    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        target = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
        try:
            if libc.setns(target, CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
            try:
                yield
            finally:
                if libc.setns(own, CLONE_NEWNET):
                    os._exit(1)  # everything else would happen in the wrong network
        finally:
            os.close(target)
    finally:
        os.close(own)


class InNamespace(Children):
    """Children that run in the network of a machine."""

    def __init__(self, folder: Path, pid: int) -> None:
        super().__init__(folder)
        self._pid = pid

    async def start(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        environment: Mapping[str, str] | None = None,
    ) -> Child:
        entered = ["nsenter", f"--net=/proc/{self._pid}/ns/net", *command]
        return await super().start(name, entered, environment=environment)


class Networks:
    """All machines and links; use it as `async with`. The machine "hub" is the test itself."""

    def __init__(self) -> None:
        self._pids: dict[str, int] = {"hub": HERE}
        self._links: dict[frozenset[str], dict[str, tuple[str, str]]] = {}
        self._exits = AsyncExitStack()
        self._relays: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Networks:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in list(self._relays):
            task.cancel()
        await asyncio.gather(*self._relays, return_exceptions=True)
        await self._exits.aclose()

    def pid(self, name: str) -> int:
        """A process in the network of this machine."""
        return self._pids[name]

    async def add(self, name: str) -> None:
        """A machine with a loopback."""
        process = await asyncio.create_subprocess_exec(
            *("unshare", "--net", "sh", "-c", "ip link set lo up && echo up && exec sleep 3600"),
            stdout=asyncio.subprocess.PIPE,
        )

        async def end() -> None:
            process.kill()
            await process.wait()

        self._exits.push_async_callback(end)
        assert process.stdout is not None
        assert await process.stdout.readline() == b"up\n"
        self._pids[name] = process.pid

    async def link(self, one: str, other: str, number: int) -> None:
        """Join two machines; they have the addresses 10.77.`number`.1 and .2."""
        ends = {}
        pair = f"cx{HERE % 100_000}-{next(SERIALS)}"
        devices = {one: f"{pair}a", other: f"{pair}b"}
        await _run("ip", "link", "add", devices[one], "type", "veth", "peer", devices[other])
        for last, name in enumerate((one, other), start=1):
            device, address = devices[name], f"10.77.{number}.{last}"
            if name != "hub":
                await _run("ip", "link", "set", device, "netns", str(self._pids[name]))
            await self._in(name, "ip", "address", "add", f"{address}/30", "dev", device)
            await self._in(name, "ip", "link", "set", device, "up")
            ends[name] = (device, address)
            if name == "hub":  # the kernel would remove it some time later, with the machine
                self._exits.push_async_callback(_run, "ip", "link", "delete", device)
        self._links[frozenset((one, other))] = ends

    def address(self, of: str, by: str) -> str:
        """Where one machine reaches another one."""
        return self._links[frozenset((of, by))][of][1]

    async def cut(self, one: str, other: str) -> None:
        """From now on nothing passes, in either direction."""
        await self._each_end(one, other, "replace", "lladdr", NO_ADDRESS, "nud", "permanent")

    async def heal(self, one: str, other: str) -> None:
        """Everything passes again."""
        await self._each_end(one, other, "delete")

    async def _each_end(self, one: str, other: str, what: str, *more: str) -> None:
        ends = self._links[frozenset((one, other))]
        for here, there in ((one, other), (other, one)):
            device, address = ends[here][0], ends[there][1]
            await self._in(here, "ip", "neighbour", what, address, *more, "dev", device)

    async def _in(self, name: str, *command: str) -> None:
        if name == "hub":
            await _run(*command)
        else:
            await _run("nsenter", f"--net=/proc/{self._pids[name]}/ns/net", *command)

    async def relay(self, port: int, listens: str, connects: str) -> None:
        """What connects to this port on the loopback of one machine reaches that of another."""
        with inside(self._pids[listens]):
            listener = socket.create_server(("127.0.0.1", port), backlog=1000)

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._relays.add(task)
            task.add_done_callback(self._relays.discard)
            with suppress(OSError, asyncio.CancelledError):
                await self._pass_on(port, connects, reader, writer)

        server = await asyncio.start_server(accept, sock=listener)

        async def end() -> None:
            server.close()
            await server.wait_closed()

        self._exits.push_async_callback(end)

    async def _pass_on(
        self, port: int, to: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with inside(self._pids[to]):
            end = socket.socket()
        end.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(end, ("127.0.0.1", port))
        except BaseException:
            end.close()
            writer.transport.abort()
            raise
        there, back = await asyncio.open_connection(sock=end)
        try:
            await asyncio.gather(_copy(reader, back), _copy(there, writer))
        finally:
            writer.transport.abort()
            back.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(CHUNK_BYTES):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


async def _run(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    _, problem = await process.communicate()
    assert process.returncode == 0, (command, problem)
