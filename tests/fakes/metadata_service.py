"""EC2's instance metadata service, second version, on loopback: no token, no answer."""

from __future__ import annotations

import asyncio
from typing import Self

TOKEN = "metadata-token"


class FakeMetadataService:
    """Tells `address` as local-ipv4 to who shows the token; anything else but 200 as `status`."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.status = 200
        self.paths: list[str] = []
        self.url = ""
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._talk, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        line, *headers = head.lower().split("\r\n")
        method, path, _ = head.split(" ", 2)
        self.paths.append(f"{method} {path}")
        status, body = self.status, ""
        if status == 200 and line.startswith("put /latest/api/token "):
            is_asked_well = any(
                h.startswith("x-aws-ec2-metadata-token-ttl-seconds:") for h in headers
            )
            status, body = (200, TOKEN) if is_asked_well else (400, "")
        elif status == 200 and line.startswith("get /latest/meta-data/local-ipv4 "):
            has_token = f"x-aws-ec2-metadata-token: {TOKEN}" in headers
            status, body = (200, self.address) if has_token else (401, "")
        elif status == 200:
            status = 404
        writer.write(
            f"HTTP/1.1 {status} X\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n{body}"
            "".encode()
        )
        await writer.drain()
        writer.close()
