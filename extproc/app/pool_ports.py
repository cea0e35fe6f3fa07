"""The further ports of the data plane, one for each pool that has one: what Envoy asks there is for
that pool."""

import logging

from extproc.app.ports import ListenError, bound_server
from extproc.settings import Settings, SettingsError
from extproc.settings.problems import Problem
from extproc.settings.values import split_host_port
from extproc.stream.envoy.codec import PROCESS
from extproc.transport import ServeCall, ServiceTable
from extproc.transport.http2_server import Http2Server

log = logging.getLogger("coxswain.service")


class PoolPorts:
    """Belongs to one event loop. Follows the settings; the host is that of `listen.grpc`."""

    def __init__(self) -> None:
        self._servers: dict[tuple[str, int], Http2Server] = {}

    @property
    def numbers(self) -> tuple[int, ...]:
        """The ports that are open."""
        return tuple(port for _, port in self._servers)

    async def renew(
        self, settings: Settings, table: ServiceTable, serve: "dict[str, ServeCall]"
    ) -> list[Http2Server]:
        """Open the ports that are new; `serve` has what serves ext_proc for each pool, `table` all
        else. Returns the servers of ports that are no longer wanted, for `close`: requests there go
        on until then. Raises `SettingsError` where one cannot be had, and opens none."""
        host = split_host_port(settings.listen.grpc)[0]
        wanted = {
            (name, pool.port): f"pools.{name}.port"
            for name, pool in settings.pools.items()
            if pool.port is not None
        }
        leaving = {key: one for key, one in self._servers.items() if key not in wanted}
        taken = {port: one for (_, port), one in leaving.items()}
        added: dict[tuple[str, int], Http2Server] = {}
        try:
            for (name, port), setting in wanted.items():
                if (name, port) in self._servers:
                    continue
                if port in taken:
                    raise ListenError(
                        f"{setting}: the port belongs to another pool; take another port, or "
                        "restart the picker"
                    )
                its = {**table, PROCESS: serve[name]}
                added[name, port], _ = bound_server(settings, its, f"{_host(host)}:{port}", setting)
        except ListenError as error:
            for server in added.values():
                await server.stop(0.0)
            raise SettingsError([Problem(where="", key="pools", message=str(error))]) from None
        for key, server in added.items():
            await server.start()
            log.info("serving Envoy on port %d for the pool %s", key[1], key[0])
        self._servers = {
            **{key: one for key, one in self._servers.items() if key in wanted},
            **added,
        }
        return list(leaving.values())

    async def stop(self, grace_s: float) -> None:
        """Accept no more, let calls end within `grace_s`, then cut them off."""
        servers, self._servers = list(self._servers.values()), {}
        for server in servers:
            await server.stop(grace_s)


def _host(host: str) -> str:
    return f"[{host}]" if ":" in host else host
