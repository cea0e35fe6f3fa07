"""The clients: keep-alive connections that send one request after the other, and a prober.

`python -m rigs.soak.clients --port P --requests N` prints a JSON line for each tick: how each
request so far has ended, and the latencies since the previous line. The last line has `is_done`.
Requests differ: streamed or not, in prompt, tenant and session, in how long they may wait, and
some clients leave before the answer, over HTTP/1.1 or, on a connection of their own, HTTP/2; where
Node is installed, some of these are its own clients. The prober asks for something that takes no
slot, again and again: what it waits for is the way through Envoy and the picker, not a slot.
"""

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from h2.exceptions import ProtocolError

from rigs.leaving import NODE_WAYS, WAYS, Http2Call, Way, leave
from rigs.node_client import NodeClient, node_client

HOST = "127.0.0.1"
PATH = "/v1/chat/completions"
TICK_S = 0.5
PATIENCE_MS = (1, 10, 25, 50, 100, 250, 10_000, 10_000)
"""Most of them are too short for the queue that forms; the shortest ends within one turn."""
TENANTS = 50
SESSIONS = 1_000_000
"""Large enough that most sessions are new: the picker's memory of sessions must be bounded."""
LEAVES = 0.03
LEAVES_WITHIN_S = 0.1
PROBE_PAUSE_S = 0.02
NO_ANSWER_S = 60.0

SERVED = "served"
LEFT = "left"
BROKEN = "broken"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked, over either HTTP."""

    path: str
    method: str = "POST"
    headers: Sequence[tuple[str, str]] = ()
    body: bytes = b""


class Report:
    """What came of the requests so far, and the latencies since it was last printed."""

    def __init__(self) -> None:
        self.sent = 0
        self.outcomes: Counter[str] = Counter()
        self._served_s: list[float] = []
        self._probes_s: list[float] = []

    def served(self, seconds: float) -> None:
        self.outcomes[SERVED] += 1
        self._served_s.append(seconds)

    def probed(self, seconds: float) -> None:
        self._probes_s.append(seconds)

    def print(self, *, is_done: bool = False) -> None:
        line = {
            "sent": self.sent,
            "outcomes": self.outcomes,
            "served_ms": _percentiles_ms(self._served_s),
            "probe_ms": _percentiles_ms(self._probes_s),
            "is_done": is_done,
        }
        print(json.dumps(line), flush=True)
        self._served_s.clear()
        self._probes_s.clear()


def _percentiles_ms(seconds: list[float]) -> tuple[float, float] | None:
    """The median and the 99th percentile."""
    if not seconds:
        return None
    seconds.sort()
    return 1000 * seconds[len(seconds) // 2], 1000 * seconds[int(len(seconds) * 0.99)]


class Connection:
    """One connection, reopened after it was closed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: Request) -> tuple[int, dict[str, str]]:
        """Send it and read the whole answer: its status and headers."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(HOST, self._port)
        reader, writer = self._streams
        writer.write(_as_http1(request))
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        lines = head.split("\r\n")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines[1:] if line)
        }
        await _read_body(reader, headers)
        if headers.get("connection") == "close":
            self.close()
        return int(lines[0].split(" ", 2)[1]), headers

    async def leave(self, way: Way) -> None:
        """Leave what it waits for."""
        streams, self._streams = self._streams, None
        if streams is not None:
            await leave(*streams, way)

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None


async def _read_body(reader: asyncio.StreamReader, headers: dict[str, str]) -> None:
    if headers.get("transfer-encoding") != "chunked":
        await reader.readexactly(int(headers["content-length"]))
        return
    while size := int(await reader.readuntil(b"\r\n"), 16):
        await reader.readexactly(size + 2)
    await reader.readuntil(b"\r\n")


def _as_http1(request: Request) -> bytes:
    fields = [("host", "soak"), *request.headers]
    head = "".join(f"{name}: {value}\r\n" for name, value in fields)
    return f"{request.method} {request.path} HTTP/1.1\r\n{head}\r\n".encode() + request.body


async def ask_over_http2(port: int, request: Request, way: Way) -> tuple[int, dict[str, str]]:
    """Ask on a new connection; its status and headers. Leaves it in this way when cancelled."""
    call = await Http2Call.open(HOST, port)
    try:
        call.send(request.path, request.headers, request.body)
        await call.read_on()
    finally:
        await call.leave(Way.H2_FIN if call.is_whole else way)
    return call.status, call.headers


def draw_request(source: Random) -> Request:
    """One request of the mixed load."""
    content = f"Verse {source.randrange(100)}: " + "row the boat " * source.randrange(1, 40)
    body = json.dumps(
        {
            "model": "tiny",
            "messages": [{"role": "user", "content": content + str(source.random())}],
            "max_tokens": 4,
            "stream": source.random() < 0.5,
        }
    ).encode()
    headers = [
        ("content-type", "application/json"),
        ("x-coxswain-queue-timeout-ms", str(source.choice(PATIENCE_MS))),
        ("x-gateway-inference-fairness-id", f"tenant-{source.randrange(TENANTS)}"),
        ("content-length", str(len(body))),
    ]
    if source.random() < 0.3:
        headers.append(("x-session-id", str(source.randrange(SESSIONS))))
    return Request(path=PATH, headers=headers, body=body)


class LeftError(Exception):
    """A client has left its request, as it was to do."""


async def ask_of_node(
    node: NodeClient, id_: str, port: int, request: Request, way: Way, leaves_after_s: float
) -> tuple[int, dict[str, str]]:
    """Ask with a client of Node's, which may leave in its way. Raises `LeftError` if it did, and
    `ConnectionResetError` if the response broke off."""
    headers = dict(request.headers)
    ended = await node.ask(id_, port, request.path, headers, request.body, way, leaves_after_s)
    if ended.has_left:
        raise LeftError
    if not ended.is_whole:
        raise ConnectionResetError(ended.error)
    return ended.status, dict(ended.headers)


async def _client(
    port: int, requests: int, source: Random, report: Report, node: NodeClient | None
) -> None:
    connection = Connection(port)
    ways = WAYS if node is None else WAYS + NODE_WAYS
    while report.sent < requests:
        report.sent += 1
        leaves = source.random() < LEAVES
        way = source.choice(ways) if leaves else Way.FIN
        limit_s = source.random() * LEAVES_WITHIN_S if leaves else NO_ANSWER_S
        request = draw_request(source)
        began = time.perf_counter()
        try:
            async with asyncio.timeout(None if way.is_of_node else limit_s):
                if way.is_of_node and node is not None:
                    status, headers = await ask_of_node(
                        node, str(report.sent), port, request, way, limit_s
                    )
                elif way.is_http2:
                    status, headers = await ask_over_http2(port, request, way)
                else:
                    status, headers = await connection.ask(request)
        except LeftError:
            report.outcomes[LEFT] += 1
        except TimeoutError:
            report.outcomes[LEFT if leaves else f"{BROKEN}: no answer"] += 1
            if not way.is_http2:
                await connection.leave(way)
        except (OSError, ProtocolError, asyncio.IncompleteReadError, KeyError, ValueError) as error:
            report.outcomes[f"{BROKEN}: {type(error).__name__}"] += 1
            connection.close()
        else:
            if status == 200:
                report.served(time.perf_counter() - began)
            elif reason := headers.get("x-coxswain-reason"):
                report.outcomes[reason] += 1
            else:
                report.outcomes[f"{BROKEN}: status {status}"] += 1
    connection.close()


async def _prober(port: int, report: Report) -> None:
    connection = Connection(port)
    while True:
        began = time.perf_counter()
        await connection.ask(Request(method="GET", path="/health"))
        report.probed(time.perf_counter() - began)
        await asyncio.sleep(PROBE_PAUSE_S)


async def send(port: int, requests: int, connections: int, seed: int) -> None:
    """Send them all and print a line for each tick."""
    source, report = Random(seed), Report()
    async with node_client(_say) as node:
        clients = asyncio.gather(
            *(
                _client(port, requests, Random(source.random()), report, node)
                for _ in range(connections)
            )
        )
        prober = asyncio.create_task(_prober(port, report))
        while not clients.done():
            await asyncio.wait({clients}, timeout=TICK_S)
            if prober.done():
                prober.result()
            if not clients.done():
                report.print()
        clients.result()
        prober.cancel()
    report.print(is_done=True)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--requests", type=int, required=True)
    parser.add_argument("--connections", type=int, default=48)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    asyncio.run(send(given.port, given.requests, given.connections, given.seed))


if __name__ == "__main__":
    main()
