"""Claims about extproc/stream/request/prompt.py: what images and sounds in a prompt are."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from extproc.core.prompt_blocks import chain
from extproc.core.request import Kind
from extproc.stream.request.body import RequestBody, read_body
from extproc.stream.request.prompt import MEDIUM_CHARS

TEXT = {"type": "text", "text": "what is this?"}


def pixels(seed: int, chars: int = 40_000) -> str:
    return "data:image/png;base64," + "".join(Random(seed).choices("abcdefgh", k=chars))


def image(seed: int, chars: int = 40_000) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": pixels(seed, chars)}}


def chat(*contents: object) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content} for content in contents]}


def read(body: object, kind: Kind = Kind.GENERATION, *, cut: int | None = None) -> RequestBody:
    part = json.dumps(body).encode()[:cut]
    return read_body(part, kind, limit_bytes=65_536, is_whole=cut is None, is_strict=False)


def shared_blocks(one: object, other: object, *, cut: int | None = None) -> int:
    links = (chain((), read(body, cut=cut).text) for body in (one, other))
    return sum(here == there for here, there in zip(*links, strict=False))


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (chat([TEXT, image(1)]), Kind.GENERATION),
        (chat([{"type": "input_audio", "input_audio": {"data": "UklG"}}]), Kind.GENERATION),
        (chat([{"type": "image", "source": {"type": "base64", "data": "iVBO"}}]), Kind.GENERATION),
        (chat("hello", [{"type": "tool_result", "content": [image(1)]}]), Kind.GENERATION),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, Kind.GENERATION),
        (
            {"input": [{"type": "function_call_output", "output": [{"type": "input_image"}]}]},
            Kind.GENERATION,
        ),
        ({"prompt": {"prompt_string": "<__media__>", "multimodal_data": [""]}}, Kind.GENERATION),
        ({"prompt": [{"prompt_string": "", "multimodal_data": [""]}]}, Kind.GENERATION),
        ({"content": [{"prompt_string": "", "multimodal_data": [""]}]}, Kind.EMBEDDING),
        ({"input": [{"content": [image(1)]}]}, Kind.EMBEDDING),
    ],
)
def test_images_and_sounds_are_found_in_every_dialect(body: object, kind: Kind) -> None:
    assert read(body, kind).has_media


def test_one_is_found_that_is_cut() -> None:
    """Whether its type stands before its data or behind them."""
    behind = {"image_url": {"url": pixels(1)}, "type": "image_url"}
    assert read(chat([TEXT, image(1)]), cut=1000).has_media
    assert read(chat([TEXT, behind]), cut=1000).has_media


@pytest.mark.parametrize(
    "body",
    [
        chat("image_url", [TEXT, {"type": "thinking", "thinking": "input_audio"}]),
        chat([{"type": "tool_use", "name": "draw", "input": {"image": "a.png"}}]),
        chat([{"type": "tool_result", "content": "an image"}, {"type": ["image"]}, {"type": 1}]),
        {"prompt": ["image"]},
        {"prompt": [1, 2]},
    ],
)
def test_words_about_images_are_text(body: object) -> None:
    assert not read(body).has_media


@pytest.mark.parametrize("body", [{"input": ["image"]}, {"input": [1]}, {"input": []}, {}])
def test_inputs_without_any(body: object) -> None:
    assert not read(body, Kind.EMBEDDING).has_media


def test_an_image_is_as_long_as_the_tokens_that_are_made_of_it() -> None:
    """Not as its bytes: they would count for all that a server holds."""
    assert MEDIUM_CHARS < len(read(chat([TEXT, image(1)])).text) < MEDIUM_CHARS + 200


def test_the_same_image_is_the_same_prompt() -> None:
    """A chat about it finds its cache again, also where its body is cut in the image."""
    before, after = chat([image(1), TEXT], "a cat"), chat([image(1), TEXT], "a cat", "go on " * 200)
    assert shared_blocks(before, after) == len(chain((), read(before).text))
    assert shared_blocks(before | {"a": 1}, {"a": 22} | after, cut=30_000) >= 15


def test_another_image_is_another_prompt() -> None:
    """Also one that begins alike: what stands behind it is not shared."""
    alike = pixels(1, MEDIUM_CHARS + 1000)
    one, other = ({"type": "image_url", "image_url": {"url": alike + end}} for end in "ab")
    words = "go on " * 2000
    assert shared_blocks(chat([image(1)], words), chat([image(2)], words)) == 0
    assert shared_blocks(chat([one], words), chat([other], words)) <= MEDIUM_CHARS // 256


@pytest.mark.parametrize("last", [TEXT, image(1), {"type": "tool_result", "content": "a cat"}])
def test_a_mark_that_moves_on_changes_no_prompt(last: dict[str, Any]) -> None:
    """Anthropic's clients mark the newest part, and no longer what was the newest before."""
    marked = last | {"cache_control": {"type": "ephemeral"}}
    assert read(chat([marked])).text == read(chat([last])).text


def test_parts_nested_as_deep_as_json_may_be() -> None:
    part = b'{"content":[' * 90
    whole = b'{"messages":[' + part + b'{"type":"image"}' + b"]}" * 90 + b"]}"
    assert read_body(
        whole, Kind.GENERATION, limit_bytes=65_536, is_whole=True, is_strict=False
    ).has_media
    read_body(part * 100, Kind.GENERATION, limit_bytes=65_536, is_whole=False, is_strict=False)
