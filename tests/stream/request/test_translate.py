"""Claims about extproc/stream/request/translate.py: what becomes of what was read."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random

import pytest

from extproc.core.fleet.membership import Fleet
from extproc.core.fleet.resolver import RequestResolver, ResolverOptions
from extproc.core.prompt_blocks import BLOCK_CHARS, CHARS_PER_TOKEN
from extproc.core.request import DAMAGED, UNKNOWN_PROMPT_TOKENS, Kind, Request
from extproc.stream.envoy.codec import RequestHead
from extproc.stream.request.body import RequestBody
from extproc.stream.request.translate import NOT_READ, ReadingOptions, fingerprint_of, understand

HEAD = RequestHead(method="POST", path="/completion", id="r", has_body=True, has_json=True)
PROMPT = "row " * 1000


def asked(
    body: RequestBody,
    *,
    head: RequestHead = HEAD,
    model: str | None = None,
    adapter: str | None = None,
) -> Request:
    request = understand(
        head._replace(adapter=adapter),
        replace(body, model=model),
        b"{}",
        kind=Kind.GENERATION,
        is_whole=True,
        allowed=None,
        longest_s=1.0,
        resolver=RequestResolver(Fleet(), ResolverOptions(), Random(1)),
    )
    assert isinstance(request, Request)
    return request


def read(
    body: dict[str, object], *, limit_bytes: int = 65_536, is_whole: bool = True
) -> RequestBody:
    options = ReadingOptions(limit_bytes=limit_bytes)
    return options.read(HEAD, Kind.GENERATION, json.dumps(body).encode(), is_whole=is_whole)


def test_what_was_read_reaches_the_core() -> None:
    """An answer for each prompt, each with a slot of its own."""
    body = {"prompt": [PROMPT, "boat"], "n": 3, "max_tokens": 17}
    request = asked(read(body | {"lora": [{"id": 2, "scale": 1.0}]}), model="tiny")
    assert (request.weight_slots, request.max_tokens, request.model) == (6, 17, "tiny")
    assert (request.adapter_numbers, request.adapters) == (frozenset({2}), frozenset({2}))
    assert len(request.prompt_blocks) == len(PROMPT) // BLOCK_CHARS
    assert asked(read(body), adapter="poet").adapters == "poet"


def test_of_what_was_not_read_nothing_is_claimed() -> None:
    request = asked(NOT_READ)
    assert (request.weight_slots, request.prompt_blocks, request.prompt_tokens) == (1, (), None)
    assert (request.model, request.adapters, request.max_tokens) == (None, None, None)


@pytest.mark.parametrize("is_whole", [False, True])
def test_what_is_here_of_a_body_is_read(is_whole: bool) -> None:
    """Of a part nobody knows whether another model follows, so its own counts."""
    body = read({"prompt": PROMPT, "model": "tiny"}, limit_bytes=600, is_whole=is_whole)
    assert body.model == "tiny" and (body.unread is None) is is_whole


def test_the_length_of_a_prompt() -> None:
    """Its text's, where all of it was read; else the body's, as far as that was told."""
    text_tokens = len(PROMPT) // CHARS_PER_TOKEN
    long = HEAD._replace(body_bytes=100_000)
    assert asked(read({"prompt": PROMPT}), head=long).prompt_tokens == text_tokens
    cut = read({"prompt": PROMPT}, limit_bytes=600)
    assert asked(cut, head=long).prompt_tokens == 25_000
    unknown = asked(cut).prompt_tokens
    assert unknown is not None and 0 < unknown < text_tokens


@pytest.mark.parametrize("limit_bytes", [600, 65_536])
def test_the_bytes_of_an_image_are_no_prompt(limit_bytes: int) -> None:
    """How long it is nobody knows; what stands before it may be in a cache all the same."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 9000}}
    message = {"role": "user", "content": [{"type": "text", "text": PROMPT[:300]}, image]}
    request = asked(
        read({"messages": [message]}, limit_bytes=limit_bytes),
        head=HEAD._replace(body_bytes=1_000_000),
    )
    assert request.prompt_tokens is None
    assert len(request.prompt_blocks) >= 2
    assert request.likely_tokens < 2000


def test_an_upload_is_no_prompt() -> None:
    """Audio in a form, or what is compressed: its length tells nothing of tokens."""
    path = "/v1/audio/transcriptions"
    upload = HEAD._replace(path=path, has_json=False, form="f", body_bytes=25_000_000)
    request = asked(NOT_READ, head=upload)
    assert (request.prompt_tokens, request.likely_tokens) == (None, UNKNOWN_PROMPT_TOKENS)


def test_reading_nothing_is_not_reading() -> None:
    with pytest.raises(ValueError, match="must be greater than 0"):
        ReadingOptions(limit_bytes=0)


@pytest.mark.parametrize(
    ("raw", "is_damaged"),
    [
        (b'{"prompt":"row"', True),
        (b"[1]", True),
        (b'{"prompt":"row"}', False),
        (b'{"prompt":"row","x":' + b"[" * 500 + b"]" * 500 + b"}", False),
    ],
)
def test_a_body_that_no_server_can_read_is_a_kind_of_its_own(raw: bytes, is_damaged: bool) -> None:
    options = ReadingOptions(limit_bytes=65_536)
    body = options.read(HEAD, Kind.GENERATION, raw, is_whole=True)
    assert asked(body).has_trait(DAMAGED) is is_damaged


@pytest.mark.parametrize(
    ("body", "traits"),
    [
        ({"prompt": "row"}, "/completion"),
        ({"prompt": "row", "grammar": "g"}, "/completion grammar"),
        ({"prompt": "row", "tools": [{}], "json_schema": {"a": 1}}, "/completion grammar tools"),
        ({"prompt": "row", "images": ["x"]}, "/completion media"),
    ],
)
def test_the_kind_of_a_request(body: dict[str, object], traits: str) -> None:
    assert asked(read(body)).traits == traits
    assert asked(read(body)).traits is asked(read(body)).traits, "one text for all of them"


@pytest.mark.parametrize(
    ("one", "other", "are_equal"),
    [
        (b"row", b"row", True),
        (b"row", b"boat", False),
        (b"row" * 10_000, b"row" * 10_000, True),
        (b"row" * 10_000, b"row" * 9_999, False),
        (b"row" * 10_000, b"row" * 9_999 + b"rox", False),
    ],
)
def test_equal_bodies_have_one_fingerprint(one: bytes, other: bytes, are_equal: bool) -> None:
    assert (fingerprint_of(one, HEAD) == fingerprint_of(other, HEAD)) is are_equal
    assert fingerprint_of(one, HEAD) != fingerprint_of(one, replace_path("/infill"))


def replace_path(path: str) -> RequestHead:
    return HEAD._replace(path=path)


def test_what_was_not_read_has_no_fingerprint() -> None:
    assert fingerprint_of(b"", HEAD) == 0
