"""h2spec, the conformance test of RFC 9113 and RFC 7541, against our server; needs Go."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

from extproc.transport import ServiceTable
from extproc.transport.http2.frames import DEFAULT_FRAME_BYTES
from extproc.transport.http2.header_blocks import DEFAULT_TABLE_BYTES
from extproc.transport.http2.limits import Limits
from extproc.transport.http2_server import Http2Server
from extproc.transport.limits import TransportLimits
from tests.transport.peer import Echo

H2SPEC = "github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible"
TESTS = 145
RUNS = 4
READ_EVERY_S = 0.002
CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "coxswain/h2spec"

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(shutil.which("go") is None, reason="h2spec is a program in Go"),
]


async def h2spec() -> Path:
    """The program; it is built once."""
    program = CACHE / "h2spec"
    if not program.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "GOBIN": str(CACHE), "GOFLAGS": "-mod=mod"}
        build = await asyncio.create_subprocess_exec(
            *("go", "install", H2SPEC),
            env=environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await build.communicate()
        text = output.decode()
        if build.returncode and "dial tcp" in text:
            pytest.skip(f"h2spec is not built, and Go reaches no module proxy: {text[-200:]}")
        assert build.returncode == 0, text
    return program


async def faults(port: int, report: Path) -> dict[str, str]:
    """What one run found: a line for each of its tests that did not pass."""
    run = await asyncio.create_subprocess_exec(
        *(await h2spec(), "-h", "127.0.0.1", "-p", str(port), "-o", "10", "-j", report),
        stdout=asyncio.subprocess.DEVNULL,
    )
    await run.wait()
    cases = list(ElementTree.parse(report).iter("testcase"))
    assert len(cases) == TESTS
    return {
        f"{case.get('package')}: {case.get('classname')}": f"{case[0].tag}: {case[0].text}"
        for case in cases
        if len(case)
    }


async def read_seldom() -> None:
    """Let this event loop, and so the server, read only every 2 ms."""
    while True:
        time.sleep(READ_EVERY_S)  # noqa: ASYNC251 - it blocks the loop
        await asyncio.sleep(0)


async def test_every_rule(tmp_path: Path) -> None:
    """All of generic, http2 and hpack. The sizes of frames and of the dynamic table are HTTP/2's
    defaults here: three tests take them for granted, whatever the server's settings say (RFC 9113,
    section 4.2: a frame may have the size that the receiver advertises; RFC 7541, section 6.3: a
    table's size that exceeds the limit is a decoding error).

    A test that breaks a rule on an open stream races with the response: a server may end a stream
    with RST_STREAM and NO_ERROR once it has sent a complete response (section 8.1), and if that
    comes first, the test sees the wrong code. So the server reads seldom: the headers and the frame
    that breaks the rule arrive together. If a test fails even so, the run is repeated: what breaks
    a rule breaks it each time."""
    http2 = Limits(frame_bytes=DEFAULT_FRAME_BYTES, table_bytes=DEFAULT_TABLE_BYTES)
    limits = TransportLimits(http2=http2)
    table: ServiceTable = {"/test/Echo": Echo}
    server = Http2Server(table, time.monotonic, limits)
    port = server.bind("127.0.0.1", 0)
    await server.start()
    reader = asyncio.create_task(read_seldom())
    try:
        broken = await faults(port, tmp_path / "0.xml")
        for run in range(1, RUNS):
            if not broken:
                break
            broken = await faults(port, tmp_path / f"{run}.xml")
    finally:
        reader.cancel()
        await server.stop(0.0)
    assert not broken
