"""A stand-in server behind TLS with a key, all of whose connections are looked into."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.one_process import server_side
from tests.fakes.authority import Authority
from tests.fakes.llama_server import FakeLlamaServer
from tests.fakes.wiretap import Wiretap

KEY = "sk-behind-tls"


@dataclass
class Secured:
    """Use as `async with secured(folder) as secret`."""

    server: FakeLlamaServer
    tap: Wiretap
    authority: Authority
    key_file: Path

    @property
    def named(self) -> dict[str, Any]:
        """As the settings name it."""
        return {
            "address": f"https://{self.tap.address}",
            "ca_file": str(self.authority.ca),
            "server_name": "localhost",
            "api_key_file": str(self.key_file),
            "inject_key": True,
        }

    @property
    def served(self) -> int:
        """How many requests of clients it got."""
        return sum("mine" in asked.query for asked in self.server.asked)


@asynccontextmanager
async def secured(folder: Path, name: str = "authority") -> AsyncIterator[Secured]:
    authority = Authority(folder, name)
    key_file = folder / f"{name}.key.txt"
    key_file.write_text(KEY)
    context = server_side(authority.issue(f"{name}-server"))
    async with FakeLlamaServer(tls=context) as server, Wiretap(server.address) as tap:
        server.api_key = KEY
        yield Secured(server, tap, authority, key_file)


def write(file: Path, *endpoints: dict[str, Any] | str) -> None:
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps({"endpoints": endpoints}))
    fresh.replace(file)
