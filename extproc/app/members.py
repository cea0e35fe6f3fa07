"""The endpoints of the settings as members of the fleet: names resolved, keys attached."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING, Final

from extproc.core.address import Address
from extproc.core.endpoint import EndpointSpec
from scraper.target import EndpointTarget

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from extproc.settings import EndpointSettings

SOURCE: Final = "settings"
RETRY_S: Final = 2.0

log = logging.getLogger("coxswain.members")


class SettingsMembers:
    """Resolves what the settings name and tells `publish`; an unknown name is tried again.

    A name with several addresses is that many endpoints.
    """

    def __init__(
        self,
        endpoints: tuple[EndpointSettings, ...],
        api_keys: Mapping[str, str],
        publish: Callable[[str, list[EndpointSpec]], None],
    ) -> None:
        self._endpoints = endpoints
        self._api_keys = api_keys
        self._publish = publish
        self._keys: dict[Address, str] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="resolve the settings' endpoints")

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def target(self, spec: EndpointSpec) -> EndpointTarget:
        """How the scraper talks to a member."""
        return EndpointTarget(
            address=spec.address,
            host_name=spec.hostname or None,
            api_key=self._keys.get(spec.address),
            slots=spec.slots,
        )

    async def _run(self) -> None:
        resolved: dict[str, list[EndpointSpec]] = {}
        unknown: set[str] = set()
        while True:
            for endpoint in self._endpoints:
                if endpoint.address in resolved:
                    continue
                try:
                    resolved[endpoint.address] = await self._resolve(endpoint)
                    unknown.discard(endpoint.address)
                except OSError as error:
                    if endpoint.address not in unknown:
                        unknown.add(endpoint.address)
                        log.warning("%s: %s; trying again", endpoint.address, error.strerror)
            self._publish(SOURCE, [spec for specs in resolved.values() for spec in specs])
            if not unknown:
                return
            await asyncio.sleep(RETRY_S)

    async def _resolve(self, endpoint: EndpointSettings) -> list[EndpointSpec]:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
        hosts = dict.fromkeys(str(entry[4][0]) for entry in found)
        specs = []
        for host in hosts:
            address = Address.of(host, endpoint.port)
            key = self._api_keys.get(endpoint.address)
            if key is not None:
                self._keys[address] = key
            hostname = "" if host == endpoint.host else endpoint.host
            specs.append(
                EndpointSpec(
                    address=address,
                    name=endpoint.name or "",
                    hostname=hostname,
                    slots=endpoint.slots,
                )
            )
        return specs
