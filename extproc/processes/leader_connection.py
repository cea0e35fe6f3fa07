"""Connects with the core of another machine, through its port for members."""

import asyncio
from collections.abc import Callable
from typing import Any, Final, cast

from extproc.pb.coxswain.cluster.v1 import link_pb2 as pb
from extproc.processes.cluster_access import client_context, member_token
from extproc.processes.fronts.handshake import HandshakeClient
from extproc.processes.fronts.network_frames import VERSION
from extproc.settings.cluster_section import ClusterSettings
from extproc.settings.values import split_host_port

CONNECT_S: Final = 5.0


async def connect_with_leader(
    cluster: ClusterSettings,
    term: dict[str, Any],
    purpose: pb.Greeting.Purpose,
    make: Callable[[], asyncio.Protocol],
    *,
    front: str = "",
    peer: str = "",
) -> None:
    """Greet the leader of `term`; then the protocol of `make` goes on with the connection.

    `front` is the name of the one that follows it, `peer` the host whose connection is passed on.
    Raises `OSError`, `HandshakeError`, `TimeoutError`, and `SettingsError` for this member's files;
    no connection is left then.
    """
    greeting = pb.Greeting(
        purpose=purpose,
        cluster=cluster.name,
        token=member_token(cluster),
        front=front,
        leader_id=term["leader"],
        epoch=term["epoch"],
        version=VERSION,
        peer=peer,
    )
    loop = asyncio.get_running_loop()
    greeter = HandshakeClient(greeting, make, loop)
    host, port = split_host_port(term["address"])
    context = client_context(cluster)
    async with asyncio.timeout(CONNECT_S):
        # TLS is a step of its own: with `ssl`, uvloop's `create_connection` may leave a future when
        # it is cancelled, whose error is logged as never retrieved.
        transport, _ = await loop.create_connection(asyncio.Protocol, host, port)
        try:
            if transport.is_closing():
                raise ConnectionResetError("the connection ended")
            if context is not None:
                encrypted = loop.start_tls(transport, greeter, context, server_hostname=host)
                transport = cast("asyncio.Transport", await encrypted)
            else:
                transport.set_protocol(greeter)
            greeter.connection_made(transport)
            await greeter.done
        except BaseException:
            transport.abort()
            raise
