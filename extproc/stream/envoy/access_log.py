"""Envoy's reports of cut-off exchanges, which the end of an ext_proc stream does not show.

Envoy ends every stream alike. Its access log, filtered to exchanges with a response flag,
sends one small message for each that its client left or whose server died, before it ends
the stream; the exchange is named by the id that we put into its metadata. Without the
report an event stream counts as finished. The first report of a connection may come late:
then a look at the server has to tell.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import grpc
from google.protobuf.message import DecodeError

from extproc.core.address import Address, AddressError
from extproc.pb import access_log_service_pb2 as pb
from extproc.stream.envoy.codec import DESTINATION, EXCHANGE, LB_NAMESPACE, SERVED

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from extproc.core.scheduler.exchange_registry import ExchangeRegistry
    from extproc.pb import access_log_pb2
    from extproc.stream.upload_watchdog import UploadWatchdog

    Context = grpc.aio.ServicerContext[pb.StreamAccessLogsMessage, pb.StreamAccessLogsResponse]

SERVICE: Final = "envoy.service.accesslog.v3.AccessLogService"
NO_MESSAGE: Final = "not a valid StreamAccessLogsMessage"

log = logging.getLogger("coxswain.stream")


def _is_servers_fault(common: access_log_pb2.AccessLogCommon) -> bool:
    """Whether the server, not the client, ended the exchange."""
    flags = common.response_flags
    return (
        flags.upstream_connection_termination
        or flags.upstream_remote_reset
        or flags.upstream_protocol_error
    )


class AccessLog:
    """Marks running exchanges as cut off. `on_late` gets the server of an exchange that has already
    ended; reports about continuing exchanges go to `uploads`.
    """

    def __init__(
        self,
        registry: ExchangeRegistry,
        on_late: Callable[[Address], None],
        uploads: UploadWatchdog,
    ) -> None:
        self._registry = registry
        self._on_late = on_late
        self._uploads = uploads

    def add_to(self, server: grpc.aio.Server) -> None:
        """Serve the access log service on `server`."""
        handler = grpc.stream_unary_rpc_method_handler(
            self._receive,
            request_deserializer=pb.StreamAccessLogsMessage.FromString,
            response_serializer=pb.StreamAccessLogsResponse.SerializeToString,
        )
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, {"StreamAccessLogs": handler}),)
        )

    def take_in(self, message: pb.StreamAccessLogsMessage) -> None:
        """Handle one message; entries of other filters or pickers are ignored."""
        for entry in message.http_logs.log_entry:
            if entry.common_properties.intermediate_log_entry:
                self._uploads.take_in(entry)
                continue
            namespaces = entry.common_properties.metadata.filter_metadata
            if LB_NAMESPACE not in namespaces:
                continue
            fields = namespaces[LB_NAMESPACE].fields
            exchange = self._registry.get(fields[EXCHANGE].string_value)
            if exchange is not None:
                exchange.break_off(is_servers_fault=_is_servers_fault(entry.common_properties))
            else:
                served = fields[SERVED].string_value or fields[DESTINATION].string_value
                self._tell_late(served.partition(",")[0])

    def _tell_late(self, text: str) -> None:
        try:
            self._on_late(Address.parse(text))
        except AddressError:
            return

    async def _receive(
        self,
        messages: AsyncIterator[pb.StreamAccessLogsMessage],
        context: Context,
    ) -> pb.StreamAccessLogsResponse:
        try:
            async for message in messages:
                self.take_in(message)
        except DecodeError:
            log.warning("access log stream: %s", NO_MESSAGE)
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, NO_MESSAGE)
        return pb.StreamAccessLogsResponse()
