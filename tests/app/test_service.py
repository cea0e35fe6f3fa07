"""Claims about the start of extproc/app/service.py."""

from __future__ import annotations

import asyncio
import socket

import pytest

from extproc.app import ListenError, Service
from extproc.demo.port import free_ports
from extproc.settings import Settings


@pytest.mark.parametrize("taken", ["grpc", "admin", "http"])
async def test_a_port_that_is_taken_is_named_and_the_others_are_let_go(taken: str) -> None:
    """So the process can end, or try again, as if it had never been started."""
    names = ("grpc", "admin", "http")
    listen = dict(zip(names, free_ports(len(names)), strict=True))
    with socket.create_server(("127.0.0.1", listen[taken])):
        settings = Settings.model_validate(
            {"listen": {name: f"127.0.0.1:{port}" for name, port in listen.items()}}
        )
        with pytest.raises(ListenError, match=rf"listen\.{taken}"):
            await Service(settings).start()
        for name in {"admin", "http"} - {taken}:
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", listen[name])
