"""A small name server on loopback, over UDP and TCP, whose records a test changes as it goes."""

from __future__ import annotations

import asyncio
from typing import Self, cast

import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdatatype
import dns.rrset

from extproc.core.address import Address
from tests.fakes.listener import Listener

UDP_MAX_BYTES = 1232


class FakeDnsServer:
    """`records[name, "A"] = ["127.0.0.1"]`; what has no record at all does not exist.

    `broken` names are answered SERVFAIL. While `is_mute`, nothing is answered.
    """

    def __init__(self) -> None:
        self.records: dict[tuple[str, str], list[str]] = {}
        self.ttl_s = 60
        self.broken: set[str] = set()
        self.is_mute = False
        self.queries: list[tuple[str, str]] = []
        self.tcp_questions = 0
        self.address = Address("127.0.0.1", 1)
        self._asked = asyncio.Event()
        self._transport: asyncio.DatagramTransport | None = None
        self._listener = Listener(self._talk)

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        while self._transport is None:
            transport, _ = await loop.create_datagram_endpoint(
                lambda: _Datagrams(self), local_addr=("127.0.0.1", 0)
            )
            port = transport.get_extra_info("sockname")[1]
            try:
                self.address = await self._listener.start(port)
            except OSError:  # another program has this TCP port
                transport.close()
                continue
            self._transport = transport
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._transport is not None
        self._transport.close()
        await self._listener.close()

    async def was_asked(self, name: str, times: int) -> None:
        """Wait until a name was requested so often, whatever the type."""
        while sum(asked == name for asked, _ in self.queries) < times:
            self._asked.clear()
            await self._asked.wait()

    def answer(self, wire: bytes, *, is_udp: bool) -> bytes | None:
        query = dns.message.from_wire(wire)
        question = query.question[0]
        name = question.name.to_text(omit_final_dot=True)
        kind = dns.rdatatype.to_text(question.rdtype)
        self.queries.append((name, kind))
        self._asked.set()
        if self.is_mute:
            return None
        answer = dns.message.make_response(query)
        if name in self.broken:
            answer.set_rcode(dns.rcode.SERVFAIL)
        elif (name, kind) in self.records:
            records = self.records[name, kind]
            if records:
                answer.answer.append(
                    dns.rrset.from_text_list(question.name, self.ttl_s, "IN", kind, records)
                )
        elif not any(known == name for known, _ in self.records):
            answer.set_rcode(dns.rcode.NXDOMAIN)
        told = answer.to_wire(max_size=65_535)
        if is_udp and len(told) > UDP_MAX_BYTES:
            answer.answer.clear()
            answer.flags |= dns.flags.TC
            told = answer.to_wire()
        return told

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            length = int.from_bytes(await reader.readexactly(2), "big")
            self.tcp_questions += 1
            told = self.answer(await reader.readexactly(length), is_udp=False)
            if told is not None:
                writer.write(len(told).to_bytes(2, "big") + told)


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, server: FakeDnsServer) -> None:
        self._server = server
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        told = self._server.answer(data, is_udp=True)
        if told is not None and self._transport is not None:
            self._transport.sendto(told, addr)
