"""One HTTP/1.1 request as the bytes that a test wants, which no client library would send."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

ANSWER_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RawAnswer:
    """`status` is 0 when the connection ended without an answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes


async def ask(
    port: int, method: str, target: str, headers: Mapping[str, str] | None = None
) -> RawAnswer:
    """Send one request without a body to loopback, and read its answer."""
    lines = [f"{method} {target} HTTP/1.1", "host: test"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    if method not in {"GET", "HEAD"}:
        lines.append("content-length: 0")
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            return await _read(reader, has_body=method != "HEAD")
    except (asyncio.IncompleteReadError, ConnectionError):
        return RawAnswer(status=0, headers={}, body=b"")
    finally:
        writer.close()


async def _read(reader: asyncio.StreamReader, *, has_body: bool) -> RawAnswer:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *rest = head.decode("latin-1").strip().split("\r\n")
    pairs = (line.partition(":") for line in rest)
    found = {name.lower(): value.strip() for name, _, value in pairs}
    body = await reader.readexactly(int(found.get("content-length", "0")) if has_body else 0)
    return RawAnswer(status=int(first.split()[1]), headers=found, body=body)
