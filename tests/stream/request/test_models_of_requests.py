"""Claims about the model of a request, in each form in which clients name it and in each mode in
which Envoy brings the body: it is served by a server of that model, or rejected."""

from __future__ import annotations

import gzip
import json
import sys
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from extproc.core.fleet.aliases import ModelMatch
from extproc.core.observation import ModelReading, Observation, ScrapeStatus
from extproc.pb import external_processor_pb2 as pb
from extproc.pb.processing_mode_pb2 import ProcessingMode
from extproc.security.path_rule import PathRule
from extproc.stream.exchange import Exchange, Stage
from extproc.stream.request.paths import Paths
from tests.fakes import envoy_messages as envoy
from tests.fakes.exchange_harness import ExchangeHarness, streamed

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CHAT_PATH = "/v1/chat/completions"
COUNTING = (
    "/tokenize",
    "/detokenize",
    "/apply-template",
    "/v1/messages/count_tokens",
    "/chat/completions/input_tokens",
    "/v1/chat/completions/input_tokens",
    "/responses/input_tokens",
    "/v1/responses/input_tokens",
    "/api/show",
    "//v1/./messages/count_tokens",
)
TEXT = "row the boat " * 6000
TOOLS = [{"type": "function", "function": {"name": f"f{number}"}} for number in range(200)]
BODIES: dict[str, Callable[[str], tuple[bytes, dict[str, str]]]] = {}


def body_of(name: str) -> Callable[[Any], Any]:
    def add(make: Any) -> Any:
        BODIES[name] = make
        return make

    return add


def as_json(**body: object) -> bytes:
    return json.dumps(body).encode()


@body_of("json")
def _(model: str) -> tuple[bytes, dict[str, str]]:
    return as_json(model=model, messages=[]), {}


@body_of("behind messages, before tools")
def long(model: str) -> tuple[bytes, dict[str, str]]:
    """As OpenAI's client writes it."""
    return as_json(messages=[{"content": TEXT}], model=model, max_tokens=8, tools=TOOLS), {}


@body_of("behind a byte order mark")
def _(model: str) -> tuple[bytes, dict[str, str]]:
    return b"\xef\xbb\xbf" + as_json(model=model, prompt="row"), {}


@body_of("form, before the file")
def _(model: str) -> tuple[bytes, dict[str, str]]:
    return form(field(model), FILE), FORM_TYPE


@body_of("form, behind the file")
def _(model: str) -> tuple[bytes, dict[str, str]]:
    return form(FILE, field(model)), FORM_TYPE


@body_of("gzip")
def _(model: str) -> tuple[bytes, dict[str, str]]:
    return gzip.compress(long(model)[0]), {"content_encoding": "gzip"}


@body_of("deflate")
def _(model: str) -> tuple[bytes, dict[str, str]]:
    return zlib.compress(long(model)[0]), {"content_encoding": "deflate"}


@body_of("zstd")
def _(model: str) -> tuple[bytes, dict[str, str]]:
    return zstd.compress(long(model)[0]), {"content_encoding": "zstd"}


@body_of("compressed form")
def _(model: str) -> tuple[bytes, dict[str, str]]:
    return gzip.compress(form(FILE, field(model))), {"content_encoding": "gzip", **FORM_TYPE}


FORM_TYPE = {"content_type": "multipart/form-data; boundary=xyz"}
FILE = (
    b'Content-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
    + b"RIFF\0\xff" * 20_000
)


def field(model: str) -> bytes:
    return f'Content-Disposition: form-data; name="model"\r\n\r\n{model}'.encode()


def form(*parts: bytes) -> bytes:
    return b"".join(b"--xyz\r\n" + part + b"\r\n" for part in parts) + b"--xyz--\r\n"


def observe(harness: ExchangeHarness, number: int, *models: ModelReading) -> None:
    harness.fleet.now += 1
    harness.fleet.dispatcher.observe(
        Observation(
            address=harness.fleet.addresses[number],
            began_at=harness.fleet.now,
            answered_at=harness.fleet.now,
            status=ScrapeStatus.READY,
            slots=4,
            busy_slots=0,
            models=models,
        ),
        harness.fleet.now,
    )


def two_models(match: ModelMatch = ModelMatch.LENIENT, **options: Any) -> ExchangeHarness:
    """Three plain servers: the last one has the model `beta`, alias `whisper-1`."""
    harness = ExchangeHarness(4, 4, 4, match=match, **options)
    for number in (0, 1):
        observe(harness, number, ModelReading(name="alpha"))
    observe(harness, 2, ModelReading(name="beta", aliases=("whisper-1",)))
    return harness


MODES = ("buffered", "early", "duplex", "undeclared")


def ask(
    harness: ExchangeHarness,
    body: bytes,
    headers: dict[str, str],
    *,
    path: str = CHAT_PATH,
    mode: str = "buffered",
) -> tuple[Exchange, list[pb.ProcessingResponse]]:
    """One request, its body as that mode brings it."""
    message = envoy.with_body(envoy.request_headers(path, **headers), is_duplex=mode == "duplex")
    parts = [body]
    if mode != "buffered":
        parts = [body[start : start + 16_384] for start in range(0, len(body), 16_384)]
    if mode == "early":
        message.protocol_config.request_body_mode = ProcessingMode.STREAMED
        message.protocol_config.send_body_without_waiting_for_header_response = True
    if mode == "undeclared":
        message.ClearField("protocol_config")
    exchange = harness.exchange()
    messages = [envoy.body(part, end_of_stream=part is parts[-1]) for part in parts]
    return exchange, harness.feed(exchange, message, *messages)


def destination(replies: list[pb.ProcessingResponse]) -> list[str]:
    """The servers in the one reply that names them."""
    for reply in replies:
        kind = reply.WhichOneof("response")
        if kind in ("request_headers", "request_body"):
            mutation = getattr(reply, str(kind)).response.header_mutation
            found = envoy.set_headers(mutation).get("x-gateway-destination-endpoint")
            if found:
                return found.split(",")
    return []


def sent(replies: list[pb.ProcessingResponse], mode: str) -> bytes | None:
    """The body that replaces the client's."""
    if mode in ("duplex", "undeclared"):
        return streamed(replies[1:])
    found = [reply.request_body.response.body_mutation for reply in replies]
    return b"".join(each.body for each in found) or None


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", BODIES)
def test_a_request_reaches_a_server_of_its_model(kind: str, mode: str) -> None:
    """By its name and by an alias, in what clients and gateways send."""
    for match in ModelMatch:
        harness = two_models(match)
        for model in ("beta", "whisper-1"):
            body, headers = BODIES[kind](model)
            exchange, replies = ask(harness, body, headers, mode=mode)
            assert destination(replies) == [str(harness.fleet.addresses[2])]
            assert exchange.stage is Stage.LEASED and harness.asked[-1].model == model


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", BODIES)
def test_an_unknown_model_is_not_found_if_strict(kind: str, mode: str) -> None:
    harness = two_models(ModelMatch.STRICT)
    body, headers = BODIES[kind]("nosuch")
    _, replies = ask(harness, body, headers, mode=mode)
    assert envoy.rejection(replies[-1]) == (404, "model-not-found")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["gzip", "deflate", "zstd", "compressed form"])
@pytest.mark.parametrize("path", [CHAT_PATH, "/tokenize"])
def test_a_server_gets_what_was_compressed(kind: str, mode: str, path: str) -> None:
    """Servers cannot read it: it is decompressed, also where it takes no slot, or waits for one."""
    harness = two_models()
    plain = form(FILE, field("beta")) if kind == "compressed form" else long("beta")[0]
    body, headers = BODIES[kind]("beta")
    held = [harness.fleet.pick() for _ in range(12)] if path == CHAT_PATH else []
    exchange, replies = ask(harness, body, headers, path=path, mode=mode)
    if held:
        assert exchange.stage is Stage.QUEUED and exchange.ticket is not None
        assert exchange.ticket.body_bytes == len(plain)
        harness.fleet.listener.on_settled = lambda _, settlement: exchange.settle(settlement)
        for lease in held:
            harness.fleet.finish(lease)
        replies = []
        while (reply := exchange.take_reply()) is not None:
            replies.append(reply)
    assert destination(replies)
    assert sent(replies, mode) == plain
    assert "content-encoding" in str(replies), "it is removed"


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"row", {"content_encoding": "br"}, 415),
        (b"row", {"content_encoding": "gzip, br"}, 415),
        (b"row", {"content_encoding": "zstd", "content_length": "5000000"}, 415),
        (b"row", {"content_encoding": "gzip"}, 400),
        (gzip.compress(as_json(model="beta"))[:-9], {"content_encoding": "gzip"}, 400),
        (gzip.compress(bytes(9_000_000)), {"content_encoding": "gzip"}, 400),
        (zstd.compress(bytes(9_000_000)), {"content_encoding": "zstd"}, 400),
    ],
    ids=["br", "also br", "too long", "no gzip", "cut", "gzip bomb", "zstd bomb"],
)
@pytest.mark.parametrize("mode", MODES)
def test_what_cannot_be_decompressed_is_rejected_before_the_queue(
    body: bytes, headers: dict[str, str], status: int, mode: str
) -> None:
    """Also while a slot is free: the server would only say the same."""
    harness = two_models()
    for path in (CHAT_PATH, "/tokenize"):
        _, replies = ask(harness, body, headers, path=path, mode=mode)
        reason = "unsupported-encoding" if status == 415 else "bad-request"
        assert envoy.rejection(replies[-1]) == (status, reason)
    assert harness.asked == []


def test_without_reading_bodies_none_is_decompressed() -> None:
    harness = two_models(reads_bodies=False)
    message = envoy.with_body(envoy.request_headers(CHAT_PATH, content_encoding="gzip"))
    (reply,) = harness.feed(harness.exchange(), message)
    assert envoy.rejection(reply) == (415, "unsupported-encoding")


# What takes no slot


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("path", COUNTING)
def test_what_counts_tokens_reaches_a_server_of_its_model(path: str, mode: str) -> None:
    for match in ModelMatch:
        harness = two_models(match)
        for make in (BODIES["json"], long):
            body, headers = make("beta")
            exchange, replies = ask(harness, body, headers, path=path, mode=mode)
            assert destination(replies) == [str(harness.fleet.addresses[2])]
            assert exchange.stage is Stage.PASSING and exchange.lease is None
            if mode in ("duplex", "undeclared"):
                assert streamed(replies[1:]) == body
        named = {"x_gateway_model_name": "beta"}
        _, replies = ask(harness, as_json(content="row"), named, path=path, mode=mode)
        assert destination(replies) == [str(harness.fleet.addresses[2])]


@pytest.mark.parametrize("mode", MODES)
def test_a_count_for_an_unknown_model(mode: str) -> None:
    """Also where one model is served."""
    alone = ExchangeHarness(4, match=ModelMatch.STRICT)
    observe(alone, 0, ModelReading(name="alpha"))
    for harness in (two_models(ModelMatch.STRICT), alone):
        _, replies = ask(harness, as_json(model="nosuch"), {}, path="/tokenize", mode=mode)
        assert envoy.rejection(replies[-1]) == (404, "model-not-found")
        _, replies = ask(harness, as_json(content="row"), {}, path="/tokenize", mode=mode)
        assert destination(replies), "it names none"
    lenient = two_models()
    _, replies = ask(lenient, as_json(model="nosuch"), {}, path="/tokenize", mode=mode)
    assert destination(replies)


def test_where_one_model_is_served_the_body_of_a_count_is_not_read() -> None:
    """Nor waited for."""
    harness = ExchangeHarness(4)
    observe(harness, 0, ModelReading(name="alpha"))
    replies = harness.feed(harness.exchange(), envoy.with_body(envoy.request_headers("/tokenize")))
    assert envoy.destination(replies[0])


@pytest.mark.parametrize(
    ("query", "status"),
    [("?model=beta", 200), ("?x=1&model=whisper-1", 200), ("?model=nosuch", 404), ("", 200)],
)
@pytest.mark.parametrize("path", ["/props", "/slots", "/metrics", "/lora-adapters"])
def test_the_properties_of_a_model(path: str, query: str, status: int) -> None:
    harness = two_models(ModelMatch.STRICT)
    harness.options = opened(harness)
    (reply,) = harness.feed(harness.exchange(), envoy.request_headers(f"{path}{query}", "GET"))
    if status == 200:
        found = envoy.destination(reply)
        assert not query or found == [str(harness.fleet.addresses[2])]
    else:
        assert envoy.rejection(reply) == (404, "model-not-found")
    headers = envoy.request_headers(path, "GET", x_gateway_model_name="beta")
    (reply,) = harness.feed(harness.exchange(), headers)
    assert envoy.destination(reply) == [str(harness.fleet.addresses[2])]


def opened(harness: ExchangeHarness) -> Any:
    rules = [PathRule.parse(f"GET {path}") for path in ("/slots", "/metrics", "/lora-adapters")]
    return replace(harness.options, paths=Paths(opened=rules))


@pytest.mark.parametrize("busy_slots", [0, 4])
def test_a_count_never_makes_a_router_load_its_model(busy_slots: int) -> None:
    """The router that has it loaded gets it, however busy it is; without one nobody does."""
    harness = ExchangeHarness(4, 4)
    other = ModelReading(name="alpha", is_loaded=False)
    loaded = ModelReading(name="beta", slots=4, busy_slots=busy_slots)
    unloaded = ModelReading(name="beta", is_loaded=False)
    observe(harness, 0, unloaded, other)
    observe(harness, 1, loaded, other)
    for _ in range(8):
        _, replies = ask(harness, as_json(model="beta"), {}, path="/tokenize")
        assert destination(replies) == [str(harness.fleet.addresses[1])]
        assert "x-envoy-max-retries" in str(replies), "no other one may get it"
    loading = ModelReading(name="beta", is_loaded=False, is_loading=True)
    observe(harness, 1, loading, other)
    _, replies = ask(harness, as_json(model="beta"), {}, path="/tokenize")
    assert destination(replies) == [str(harness.fleet.addresses[1])]
    observe(harness, 1, unloaded, other)
    _, replies = ask(harness, as_json(model="beta"), {}, path="/tokenize")
    assert envoy.rejection(replies[-1]) == (503, "no-endpoint")
    assert "does not load" in replies[-1].immediate_response.body.decode()
    for query, is_served in (("?model=beta", False), ("?model=beta&autoload=false", True)):
        (reply,) = harness.feed(harness.exchange(), envoy.request_headers(f"/props{query}", "GET"))
        assert (reply.WhichOneof("response") == "request_headers") is is_served


# What cannot be found


@pytest.mark.parametrize(
    ("body", "headers", "why"),
    [
        (b'{"model":"beta', {}, "is not JSON"),
        (as_json(prompt=TEXT, model="beta")[:-1], {}, "is not JSON"),
        (b"RIFF", {"content_type": "audio/wav"}, "neither JSON nor a form"),
        (b"RIFF", FORM_TYPE, "is not a form"),
        (as_json(model="x" * 600), {}, "more than 512 characters"),
    ],
    ids=["broken", "long and broken", "audio", "no form", "long name"],
)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("path", [CHAT_PATH, "/tokenize"])
def test_a_request_whose_model_cannot_be_found(
    body: bytes, headers: dict[str, str], why: str, mode: str, path: str
) -> None:
    """It is rejected where a guess could be wrong, unless the settings want the guess."""
    for match in ModelMatch:
        harness = two_models(match)
        _, replies = ask(harness, body, headers, path=path, mode=mode)
        assert envoy.rejection(replies[-1]) == (400, "bad-request")
        assert why in replies[-1].immediate_response.body.decode()
        named = {**headers, "x_gateway_model_name": "beta"}
        _, replies = ask(harness, body, named, path=path, mode=mode)
        assert destination(replies) == [str(harness.fleet.addresses[2])]
    alone = ExchangeHarness(4)
    observe(alone, 0, ModelReading(name="alpha"))
    for harness in (two_models(must_know_models=False), alone):
        _, replies = ask(harness, body, headers, path=path, mode=mode)
        assert destination(replies)


@pytest.mark.parametrize(
    "body",
    [as_json(prompt="row"), as_json(prompt=TEXT), b"[]", form(FILE)],
    ids=["short", "long", "list", "form"],
)
@pytest.mark.parametrize("mode", MODES)
def test_clients_that_name_no_model_are_served(body: bytes, mode: str) -> None:
    for match in ModelMatch:
        headers = FORM_TYPE if body.startswith(b"--") else {}
        _, replies = ask(two_models(match), body, headers, mode=mode)
        assert destination(replies)


def test_a_request_without_a_body_names_none() -> None:
    harness = two_models()
    (reply,) = harness.feed(harness.exchange(), envoy.request_headers(CHAT_PATH))
    assert envoy.destination(reply)
