"""The data plane's port on grpcio, behind the same calls: `listen.transport: grpcio`."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import grpc

from extproc.transport.grpcio_operation import Completion
from extproc.transport.status import INTERNAL, OK

if TYPE_CHECKING:
    from collections.abc import Callable

    from extproc.transport.call import CallHandler, Metadata, ServeCall, ServiceTable

    Context = grpc.aio.ServicerContext[bytes, bytes]

OPTIONS: Final = (
    ("grpc.so_reuseport", 0),  # a second picker on the port is an error, not a lottery
    # Each filter of gRPC's takes memory of every open stream, and time of every message. What
    # Envoy sends is bounded by its own buffers, nothing of it is compressed, and without deadline.
    ("grpc.max_receive_message_length", -1),
    ("grpc.per_message_compression", 0),
    ("grpc.per_message_decompression", 0),
    ("grpc.enable_deadline_checking", 0),
    # The capabilities of an Envoy, in the metadata of its stream: 20 bytes for each profile.
    ("grpc.max_metadata_size", 256 * 1024),
    ("grpc.absolute_max_metadata_size", 256 * 1024),
    # Envoy pings a quiet connection every 10 s, to learn of a picker that is gone. By default
    # gRPC takes that for abuse and cuts the connection, with every request that waits on it.
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 1_000),
    ("grpc.http2.max_ping_strikes", 0),
    # And we ping Envoy: the leases of one that vanished without a word must end some time.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
)
RESET_S: Final = 0.02
"""How long to wait for Envoy's reset of a stream that has ended."""

log = logging.getLogger("coxswain.transport")


class GrpcioServer:
    """Serves the methods of `table` with grpc.aio. Belongs to one event loop."""

    def __init__(
        self, table: ServiceTable, credentials: grpc.ServerCredentials | None = None
    ) -> None:
        self._server = grpc.aio.server(options=OPTIONS)
        self._credentials = credentials
        add_calls(self._server, table)

    def bind(self, host: str, port: int) -> int:
        """Listen there; returns the port. Raises `OSError`."""
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        return add_port(self._server, address, self._credentials)

    async def start(self) -> None:
        """Accept connections."""
        await self._server.start()

    async def stop(self, grace_s: float) -> None:
        """Accept no more, let calls end within `grace_s`, then cut them off."""
        await self._server.stop(grace_s)


def add_port(
    server: grpc.aio.Server, address: str, credentials: grpc.ServerCredentials | None = None
) -> int:
    """Let a server of grpcio listen on `address`; returns the port it got. Raises `OSError`."""
    try:
        if credentials is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise OSError(str(error)) from None
    if port == 0:
        raise OSError(f"{address} cannot be had")
    return port


def add_calls(server: grpc.aio.Server, table: ServiceTable) -> None:
    """Serve the methods of `table` on a server of grpcio."""
    server.add_generic_rpc_handlers((_Methods(table),))


class _Methods(grpc.GenericRpcHandler):
    def __init__(self, table: ServiceTable) -> None:
        self._handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            path: grpc.stream_stream_rpc_method_handler(_runs(serve))
            for path, serve in table.items()
        }

    def service(self, handler_call_details: Any) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        return self._handlers.get(handler_call_details.method)


def _runs(serve: ServeCall) -> Any:
    async def run(_: object, context: Context) -> None:
        await _GrpcioCall(context).run(serve)

    return run


class _GrpcioCall:
    """One call. One coroutine reads, writes and sleeps while the call is paused."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._task = asyncio.current_task()
        self._handler: CallHandler | None = None
        self._unsent: deque[bytes] = deque()
        self._wake: asyncio.Future[None] | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._status: tuple[int, str] | None = None
        self._is_paused = False
        self._is_reading = False
        self._is_writing = False
        self.is_over = False

    # What the service calls

    @property
    def metadata(self) -> Metadata:
        found: Metadata = tuple(self._context.invocation_metadata() or ())
        return found

    def send(self, message: bytes) -> None:
        if self.is_over:
            return
        self._unsent.append(message)
        self._nudge()

    def finish(self, status: int, text: str = "") -> None:
        if self.is_over:
            return
        self.is_over = True
        self._status = (status, text)
        if self._is_reading and self._task is not None:
            self._task.cancel()  # it reads what would never be used
        self._nudge()

    def soon(self, function: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(function)

    def pause(self) -> None:
        self._is_paused = True

    def resume(self) -> None:
        self._is_paused = False
        self._nudge()

    def _nudge(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)
        elif self._is_reading and not self._is_writing and self._unsent:
            self._flushing = asyncio.ensure_future(self._flush())

    # The coroutine

    async def run(self, serve: ServeCall) -> None:
        """Serve the call to its end."""
        try:
            self._handler = serve(self)
            await self._converse(self._handler)
        except asyncio.CancelledError:
            if self._status is None:
                self._lose()
                raise
        except grpc.aio.BaseError:
            self._lose()
            return
        except Exception:
            log.exception("a call failed")
            self._lose()
            self._status = self._status or (INTERNAL, "internal error")
        await self._end()

    async def _converse(self, handler: CallHandler) -> None:
        is_half_closed = False
        while True:
            await self._flush()
            if self._status is not None:
                return
            if self._is_paused or is_half_closed:
                self._wake = asyncio.get_running_loop().create_future()
                await self._wake
                self._wake = None
                continue
            message = await self._read()
            if message is None:
                is_half_closed = True
                handler.half_closed()
            else:
                handler.receive(message)
            message = None  # a queued request needs its headers no longer

    async def _read(self) -> bytes | None:
        self._is_reading = True
        try:
            message: object = await Completion(self._context.read())
        finally:
            self._is_reading = False
        return message if isinstance(message, bytes) else None

    async def _flush(self) -> None:
        """Send what waits. gRPC takes one message at a time."""
        if self._is_writing:
            return
        self._is_writing = True
        try:
            while self._unsent:
                await Completion(self._context.write(self._unsent.popleft()))
        except grpc.aio.BaseError:
            self._unsent.clear()
        finally:
            self._is_writing = False

    async def _end(self) -> None:
        status, text = self._status or (OK, "")
        await self._flush()
        if status != OK:
            await self._context.abort(_code(status), text)
        # Envoy closes its half and resets the stream at once. That reset must come first: a
        # status that gRPC cannot deliver any more is one of the operations that it never frees.
        await asyncio.sleep(RESET_S)

    def _lose(self) -> None:
        """The call ended without being finished."""
        self.is_over = True
        handler, self._handler = self._handler, None
        if handler is None or self._status is not None:
            return
        try:
            handler.gone()
        except Exception:
            log.exception("ending a call failed")


def _code(status: int) -> grpc.StatusCode:
    for code in grpc.StatusCode:
        if code.value[0] == status:
            return code
    return grpc.StatusCode.UNKNOWN
