"""EC2's instance metadata service, second version, on loopback: no token, no answer."""

from __future__ import annotations

import asyncio
from typing import Self

from tests.fakes.listener import Listener

TOKEN = "metadata-token"


class FakeMetadataService:
    """Tells `address` as local-ipv4 to who shows the token; anything else but 200 as `status`."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.status = 200
        self.paths: list[str] = []
        self.url = ""
        self._listener = Listener(self._talk)

    async def __aenter__(self) -> Self:
        self.url = f"http://{await self._listener.start()}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._listener.close()

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
