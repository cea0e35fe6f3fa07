"""Envoy's reports of how exchanges end, which the end of an ext_proc stream does not show, and of
requests that bypassed the picker, which have no stream; and of bodies that are still coming.

Envoy ends every stream alike. Its access log, filtered to exchanges with a response flag and to
responses that the picker has marked, sends one small message for each, before it ends the stream,
or just behind that where the whole response was there already; the exchange is named by the id that
we put into its metadata. A response is complete if the report says when its last byte came from the
server. Nothing else proves it: a client that resets its stream without an error leaves no flag.
Without a report, and where it comes late, only a scrape shows what the server does.

A request that bypassed the picker has a server and no exchange: the picker writes the exchange
into each answer that sends a request anywhere, so a report that comes late, or belongs to a picker
that is gone, is never taken for one.

Most of a long body never passes the picker: Envoy sends it straight to the server. So Envoy
reports, several times within `envoy.request_body_grace_s`, how much came of each request that got
its server before it was whole and has no answer yet. `UploadPace` decides whether the request may
keep its slot.
"""

import logging
from collections.abc import Callable
from typing import Final

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError

from extproc.core.address import Address, AddressError
from extproc.core.exchange_registry import ExchangeRegistry, KnownExchange
from extproc.header_names import DESTINATION, EXCHANGE, LB_NAMESPACE, SERVED
from extproc.pb import access_log_pb2
from extproc.pb import access_log_service_pb2 as pb
from extproc.transport import Call, ServiceTable
from extproc.transport.status import INVALID_ARGUMENT, OK

STREAM_ACCESS_LOGS: Final = "/envoy.service.accesslog.v3.AccessLogService/StreamAccessLogs"
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


def _seconds(duration: Duration) -> float:
    return duration.seconds + duration.nanos / 1e9


class AccessLog:
    """Marks running exchanges as complete or cut off, and ends those whose body stalls or is slow.

    `on_late` gets the server of an exchange that has already ended, `on_bypass` the duration in
    seconds of a request that bypassed the picker. Belongs to one event loop.
    """

    def __init__(
        self,
        registry: ExchangeRegistry,
        on_late: Callable[[Address], None],
        on_bypass: Callable[[float], None],
        clock: Callable[[], float],
    ) -> None:
        self._registry = registry
        self._on_late = on_late
        self._on_bypass = on_bypass
        self._clock = clock
        self._streams: set[_AccessLogStream] = set()

    @property
    def is_heard(self) -> bool:
        """Whether an Envoy has begun to report."""
        return bool(self._streams)

    def add_to(self, table: ServiceTable) -> None:
        """Serve the access log service."""
        table[STREAM_ACCESS_LOGS] = lambda call: _AccessLogStream(self, self._streams, call)

    def take_in(self, message: pb.StreamAccessLogsMessage) -> None:
        """Handle one message; entries of other filters or pickers are ignored."""
        for entry in message.http_logs.log_entry:
            common = entry.common_properties
            namespaces = common.metadata.filter_metadata
            if LB_NAMESPACE not in namespaces:
                continue
            fields = namespaces[LB_NAMESPACE].fields
            exchange = self._registry.get(fields[EXCHANGE].string_value)
            if common.intermediate_log_entry:
                if exchange is not None:
                    self._check_upload(exchange, entry)
                continue
            if exchange is not None:
                is_complete = common.HasField("time_to_last_upstream_rx_byte")
                if is_complete:
                    exchange.complete()
                if not (is_complete and common.HasField("time_to_last_downstream_tx_byte")):
                    exchange.break_off(is_servers_fault=_is_servers_fault(common))
                exchange.reported()
                continue
            served = fields[SERVED].string_value
            if served and not fields[EXCHANGE].string_value:
                self._on_bypass(_seconds(common.duration))
            else:
                self._scrape_late(served or fields[DESTINATION].string_value.partition(",")[0])

    def _check_upload(
        self, exchange: KnownExchange, entry: access_log_pb2.HTTPAccessLogEntry
    ) -> None:
        now = self._clock()
        why = exchange.upload_reported(
            entry.request.request_body_bytes,
            now,
            is_whole=entry.common_properties.HasField("time_to_last_rx_byte"),
        )
        if why is not None:
            exchange.end_upload(why, now)

    def _scrape_late(self, text: str) -> None:
        try:
            self._on_late(Address.parse(text))
        except AddressError:
            return


class _AccessLogStream:
    """One Envoy's stream of reports."""

    def __init__(self, access_log: AccessLog, streams: set["_AccessLogStream"], call: Call) -> None:
        self._access_log = access_log
        self._streams = streams
        self._call = call
        streams.add(self)

    def receive(self, message: bytes) -> None:
        try:
            reports = pb.StreamAccessLogsMessage.FromString(message)
        except DecodeError:
            log.warning("access log stream: %s", NO_MESSAGE)
            self._streams.discard(self)
            self._call.finish(INVALID_ARGUMENT, NO_MESSAGE)
        else:
            self._access_log.take_in(reports)

    def half_closed(self) -> None:
        self._streams.discard(self)
        self._call.send(pb.StreamAccessLogsResponse().SerializeToString())
        self._call.finish(OK)

    def gone(self) -> None:
        self._streams.discard(self)
