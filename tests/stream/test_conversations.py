"""Claims about conversations in exchanges: extproc/stream/exchange.py and its reader."""

from __future__ import annotations

import json

import pytest

from extproc.core.client_limits import ClientLimit, ClientLimits
from extproc.core.rejection import Reason
from extproc.core.views.explain import DryRunRequest, Explanation
from extproc.pb import external_processor_pb2 as pb
from extproc.security.known_keys import KnownKeys, digest_of
from extproc.settings.routing_section import RoutingSettings
from extproc.stream.dry_run import dry_run
from extproc.stream.exchange import Exchange, ExchangeOptions, Stage
from extproc.stream.model_list import OURS
from tests.fakes import envoy_messages as envoy
from tests.fakes.small_fleet import SmallFleet

KEYS = KnownKeys({digest_of("sk-web"): "web", digest_of("sk-free"): "free"})
WEB, FREE = "Bearer sk-web", "Bearer sk-free"
HEADER = "x-conversation-id"
NOT_FOUND = (404, "conversation-not-found")


class Page:
    """A client and the picker that it asks."""

    def __init__(self, *slots: int, is_kept: bool = True) -> None:
        self.fleet = SmallFleet(*slots)
        self.limits = ClientLimits({"web": ClientLimit(requests=1)})
        routing = RoutingSettings(conversations="keep" if is_kept else "strip")
        self.options = ExchangeOptions(keys=KEYS, routing=routing, limits=self.limits)

    def exchange(self, message: pb.ProcessingRequest) -> tuple[Exchange, pb.ProcessingResponse]:
        exchange = Exchange(self.fleet.dispatcher, self.options, self.fleet.now)
        exchange.feed(message, self.fleet.now)
        reply = exchange.take_reply()
        assert reply is not None
        return exchange, reply

    def begin(self, id_: str, key: str = WEB, path: str = envoy.COMPLETION) -> Exchange:
        message = envoy.request_headers(path, authorization=key, x_conversation_id=id_)
        exchange, reply = self.exchange(message)
        assert exchange.stage is Stage.LEASED
        self.removed = list(reply.request_headers.response.header_mutation.remove_headers)
        return exchange

    def ask(
        self, query: str, key: str = WEB, method: str = "GET", path: str = "/v1/stream"
    ) -> list[str] | tuple[int, str]:
        headers = envoy.request_headers(f"{path}?{query}", method, authorization=key)
        exchange, reply = self.exchange(headers)
        exchange.end(self.fleet.now)
        if reply.HasField("immediate_response"):
            return envoy.rejection(reply)
        return envoy.destination(reply)

    def look_up(self, *ids: str, key: str = WEB) -> pb.ProcessingResponse:
        exchange, _ = self.exchange(
            envoy.with_body(envoy.request_headers("/v1/streams/lookup", authorization=key))
        )
        data = json.dumps({"conversation_ids": ids}).encode()
        exchange.feed(envoy.body(data), self.fleet.now)
        reply = exchange.take_reply()
        assert reply is not None
        return reply


def test_a_conversation_is_read_and_ended_by_the_client_that_began_it() -> None:
    page = Page(1, 1, 1)
    exchange = page.begin("c::a/b")
    assert HEADER not in page.removed
    there = [str(exchange.lease.address)] if exchange.lease else []
    for method in ("GET", "HEAD", "DELETE"):
        assert page.ask("conv_id=c%3A%3Aa%2Fb&from=7", method=method) == there
        assert page.ask("conv_id=c%3A%3Aa%2Fb", FREE, method) == NOT_FOUND
        assert page.ask("conv_id=c", method=method) == NOT_FOUND


@pytest.mark.parametrize(
    "query",
    [
        *("", "conv_id=", "from=1", "conv_id=theirs", "CONV_ID=mine"),
        *("conv_id=mine&conv_id=theirs", "conv_id=mine&conv%5Fid=theirs"),
        *("conv_id=mine&%u0063onv_id=theirs", "conv_id=%u0041", "conv_id=mine&x=" + "y" * 5000),
    ],
)
def test_no_query_leads_to_the_conversation_of_another(query: str) -> None:
    """Also not where our reading and llama-server's might differ."""
    page = Page(4)
    page.begin("theirs", FREE)
    page.begin("mine").end(page.fleet.now)
    page.fleet.scrape(page.fleet.addresses[0])
    page.begin("%u0041", FREE)
    assert page.ask(query) == NOT_FOUND


def test_an_id_of_another_client_is_not_sent_to_a_server() -> None:
    """Nor one of a request whose answer is not kept."""
    page = Page(1, 1, 1)
    first = page.begin("c", FREE)
    page.begin("c::tiny")
    assert HEADER in page.removed
    assert first.lease is not None
    assert page.ask("conv_id=c", FREE) == [str(first.lease.address)]
    assert page.ask("conv_id=c::tiny") == NOT_FOUND
    page.begin("d", FREE, "/v1/embeddings")
    assert HEADER in page.removed
    assert page.ask("conv_id=d", FREE) == NOT_FOUND


def test_the_slot_and_the_limit_count_until_the_server_has_finished() -> None:
    """However long after the cap; a DELETE changes nothing."""
    page = Page(1)
    (address,) = page.fleet.addresses
    page.begin("c").end(page.fleet.now)
    for _ in range(100):
        page.fleet.pass_time(1.0)
        page.fleet.scrape(address, busy=1)
        page.ask("conv_id=c", method="DELETE")
        account = page.fleet.account(address)
        assert (account.leased_slots, account.foreign_slots) == (1, 0)
        assert page.limits.exceeded("web", page.fleet.now) is not None
        assert page.fleet.dispatcher.faults(page.fleet.now) == []
    page.fleet.scrape(address)
    page.fleet.pass_time(1.0)
    page.fleet.scrape(address)
    page.fleet.pass_time(1.0)
    assert page.fleet.account(address).leased_slots == 0
    assert page.limits.exceeded("web", page.fleet.now) is None
    assert page.ask("conv_id=c") == [str(address)]


def test_a_server_that_is_not_scraped_any_more_holds_nobody_to_it() -> None:
    page = Page(1)
    (address,) = page.fleet.addresses
    page.begin("c").end(page.fleet.now)
    page.fleet.pass_time(60.0)
    assert page.fleet.account(address).leased_slots == 0
    assert page.limits.exceeded("web", page.fleet.now) is None


def test_a_lookup_goes_to_the_server_with_the_ids_of_its_client() -> None:
    page = Page(4)
    page.begin("theirs", FREE)
    page.begin("mine::tiny").end(page.fleet.now)
    reply = page.look_up("mine", "theirs", "none")
    headers = envoy.set_headers(reply.request_body.response.header_mutation)
    assert headers["x-gateway-destination-endpoint"] == str(page.fleet.addresses[0])
    sent = reply.request_body.response.body_mutation.body
    assert json.loads(sent) == {"conversation_ids": ["mine::tiny"]}
    answer = page.look_up("mine", key=FREE).immediate_response
    assert (answer.status.code, answer.body) == (200, b"[]")


def test_a_lookup_over_several_servers_is_answered_here() -> None:
    page = Page(1, 1)
    page.begin("a", FREE)
    page.begin("b", FREE).end(page.fleet.now)
    answer = page.look_up("a", "b", key=FREE).immediate_response
    assert json.loads(answer.body) == [
        {"conversation_id": "a", "is_done": False},
        {"conversation_id": "b", "is_done": False},
    ]


def test_nothing_is_kept_where_the_header_is_stripped() -> None:
    page = Page(1, is_kept=False)
    page.begin("x" * 1000)
    assert HEADER in page.removed
    assert page.ask("conv_id=" + "x" * 1000) == NOT_FOUND


@pytest.mark.parametrize("id_", ["x" * 257, b"\xff"])
def test_an_id_that_cannot_be_kept_is_rejected(id_: str | bytes) -> None:
    page = Page(1)
    message = envoy.request_headers(authorization=WEB, x_conversation_id=id_)
    exchange, reply = page.exchange(message)
    assert envoy.rejection(reply) == (400, "bad-request")
    exchange.end(page.fleet.now)
    assert page.fleet.account(page.fleet.addresses[0]).leased_slots == 0


def test_an_id_that_was_sent_twice_is_rejected() -> None:
    """Servers might take the other one."""
    page = Page(1)
    message = envoy.request_headers(authorization=WEB, x_conversation_id="a")
    envoy.header_map(message.request_headers, {HEADER: "b"})
    assert envoy.rejection(page.exchange(message)[1]) == (400, "bad-request")


def explained(
    page: Page, path: str, method: str = "GET", body: object = None, **headers: str
) -> Explanation:
    asked = DryRunRequest(
        method=method,
        path=path,
        headers={"authorization": WEB} | headers,
        body=b"" if body is None else json.dumps(body).encode(),
    )
    return dry_run(page.fleet.dispatcher, page.options, asked, page.fleet.now)


def test_explain_says_where_a_conversation_is() -> None:
    """For its client, whatever state its server is in, as a real request is answered."""
    page = Page(1, 1)
    begun = page.begin("c")
    assert begun.lease is not None
    address = begun.lease.address
    for method in ("GET", "HEAD", "DELETE"):
        found = explained(page, "/v1/stream?conv_id=c", method)
        assert (found.chosen, found.takes_slot, found.reason) == (address, False, None)
        assert [str(found.chosen)] == page.ask("conv_id=c", method=method)
    for asked in (
        explained(page, "/v1/stream?conv_id=d"),
        explained(page, "/v1/stream?conv_id=c", authorization=FREE),
    ):
        assert (asked.reason, asked.chosen) == (Reason.CONVERSATION_NOT_FOUND, None)


def test_explain_says_who_answers_a_lookup() -> None:
    """The server of all that are found, or the picker."""
    page = Page(1, 1)
    first = page.begin("c", FREE)
    second = page.begin("d", FREE)
    assert first.lease is not None and second.lease is not None
    lookup = "/v1/streams/lookup"

    def of(body: object) -> Explanation:
        return explained(page, lookup, "POST", body, authorization=FREE)

    assert of({"conversation_ids": ["c"]}).chosen == first.lease.address
    assert of({"conversation_ids": ["d", "x"]}).chosen == second.lease.address
    for ids in (["c", "d"], ["x"], []):
        found = of({"conversation_ids": ids})
        assert (found.chosen, found.resolved, found.takes_slot) == (
            None,
            {"answered_by": OURS},
            False,
        )
    bad = of({"conversation_ids": "c"})
    assert (bad.reason, bad.takes_slot) == (Reason.BAD_REQUEST, False)


def test_explain_refuses_an_id_that_is_no_text() -> None:
    page = Page(1)
    found = explained(page, envoy.COMPLETION, "POST", {}, **{HEADER: "x" * 300})
    assert found.reason is Reason.BAD_REQUEST and HEADER in found.resolved["problem"]
