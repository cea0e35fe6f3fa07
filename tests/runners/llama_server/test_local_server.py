"""Claims about extproc/runners/llama_server/local_server.py, with real processes and with a
made-up /proc."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import pytest

from extproc.core.address import Address
from extproc.runners.llama_server import local_server
from extproc.runners.llama_server.local_server import (
    LocalServer,
    LocalServers,
    read_local_servers,
)
from tests.fakes.picker import until

HERE = Address("127.0.0.1", 8080)

LISTEN = (
    "import socket, sys\n"
    "s = socket.create_server(('127.0.0.1', 0))\n"
    "print(s.getsockname()[1], flush=True)\n"
    "sys.stdin.read()\n"
)


@contextmanager
def listening(folder: Path, name: str, *arguments: str) -> Iterator[int]:
    """A process of that name; gives the port at which it listens."""
    script = folder / name
    script.write_text(LISTEN)
    with subprocess.Popen(
        [sys.executable, script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "LLAMA_ARG_KV_UNIFIED": "1", "HF_TOKEN": "secret"},
    ) as process:
        assert process.stdout is not None and process.stdin is not None
        yield int(process.stdout.readline())
        process.stdin.close()


async def test_a_server_on_this_machine(tmp_path: Path) -> None:
    """A process called llama-server that listens here is found, with its own variables; the same
    one by another name is not, nor is one at an address of another machine."""
    servers = LocalServers()
    with listening(tmp_path, "llama-server", "-np", "2", "-c", "8192") as port:
        found = await servers.find(Address("127.0.0.1", port))
        assert await servers.find(Address("192.0.2.1", port)) is None
    assert found is not None and found.arguments[-4:] == ["-np", "2", "-c", "8192"]
    assert found.environment == {"LLAMA_ARG_KV_UNIFIED": "1"}
    with listening(tmp_path, "proxy", "-np", "2") as port:
        assert await servers.find(Address("127.0.0.1", port)) is None


async def test_nothing_listens() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        assert await LocalServers().find(Address("127.0.0.1", unused.getsockname()[1])) is None


async def test_a_server_that_takes_a_port_over_is_read_anew(tmp_path: Path) -> None:
    """What was read of the one before is not what the next one has."""
    servers = LocalServers(proc_of(tmp_path, b"llama-server\0-np\0001\0"))
    before = await servers.find(HERE)
    assert before is not None and before.arguments == ["llama-server", "-np", "1"]
    (tmp_path / "7" / "cmdline").write_bytes(b"llama-server\0-np\0008\0")
    after = await servers.find(HERE)
    assert after is not None and after.arguments == ["llama-server", "-np", "8"]


async def test_all_who_ask_meanwhile_share_one_reading(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The one that has begun before they asked may have missed their servers, so it is the next."""
    server = LocalServer(["llama-server"], {})
    may_end = Event()
    readings: list[dict[int, LocalServer]] = []

    def read(_: Path) -> dict[int, LocalServer]:
        readings.append({8080 + number: server for number in range(len(readings) * 40)})
        assert may_end.wait(60.0)
        return readings[-1]

    monkeypatch.setattr(local_server, "read_local_servers", read)
    servers = LocalServers(tmp_path)
    first = asyncio.create_task(servers.find(HERE))
    await until(lambda: len(readings) == 1)
    others = [
        asyncio.create_task(servers.find(Address("127.0.0.1", 8080 + number)))
        for number in range(40)
    ]
    await asyncio.sleep(0)  # each has asked
    may_end.set()
    assert await first is None
    assert await asyncio.gather(*others) == [server] * 40
    assert len(readings) == 2


def proc_of(folder: Path, command: bytes, port: str = "1F90", state: str = "0A") -> Path:
    """A /proc with one process, 7, that has the socket 99."""
    (folder / "self" / "net").mkdir(parents=True)
    line = f"0: 00000000:{port} 00000000:0000 {state} 0 0 0 0 0 99 1"
    (folder / "self" / "net" / "tcp").write_text(f"header\n{line}\nodd\n")
    (folder / "7" / "fd").mkdir(parents=True)
    (folder / "7" / "fd" / "3").symlink_to("socket:[99]")
    (folder / "7" / "fd" / "2").symlink_to("/dev/null")
    (folder / "7" / "fd" / "1").write_text("no link")
    (folder / "7" / "cmdline").write_bytes(command)
    (folder / "7" / "environ").write_bytes(b"LLAMA_ARG_CTX_SIZE=512\0odd\0")
    (folder / "8").mkdir()  # one whose files are not to be read
    (folder / "sys").mkdir()
    return folder


@pytest.mark.parametrize(
    ("command", "is_found"),
    [
        (b"/opt/llama-server\0-c\0", True),
        (b"llama_server.exe\0", True),
        (b"sh\0./llama-server\0", True),
        (b"llama\0serve\0", True),
        (b"nginx\0", False),
        (b"ollama\0runner\0--model\0llama-server\0", False),
        (b"", False),
    ],
)
def test_what_is_taken_for_a_llama_server(tmp_path: Path, command: bytes, is_found: bool) -> None:
    found = read_local_servers(proc_of(tmp_path, command))
    words = command.decode().rstrip("\0").split("\0")
    server = LocalServer(words, {"LLAMA_ARG_CTX_SIZE": "512"})
    assert found == ({8080: server} if is_found else {})


def test_other_ports_and_connections_are_not_it(tmp_path: Path) -> None:
    other = read_local_servers(proc_of(tmp_path / "a", b"llama-server", port="1F91"))
    assert other.keys() == {8081}
    assert not read_local_servers(proc_of(tmp_path / "b", b"llama-server", state="01"))
    assert not read_local_servers(tmp_path / "no-proc")
    gone = proc_of(tmp_path / "c", b"llama-server")
    (gone / "7" / "cmdline").unlink()
    assert not read_local_servers(gone)
