"""The load: closed loops over keep-alive connections, run in a process of its own.

`python -m bench.load` takes the arguments of `generate` as JSON, and prints one JSON line with the
latencies' percentiles in milliseconds and the rate. Bounded in time and in connections.
"""

import asyncio
import json
import sys
import time
from dataclasses import asdict, dataclass

from bench.process import call

PATH = "/v1/chat/completions"
PACE = 1.0
"""By which factor every run under load is stretched; `--quick` makes them short."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a run of the load measured. Latencies are milliseconds."""

    rate: float
    p50_ms: float
    p99_ms: float
    longest_ms: float
    requests: int
    failures: int


async def generate(
    port: int, connections: int, seconds: float, body_bytes: int = 0, pause_s: float = 0.0
) -> Load:
    """Send requests for `seconds`, one at a time on each connection, with a pause after each."""
    body = chat_body(body_bytes)
    request = head(PATH, body) + body
    latencies: list[float] = []
    failures = 0
    deadline = time.perf_counter() + seconds

    async def loop() -> None:
        nonlocal failures
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while (began := time.perf_counter()) < deadline:
            writer.write(request)
            answer = await reader.readuntil(b"\r\n\r\n")
            await _read_body(reader, answer)
            latencies.append(time.perf_counter() - began)
            failures += not answer.startswith(b"HTTP/1.1 200")
            if pause_s:
                await asyncio.sleep(pause_s)
        writer.close()

    began = time.perf_counter()
    await asyncio.gather(*(loop() for _ in range(connections)))
    elapsed = time.perf_counter() - began
    latencies.sort()
    return Load(
        rate=len(latencies) / elapsed,
        p50_ms=1000 * latencies[len(latencies) // 2],
        p99_ms=1000 * latencies[int(len(latencies) * 0.99)],
        longest_ms=1000 * latencies[-1],
        requests=len(latencies),
        failures=failures,
    )


async def run(port: int, connections: int, seconds: float, body_bytes: int = 0) -> Load:
    """The same in a process of its own, so that it does not share our interpreter.

    It takes `PACE` times as long.
    """
    found = await call(
        "bench.load",
        port=port,
        connections=connections,
        seconds=PACE * seconds,
        body_bytes=body_bytes,
    )
    return Load(**found)


async def _read_body(reader: asyncio.StreamReader, answer: bytes) -> None:
    if b"transfer-encoding: chunked" in answer:
        await reader.readuntil(b"\r\n0\r\n\r\n")
    else:
        await reader.readexactly(content_length(answer))


def head(path: str, body: bytes) -> bytes:
    """The head of a request with this body."""
    return (
        f"POST {path} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    ).encode()


def content_length(head: bytes) -> int:
    """The length of the body behind this head of a response."""
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    raise ValueError("an answer without content-length")


def chat_body(size: int) -> bytes:
    """A chat request of about `size` bytes."""
    content = "row the boat " * max(1, (size - 80) // 13)
    message = {"role": "user", "content": content}
    return json.dumps({"model": "tiny", "messages": [message], "max_tokens": 8}).encode()


if __name__ == "__main__":
    print(json.dumps(asdict(asyncio.run(generate(**json.loads(sys.argv[1]))))))
