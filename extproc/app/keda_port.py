"""The port for KEDA. Requests do not need it: a picker whose port is taken serves without it, and
tries it again."""

import asyncio
import logging
from typing import Final

import grpc

from extproc.admin.external_scaler import SERVICE, ExternalScaler
from extproc.app.grpc_port import KEDA_OPTIONS, GrpcPort
from extproc.app.ports import ListenError
from extproc.transport import descriptors
from extproc.transport.health import Health

RETRY_S: Final = 2.0
"""The pause before a port that was taken is tried again."""

log = logging.getLogger("coxswain.service")


class KedaPort:
    """Belongs to one event loop. `number` is the port, 0 until it is open."""

    def __init__(self, scaler: ExternalScaler, health: Health) -> None:
        self._port = GrpcPort({SERVICE: scaler}, health, KEDA_OPTIONS, descriptors.KEDA)
        self._opening: asyncio.Task[None] | None = None
        self._problem = ""
        self.number = 0

    async def start(self, address: str, credentials: grpc.ServerCredentials | None) -> None:
        """Open it now, or as soon as it can be had."""
        if not await self._open(address, credentials):
            self._opening = asyncio.create_task(self._retry(address, credentials))

    async def stop(self) -> None:
        """Close it, or try no more."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait({self._opening})
        await self._port.stop()

    def problems(self) -> tuple[str, ...]:
        """Why it could not be opened."""
        return (self._problem,) if self._problem else ()

    async def _open(self, address: str, credentials: grpc.ServerCredentials | None) -> bool:
        try:
            self.number = await self._port.start(address, "keda.listen", credentials)
        except ListenError as error:
            if not self._problem:
                log.error("%s; KEDA is not answered until it can", error)
            self._problem = str(error)
            return False
        self._problem = ""
        return True

    async def _retry(self, address: str, credentials: grpc.ServerCredentials | None) -> None:
        while not await self._open(address, credentials):  # noqa: ASYNC110 - a port of the system
            await asyncio.sleep(RETRY_S)
        log.info("KEDA is served on %s", address)
