"""The data plane's port with any services, over each of its transports."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, TypeAlias

from extproc.transport import ServiceTable
from extproc.transport.grpcio_server import GrpcioServer
from extproc.transport.http2_server import Http2Server

TRANSPORTS: Final = ("builtin", "grpcio")


class Chosen:
    """The transport that `serving` uses; the fixture `each_transport` sets it."""

    transport = "builtin"


Server: TypeAlias = Http2Server | GrpcioServer


def bound_server(table: ServiceTable, transport: str | None = None) -> tuple[Server, int]:
    """A server that listens on a free loopback port, and that port."""
    server: Server
    if (transport or Chosen.transport) == "grpcio":
        server = GrpcioServer(table)
    else:
        server = Http2Server(table, time.monotonic)
    return server, server.bind("127.0.0.1", 0)


@asynccontextmanager
async def serving(table: ServiceTable, transport: str | None = None) -> AsyncIterator[int]:
    """Serve the table, and yield the port."""
    server, port = bound_server(table, transport)
    await server.start()
    try:
        yield port
    finally:
        await server.stop(0.0)
