"""Listens on a port, or explains why it cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import grpc


class ListenError(OSError):
    """Listening failed; `str(error)` says on which port and what to do."""


def bind(
    server: grpc.aio.Server,
    address: str,
    setting: str,
    credentials: grpc.ServerCredentials | None = None,
) -> int:
    """Let `server` listen on `address`, named by `setting`; returns the port it got.

    Raises `ListenError`.
    """
    try:
        if credentials is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, credentials)
    except RuntimeError:
        port = 0
    if port == 0:
        raise ListenError(
            f"cannot listen on {address}: check whether it is in use, or change {setting}"
        )
    return port
