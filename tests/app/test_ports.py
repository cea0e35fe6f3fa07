"""Claims about extproc/app/ports.py, over real sockets."""

from __future__ import annotations

import socket

import grpc
import pytest

from extproc.app.ports import ListenError, bind

OWN = (("grpc.so_reuseport", 0),)


async def test_the_port_that_was_had_is_reported() -> None:
    """0 asks for any free one."""
    server = grpc.aio.server(options=OWN)
    port = bind(server, "127.0.0.1:0", "listen.grpc")
    try:
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
    finally:
        await server.stop(None)


@pytest.mark.parametrize("credentials", [None, grpc.local_server_credentials()])
async def test_one_that_is_taken_is_named_with_its_setting(
    credentials: grpc.ServerCredentials | None,
) -> None:
    """With TLS as without: the operator reads what to change."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        place = f"127.0.0.1:{other.getsockname()[1]}"
        server = grpc.aio.server(options=OWN)
        try:
            with pytest.raises(ListenError, match=f"cannot listen on {place}.*change listen.admin"):
                bind(server, place, "listen.admin", credentials)
        finally:
            await server.stop(None)


async def test_an_address_of_somebody_else_is_rejected_the_same_way() -> None:
    server = grpc.aio.server(options=OWN)
    try:
        with pytest.raises(ListenError, match=r"cannot listen on 192\.0\.2\.1:9002"):
            bind(server, "192.0.2.1:9002", "listen.grpc")
    finally:
        await server.stop(None)
