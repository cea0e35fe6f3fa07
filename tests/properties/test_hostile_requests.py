"""Claims about exchanges with hostile clients, in both body modes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.core.fleet.aliases import ModelMatch
from extproc.core.slots.lease import LeaseState
from extproc.stream.envoy.duplex_body import MAX_CHUNK_BYTES
from extproc.stream.exchange import Stage
from tests.fakes import envoy_messages as envoy
from tests.fakes.exchange_harness import ExchangeHarness, ask, ask_duplex, streamed

NAMES = ["tiny", "large", "chat", "tiny:pirate", ":poet", "nobody", "a:b", "", None, 5]
TEXTS = st.text(max_size=40) | st.none()
JSON_BODIES = st.fixed_dictionaries(
    {},
    optional={
        "model": st.sampled_from(NAMES),
        "messages": st.lists(
            st.dictionaries(st.sampled_from(["role", "content", "x"]), TEXTS, max_size=3)
        ),
        "prompt": st.text(max_size=2000) | st.lists(TEXTS | st.integers(), max_size=4),
        "n": st.integers(-5, 10**20),
        "lora": st.none() | st.lists(st.integers(), max_size=1),
        "max_tokens": st.integers() | st.floats(),
    },
).map(lambda body: json.dumps(body).encode())
HOSTILE = st.sampled_from(
    [
        b"[" * 100_000,
        b'{"a":' * 3000,
        b'{"model":"tiny","model":"chat"}',
        b'{"model":"\\ud800","n":1e999}',
        b'{"prompt":"' + b"x" * 200_000 + b'","model":"chat"}',
        b'{"model":"chat","prompt":"' + b"\xff" * 70_000,
        b'\xef\xbb\xbf{"model":"tiny"}',
    ]
)
HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "x_lora_adapter": st.sampled_from(["pirate", "nobody", ""]),
        "x_gateway_model_name": st.sampled_from(["tiny", "chat", ""]),
        "x_coxswain_queue_timeout_ms": st.sampled_from(["0", "-1", "9" * 30]),
        "content_type": st.sampled_from(["application/json", "multipart/form-data"]),
        "content_length": st.sampled_from(["5", "x", "99999999999999999999"]),
    },
)


@dataclass(frozen=True, kw_only=True)
class Story:
    headers: dict[str, str]
    body: bytes
    cuts: list[int]
    is_duplex: bool
    ends_empty: bool
    ends_twice: bool
    is_strict: bool
    limit_bytes: int

    def parts(self) -> list[Any]:
        """The body as it comes: in pieces, the end with the last, or behind it, or twice."""
        if not self.is_duplex:
            return [envoy.body(self.body, end_of_stream=not self.ends_empty)]
        cuts = sorted({0, len(self.body), *(cut % (len(self.body) + 1) for cut in self.cuts)})
        pieces = [self.body[a:b] for a, b in pairwise(cuts)] or [b""]
        told = [envoy.body(piece, end_of_stream=False) for piece in pieces[:-1]]
        told.append(envoy.body(pieces[-1], end_of_stream=not self.ends_empty))
        return told + [envoy.body(b"")] * (self.ends_empty + self.ends_twice)


STORIES = st.builds(
    Story,
    headers=HEADERS,
    body=st.binary(max_size=500) | JSON_BODIES | HOSTILE,
    cuts=st.lists(st.integers(0, 10**6), max_size=5),
    is_duplex=st.booleans(),
    ends_empty=st.booleans(),
    ends_twice=st.booleans(),
    is_strict=st.booleans(),
    limit_bytes=st.sampled_from([1, 7, 600, 65_536]),
)


@given(STORIES)
@settings(max_examples=200, deadline=None)
def test_any_client_input(story: Story) -> None:
    """The decision raises no exception, no lease stays open, and in full duplex the bytes pass
    unchanged, except for names appended at the end, in bounded pieces with one end."""
    harness = ExchangeHarness(
        *(4, 4),
        splits={"chat": {"tiny": 9.0, "large": 1.0}},
        match=ModelMatch.STRICT if story.is_strict else ModelMatch.LENIENT,
        is_strict=story.is_strict,
        limit_bytes=story.limit_bytes,
    )
    harness.serve("pirate")
    harness.serve("poet", "pirate", number=1, model="large")
    exchange = harness.exchange()
    begin = ask_duplex if story.is_duplex else ask
    replies = harness.feed(exchange, begin(**story.headers))
    for part in story.parts():
        if exchange.stage is Stage.REJECTED:
            break  # Envoy has answered by itself
        replies += harness.feed(exchange, part)
    assert exchange.stage in (Stage.LEASED, Stage.REJECTED)
    if story.is_duplex and exchange.stage is Stage.LEASED:
        assert replies[0].HasField("request_headers")
        chunks = [one.request_body.response.body_mutation.streamed_response for one in replies[1:]]
        assert [chunk.end_of_stream for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
        assert max(len(chunk.body) for chunk in chunks) <= MAX_CHUNK_BYTES
        sent = streamed(replies[1:])
        if sent != story.body:
            kept = story.body.rstrip()[:-1].rstrip()
            assert sent.startswith(kept)
            said = json.loads(b"{" + sent[len(kept) :].removeprefix(b","))
            assert said.keys() <= {"model", "lora"}
    exchange.end(harness.fleet.now)
    ledger = harness.fleet.dispatcher.ledger
    for address in harness.fleet.addresses:
        leases = ledger.endpoint_slots(address).leases.values()
        assert all(lease.state is not LeaseState.OPEN for lease in leases)
