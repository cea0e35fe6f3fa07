"""KEDA's port: its external scaler, on a gRPC server of its own, because KEDA sends no token."""

from collections.abc import Callable
from typing import Final

import grpc

from extproc.admin import add_reflection
from extproc.admin.external_scaler import SERVICE, ExternalScaler
from extproc.admin.health import add_health
from extproc.app.ports import bind
from extproc.app.security.exposure import Secrets
from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.transport.health import SERVICE as HEALTH_SERVICE
from extproc.transport.health import Health

OPTIONS: Final = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", 64 * 1024),
    ("grpc.max_concurrent_streams", 2000),
)
STOP_GRACE_S: Final = 0.2


class KedaPort:
    """Does nothing unless the settings name an address."""

    def __init__(self, dispatcher: Dispatcher, clock: Callable[[], float], health: Health) -> None:
        self._scaler = ExternalScaler(dispatcher, clock)
        self._health = health
        self._server: grpc.aio.Server | None = None

    async def start(self, address: str | None, secrets: Secrets) -> int:
        """Serve at `address`; returns the port, 0 without one. Raises `ListenError`."""
        if address is None:
            return 0
        self._server = grpc.aio.server(options=OPTIONS)
        self._scaler.add_to(self._server)
        add_health(self._server, self._health)
        add_reflection(self._server, (SERVICE, HEALTH_SERVICE))
        port = bind(self._server, address, "keda.listen", secrets.keda_credentials)
        await self._server.start()
        return port

    async def stop(self) -> None:
        """End all calls and stop."""
        if self._server is not None:
            await self._server.stop(STOP_GRACE_S)
            self._server = None
