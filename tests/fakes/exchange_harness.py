"""Exchanges over a small fleet whose requests have bodies, for tests of single claims."""

from __future__ import annotations

import json
from typing import Any

from extproc.core.fleet.aliases import ModelMatch
from extproc.core.observation import AdapterReading, ModelReading, Observation, ScrapeStatus
from extproc.core.request import Request
from extproc.pb import external_processor_pb2 as pb
from extproc.stream.exchange import Exchange, ExchangeOptions, Stage
from extproc.stream.request.translate import ReadingOptions
from tests.fakes import envoy_messages as envoy
from tests.fakes.small_fleet import SmallFleet

CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "row " * 100}], "n": 2}


BODY = json.dumps(CHAT).encode()


ASKED = (Stage.LEASED, Stage.QUEUED)


class ExchangeHarness:
    """A small fleet that remembers what it was asked."""

    def __init__(
        self,
        *slots: int,
        splits: dict[str, dict[str, float]] | None = None,
        match: ModelMatch = ModelMatch.LENIENT,
        must_know_models: bool = True,
        **reading: Any,
    ) -> None:
        self.fleet = SmallFleet(
            *slots, splits=splits, match=match, must_know_models=must_know_models
        )
        self.options = ExchangeOptions(reading=ReadingOptions(**reading), started_at=7)
        self.asked: list[Request] = []

    def exchange(self) -> Exchange:
        return Exchange(self.fleet.dispatcher, self.options, self.fleet.now)

    def feed(self, exchange: Exchange, *messages: pb.ProcessingRequest) -> list[Any]:
        """Feed them in order; returns all that was answered."""
        replies = []
        for message in messages:
            is_asked = exchange.stage in ASKED
            exchange.feed(message, self.fleet.now)
            if exchange.stage in ASKED and not is_asked:
                request = exchange._reader.request
                assert request is not None
                self.asked.append(request)
            while (reply := exchange.take_reply()) is not None:
                replies.append(reply)
        return replies

    def route(self, number: int = 0) -> None:
        """The endpoint is a router that has loaded `tiny`."""
        self.fleet.now += 1
        self.fleet.dispatcher.observe(
            Observation(
                address=self.fleet.addresses[number],
                began_at=self.fleet.now,
                answered_at=self.fleet.now,
                status=ScrapeStatus.READY,
                slots=8,
                busy_slots=0,
                models=(
                    ModelReading(name="tiny", slots=8, busy_slots=0),
                    ModelReading(name="large", is_loaded=False),
                ),
            ),
            self.fleet.now,
        )

    def serve(self, *adapters: str, model: str = "tiny", number: int = 0) -> None:
        """The endpoint reports a model and adapters."""
        self.fleet.now += 1
        self.fleet.dispatcher.observe(
            Observation(
                address=self.fleet.addresses[number],
                began_at=self.fleet.now,
                answered_at=self.fleet.now,
                status=ScrapeStatus.READY,
                slots=4,
                busy_slots=0,
                models=(ModelReading(name=model, aliases=("small",)),),
                adapters=tuple(
                    AdapterReading(id=10 * number + place, name=name)
                    for place, name in enumerate(adapters)
                ),
            ),
            self.fleet.now,
        )


def ask(**headers: str) -> pb.ProcessingRequest:
    return envoy.with_body(envoy.request_headers(**headers))


def ask_duplex(**headers: str) -> pb.ProcessingRequest:
    return envoy.with_body(envoy.request_headers(**headers), is_duplex=True)


def trailers() -> pb.ProcessingRequest:
    return envoy.part("request_trailers")


def streamed(replies: list[Any]) -> bytes:
    """The bytes that went on in full duplex."""
    return b"".join(r.request_body.response.body_mutation.streamed_response.body for r in replies)


def hinted(message: pb.ProcessingRequest, *addresses: str) -> pb.ProcessingRequest:
    fields = message.metadata_context.filter_metadata["envoy.lb.subset_hint"].fields
    fields["x-gateway-destination-endpoint-subset"].list_value.extend(addresses)
    return message
