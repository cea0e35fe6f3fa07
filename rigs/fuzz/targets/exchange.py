"""Exchanges: after any messages in any order, no slot stays leased and no request stays queued."""

from collections.abc import Iterator

from google.protobuf.message import DecodeError

from extproc.core.address import Address
from extproc.core.fleet.aliases import ModelMatch
from extproc.core.observation import AdapterReading, ModelReading, Observation, ScrapeStatus
from extproc.core.scheduler.audit import faults
from extproc.core.slots.endpoint_slots import EndpointSlots
from extproc.core.slots.lease import LeaseState
from extproc.pb import external_processor_pb2 as pb
from extproc.settings import QueueSettings
from extproc.stream.exchange import Exchange, ExchangeOptions, ProtocolError
from extproc.stream.request.translate import ReadingOptions
from rigs.fuzz.reader import Reader
from rigs.fuzz.targets.headers import add_facts, add_headers
from tests.fakes.small_fleet import SmallFleet

BODIES = (
    b"",
    b'{"model":"tiny","prompt":"row"}',
    b'{"model":"chat","n":3,"messages":[{"role":"user","content":"' + b"row " * 100 + b'"}]}',
    b'{"model":"tiny:pirate","max_tokens":5',
    b'{"model":":poet"}',
    b'{"lora":[{"id":0,"scale":1}]}',
)
PATHS = (b"/v1/chat/completions", b"/v1/embeddings", b"/v1/models", b"/health", b"/tokenize?x")
MODES = (0, 2, 3, 4, 1)
MOST = 4
"""Exchanges at a time, for two slots."""


class Attempt:
    """A fleet with two slots, two models, an adapter and a split; and its exchanges."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        splits = {"chat": {"tiny": 2.0, "large": 1.0}}
        match = reader.choice((ModelMatch.LENIENT, ModelMatch.STRICT))
        self.fleet = SmallFleet(1, 1, queue_max_requests=2, splits=splits, match=match)
        for number, model in enumerate(("tiny", "large")):
            self._serve(self.fleet.addresses[number], model)
        self._options = ExchangeOptions(
            queue=QueueSettings(timeout_s=5.0),
            reading=ReadingOptions(
                is_strict=reader.flag(), limit_bytes=reader.choice((65_536, 20, 1))
            ),
        )
        self._exchanges: list[Exchange] = []

    def _serve(self, address: Address, model: str) -> None:
        adapters = (AdapterReading(id=0, name="pirate"),) if model == "tiny" else ()
        now = self.fleet.now
        observation = Observation(
            address=address,
            began_at=now,
            answered_at=now,
            status=ScrapeStatus.READY,
            slots=1,
            busy_slots=0,
            models=(ModelReading(name=model),),
            adapters=adapters,
        )
        self.fleet.dispatcher.observe(observation, now)

    def run(self) -> None:
        """Do what the bytes say, then end all."""
        while self._reader:
            match self._reader.number(8):
                case 0:
                    self._begin()
                case 1 | 2:
                    self._deliver()
                case 3:
                    self._pass_time()
                case 4:
                    self._end()
                case 5:
                    self._cancel()
                case 6:
                    self.fleet.scrape(self.fleet.addresses[0], busy=self._reader.number(3), slots=1)
                case _:
                    self._connect_fails()
            self._settle()
        while self._exchanges:
            self._exchanges.pop().end(self.fleet.now)
            self._settle()
        self.fleet.now += 60.0
        self.fleet.dispatcher.advance(self.fleet.now)

    def check(self) -> None:
        """Nothing is left."""
        dispatcher = self.fleet.dispatcher
        assert not faults(dispatcher.state, self.fleet.now)
        assert not len(dispatcher.queue) and not dispatcher.view.running_requests
        for account in self._accounts():
            assert all(one.state is not LeaseState.OPEN for one in account.leases.values())
            assert 0 <= account.free_slots <= account.slots
        for flow in dispatcher.state.fairness.flows():
            assert (flow.waiting, flow.running) == (0, 0)

    def _accounts(self) -> Iterator[EndpointSlots]:
        return map(self.fleet.dispatcher.ledger.endpoint_slots, self.fleet.addresses)

    def _begin(self) -> None:
        if len(self._exchanges) < MOST:
            self._exchanges.append(Exchange(self.fleet.dispatcher, self._options, self.fleet.now))
        self._feed(self._exchanges[-1], self._request())

    def _request(self) -> pb.ProcessingRequest:
        reader, message = self._reader, pb.ProcessingRequest()
        headers = message.request_headers.headers
        if not reader.flag():
            headers.headers.add(key=":method", raw_value=reader.choice((b"POST", b"GET")))
            headers.headers.add(key=":path", raw_value=reader.choice(PATHS))
        add_headers(headers, reader, few=True)
        message.request_headers.end_of_stream = reader.flag()
        mode = reader.choice(MODES)
        message.protocol_config.request_body_mode = mode  # type: ignore[assignment]
        message.protocol_config.response_body_mode = mode  # type: ignore[assignment]
        if reader.flag():
            add_facts(message, reader)
        return message

    def _deliver(self) -> None:
        reader, message = self._reader, pb.ProcessingRequest()
        if not self._exchanges:
            return
        exchange = reader.choice(self._exchanges)
        match reader.number(7):
            case 0:
                message.request_body.body = reader.choice(BODIES)
                message.request_body.end_of_stream = reader.flag()
            case 1:
                message.request_body.body = reader.few()
                message.request_body.end_of_stream = reader.flag()
            case 2:
                message.request_trailers.SetInParent()
            case 3:
                add_headers(message.response_headers.headers, reader, few=True)
                add_facts(message, reader)
            case 4:
                message.response_body.body = reader.few()
                message.response_body.end_of_stream = reader.flag()
            case 5:
                message.response_trailers.SetInParent()
            case _:
                try:
                    message = pb.ProcessingRequest.FromString(reader.few())
                except DecodeError:
                    return
        self._feed(exchange, message)

    def _feed(self, exchange: Exchange, message: pb.ProcessingRequest) -> None:
        if exchange.ticket is not None:
            return  # the servicer reads on only when it is settled
        try:
            exchange.feed(message, self.fleet.now)
        except ProtocolError:
            self._exchanges.remove(exchange)
            exchange.end(self.fleet.now)
            return
        self._send(exchange)

    def _send(self, exchange: Exchange) -> None:
        while (reply := exchange.take_reply()) is not None:
            assert len(reply.SerializeToString()) < 10**6

    def _settle(self) -> None:
        """The part of the pending streams."""
        settlements = self.fleet.listener.settlements
        for exchange in self._exchanges:
            if exchange.ticket is not None and exchange.ticket.id in settlements:
                exchange.settle(settlements[exchange.ticket.id])
                self._send(exchange)

    def _pass_time(self) -> None:
        self.fleet.now += self._reader.number(60) / 10
        self.fleet.dispatcher.advance(self.fleet.now)

    def _end(self) -> None:
        if self._exchanges:
            exchange = self._reader.choice(self._exchanges)
            if self._reader.flag():
                exchange.break_off()
            if self._reader.flag():
                exchange.complete()
            self._exchanges.remove(exchange)
            exchange.end(self.fleet.now)

    def _cancel(self) -> None:
        if self._exchanges:
            self._reader.choice(self._exchanges).cancel(self.fleet.now)

    def _connect_fails(self) -> None:
        address = self._reader.choice(self.fleet.addresses)
        self.fleet.dispatcher.connect_failed(address, self.fleet.now)


def check(data: bytes) -> None:
    attempt = Attempt(Reader(data))
    attempt.run()
    attempt.check()
