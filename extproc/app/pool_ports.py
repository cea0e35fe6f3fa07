"""The further ports of the data plane, one for each pool that has one: what Envoy asks there is for
that pool."""

import logging
from collections.abc import Mapping

from extproc.app.ports import ListenError, bound_server
from extproc.settings import Settings, SettingsError
from extproc.settings.problems import Problem
from extproc.settings.values import split_host_port
from extproc.stream.envoy.codec import PROCESS
from extproc.transport import ServeCall, ServiceTable
from extproc.transport.http2_server import Http2Server

log = logging.getLogger("coxswain.service")


def pool_address(settings: Settings, port: int) -> str:
    """Where the picker listens at this port: on the host of `listen.grpc`."""
    host = split_host_port(settings.listen.grpc)[0]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


Key = tuple[str, int]
"""The name of a pool, and its port."""


class PoolPorts:
    """Belongs to one event loop. Follows the settings: `bind`, then `start` once the pools are
    known to all parts. The host is that of `listen.grpc`. With fronts, their supervisor listens,
    from its start on: there is nothing to bind, and no port can be added."""

    def __init__(self) -> None:
        self._of_supervisor: frozenset[Key] | None = None
        """Its ports, where there are fronts."""
        self._servers: dict[Key, Http2Server] = {}
        self._bound: dict[Key, Http2Server] = {}
        """Those that do not accept yet."""
        self._leaving: list[Http2Server] = []

    @property
    def numbers(self) -> tuple[int, ...]:
        """The ports that are open."""
        return tuple(port for _, port in self._of_supervisor or self._servers)

    async def bind(
        self, settings: Settings, table: ServiceTable, serve: Mapping[str, ServeCall]
    ) -> None:
        """Listen on the ports that are new; `serve` has what serves ext_proc for each pool, `table`
        all else. Raises `SettingsError` where one cannot be had, and then listens on none."""
        wanted: dict[Key, str] = {
            (name, pool.port): f"pools.{name}.port"
            for name, pool in settings.pools.items()
            if pool.port is not None
        }
        if settings.fronts:
            self._check_fixed(wanted)
            return
        others = {port: name for name, port in self._servers}
        bound: dict[Key, Http2Server] = {}
        try:
            for (name, port), setting in wanted.items():
                if (name, port) in self._servers:
                    continue
                if port in others:
                    raise ListenError(
                        f"{setting}: {port} is the port of the pool {others[port]} until the "
                        "reload has ended; take another one, or restart the picker"
                    )
                its = {**table, PROCESS: serve[name]}
                address = pool_address(settings, port)
                bound[name, port], _ = bound_server(settings, its, address, setting)
        except ListenError as error:
            for server in bound.values():
                await server.stop(0.0)
            raise SettingsError([Problem(where="", key="pools", message=str(error))]) from None
        await self._drop_bound()
        self._bound = bound
        self._leaving = [one for key, one in self._servers.items() if key not in wanted]

    def _check_fixed(self, wanted: Mapping[Key, str]) -> None:
        if self._of_supervisor is None:
            self._of_supervisor = frozenset(wanted)
        for key, setting in wanted.items():
            if key not in self._of_supervisor:
                text = f"{setting}: with fronts, a port is opened at a start only; restart"
                raise SettingsError([Problem(where="", key="pools", message=text)])

    async def start(self, grace_s: float) -> None:
        """Accept at the ports that are new, and no more at those that nobody wants: calls there end
        within `grace_s`."""
        for key, server in self._bound.items():
            await server.start()
            log.info("serving Envoy on port %d for the pool %s", key[1], key[0])
        leaving, self._leaving = self._leaving, []
        kept = {key: one for key, one in self._servers.items() if one not in leaving}
        self._servers, self._bound = kept | self._bound, {}
        for server in leaving:
            await server.stop(grace_s)

    async def stop(self, grace_s: float) -> None:
        """Accept no more, let calls end within `grace_s`, then cut them off."""
        await self._drop_bound()
        servers, self._servers = list(self._servers.values()), {}
        for server in servers:
            await server.stop(grace_s)

    async def _drop_bound(self) -> None:
        """Settings that were not applied after all."""
        bound, self._bound = self._bound, {}
        for server in bound.values():
            await server.stop(0.0)
