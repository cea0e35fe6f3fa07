"""Claims about extproc/runners/llama_server/local_server.py, with real processes and with a
made-up /proc."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from extproc.core.address import Address
from extproc.runners.llama_server.local_server import LocalServer, find_local_server

LISTEN = (
    "import socket, sys\n"
    "s = socket.create_server(('127.0.0.1', 0))\n"
    "print(s.getsockname()[1], flush=True)\n"
    "sys.stdin.read()\n"
)


def test_a_server_on_this_machine(tmp_path: Path) -> None:
    """A process called llama-server that listens here is found, with its own variables; the same
    one by another name is not, nor is one at an address of another machine."""
    for name, is_found in (("llama-server", True), ("proxy", False)):
        script = tmp_path / name
        script.write_text(LISTEN)
        with subprocess.Popen(
            [sys.executable, script, "-np", "2", "-c", "8192"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "LLAMA_ARG_KV_UNIFIED": "1", "HF_TOKEN": "secret"},
        ) as process:
            assert process.stdout is not None and process.stdin is not None
            port = int(process.stdout.readline())
            found = find_local_server(Address("127.0.0.1", port))
            elsewhere = find_local_server(Address("192.0.2.1", port))
            process.stdin.close()
        assert elsewhere is None
        if not is_found:
            assert found is None
            continue
        assert found is not None and found.arguments[-4:] == ["-np", "2", "-c", "8192"]
        assert found.environment == {"LLAMA_ARG_KV_UNIFIED": "1"}


def test_nothing_listens() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        assert find_local_server(Address("127.0.0.1", unused.getsockname()[1])) is None


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
    found = find_local_server(Address("127.0.0.1", 8080), proc_of(tmp_path, command))
    words = command.decode().rstrip("\0").split("\0")
    assert found == (LocalServer(words, {"LLAMA_ARG_CTX_SIZE": "512"}) if is_found else None)


def test_other_ports_and_connections_are_not_it(tmp_path: Path) -> None:
    here = Address("127.0.0.1", 8080)
    assert find_local_server(here, proc_of(tmp_path / "a", b"llama-server", port="1F91")) is None
    assert find_local_server(here, proc_of(tmp_path / "b", b"llama-server", state="01")) is None
    assert find_local_server(here, tmp_path / "no-proc") is None
    gone = proc_of(tmp_path / "c", b"llama-server")
    (gone / "7" / "cmdline").unlink()
    assert find_local_server(here, gone) is None
