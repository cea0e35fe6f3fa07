"""The data plane's port with any services."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from extproc.transport import ServiceTable
from extproc.transport.http2_server import Http2Server


def bound_server(table: ServiceTable) -> tuple[Http2Server, int]:
    """A server that listens on a free loopback port, and that port."""
    server = Http2Server(table, time.monotonic)
    return server, server.bind("127.0.0.1", 0)


@asynccontextmanager
async def serving(table: ServiceTable) -> AsyncIterator[int]:
    """Serve the table, and yield the port."""
    server, port = bound_server(table)
    await server.start()
    try:
        yield port
    finally:
        await server.stop(0.0)
