"""Claims about extproc/stream/request/top_level.py: each key is found, wherever it stands."""

from __future__ import annotations

import json
from typing import Any

import jiter
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.core.request import Kind
from extproc.stream.request import top_level
from extproc.stream.request.body import CUT, RequestBody, read_body
from extproc.stream.request.top_level import MAX_TRIES, SHORT, read_cut

LIMIT = 600
TEXT = "row the boat " * 10_000
MESSAGES = {"messages": [{"role": "user", "content": TEXT}]}
SHORT_KEYS = {"model": "beta", "n": 2, "max_tokens": 8, "lora": [{"id": 1, "scale": 1.0}]}
DECOYS = {
    "stop": ['"model":"quoted"', '","model":"quoted"}', '\\","model":"quoted"}', "}]}"],
    "metadata": {"model": "nested", "n": 7, "max_tokens": 1},
}


def read(
    body: object, *, limit_bytes: int = LIMIT, is_whole: bool = True, kind: Kind = Kind.GENERATION
) -> RequestBody:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read_body(raw, kind, limit_bytes=limit_bytes, is_whole=is_whole, is_strict=False)


@pytest.mark.parametrize(
    "body",
    [
        MESSAGES | SHORT_KEYS,
        MESSAGES | SHORT_KEYS | {"tools": ["x" * 100_000]},
        {"tools": ["x" * 100_000]} | SHORT_KEYS | MESSAGES,
        MESSAGES | DECOYS | SHORT_KEYS | {"user": TEXT} | DECOYS,
        {"messages": [MESSAGES] * 50} | SHORT_KEYS,
        {"prompt": "é☃" * 50_000} | SHORT_KEYS,
        {"prompt": '"\\' * 50_000} | SHORT_KEYS,
        {"prompt": list(range(50_000))} | SHORT_KEYS,
    ],
)
@pytest.mark.parametrize("indent", [None, 2])
def test_what_stands_before_behind_and_between_long_values(
    body: dict[str, object], indent: int | None
) -> None:
    """As OpenAI's client writes it: messages, the model, then tools."""
    for is_ascii in (True, False):
        raw = json.dumps(body, ensure_ascii=is_ascii, indent=indent).encode() + b"\r\n"
        found = read(raw)
        assert (found.model, found.answers, found.max_tokens) == ("beta", 2, 8)
        assert (found.adapter_numbers, found.unread) == (frozenset({1}), None)


def test_tools_and_instructions_behind_the_messages_are_a_part_of_the_prompt() -> None:
    """Or the session would look like another one as soon as it is longer than the limit."""
    more = {"tools": [{"name": "row"}], "system": "be kind", "response_format": {"type": "json"}}
    found = read(MESSAGES | more, limit_bytes=65_536)
    assert found.has_tools and found.has_grammar
    short = read({"messages": []} | more, limit_bytes=65_536)
    assert found.text.startswith(short.text) and "be kind" in short.text


@pytest.mark.parametrize(
    ("body", "kind", "inputs"),
    [
        ({"prompt": [TEXT, TEXT, TEXT]}, Kind.GENERATION, 3),
        ({"prompt": [[1] * 900, [2] * 900]}, Kind.GENERATION, 2),
        ({"prompt": list(range(9000))}, Kind.GENERATION, 1),
        ({"prompt": ["row", 1, TEXT]}, Kind.GENERATION, 1),
        ({"prompt": TEXT}, Kind.GENERATION, 1),
        ({"input": [TEXT, TEXT]}, Kind.EMBEDDING, 2),
        ({"query": TEXT, "documents": [TEXT] * 5}, Kind.EMBEDDING, 5),
        ({"input": ["row"] * 3000}, Kind.EMBEDDING, 1024),
    ],
)
def test_long_inputs_are_counted(body: dict[str, object], kind: Kind, inputs: int) -> None:
    """Each takes a slot."""
    assert read(body, kind=kind).inputs == inputs


def test_what_the_model_is_not() -> None:
    """Deeper inside, in a text, or in an array."""
    for body in (MESSAGES | DECOYS, DECOYS | MESSAGES):
        assert (read(body).model, read(body).unread) == (None, None)
    assert read([MESSAGES | SHORT_KEYS]).model is None


def test_of_two_values_the_last_counts() -> None:
    """As for llama-server, and as another picker in front appends its own."""
    twice = b'{"model":"a","prompt":"' + TEXT.encode() + b'","model":"b"}'
    assert read(twice).model == "b"


def test_a_key_with_escapes() -> None:
    assert read(b'{"prompt":"' + TEXT.encode() + b'","mod\\u0065l":"beta"}').model == "beta"


@pytest.mark.parametrize("end", [b"", b"]", b'"x":}', b',"y":tru}', b"} row", b',"y":NaN}'])
def test_a_long_body_that_is_no_json_hides_its_model(end: bytes) -> None:
    """Also if something like a model stands before the fault: servers reject it."""
    found = read(b'{"prompt":"' + TEXT.encode() + b'","model":"beta"' + end)
    assert found.model is None and "is not JSON" in str(found.unread)
    assert found.problem == found.unread and not found.is_complete


def test_json_that_is_nested_too_deep_for_the_parser() -> None:
    """Servers read it; the model is found all the same."""
    deep = b'{"x":' + b"[" * 500 + b"]" * 500 + b',"model":"beta"}'
    assert read(deep, limit_bytes=65_536).model == "beta"
    deeper = b'{"x":' + b"[" * 90_000 + b"]" * 90_000 + b',"model":"beta"}'
    assert read(deeper).model is None and read(deeper).unread is not None


# A part of a body


def test_what_is_here_of_a_cut_body_is_found() -> None:
    raw = json.dumps(MESSAGES | DECOYS | SHORT_KEYS | {"user": TEXT}).encode()
    found = read(raw[:-50_000], is_whole=False)
    assert (found.model, found.answers, found.max_tokens) == ("beta", 2, 8)
    assert found.unread == CUT


@pytest.mark.parametrize("cut", [b'{"prompt":"row","model":"be', b'{"prompt":"row","model"', b"{"])
def test_half_a_name_is_none(cut: bytes) -> None:
    raw = cut.replace(b"row", TEXT.encode())
    assert (read(raw, is_whole=False).model, read(raw, is_whole=False).unread) == (None, CUT)


def test_a_cut_number_is_none() -> None:
    raw = b'{"prompt":"' + TEXT.encode() + b'","n":12'
    assert read(raw, is_whole=False).answers == 1


def test_a_cut_body_full_of_decoys_costs_no_more() -> None:
    decoys = b'{"x":[' + b'{"model":"x"},' * 100_000 + b'1],"model":"beta","y":1'
    assert decoys.count(b'"model"') > MAX_TRIES
    assert read(decoys, is_whole=False).model is None


# Any


NAMES = st.sampled_from([*SHORT, "tools", "x", '"model":', '"', "prompt", "lora"])
VALUES = st.recursive(
    st.none() | st.integers() | st.sampled_from(["a", '"model":"b"', '\\","n":1}', "}", '{"n":1']),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=10,
)


@given(st.dictionaries(NAMES, VALUES, max_size=8), st.booleans(), st.integers(1, 40))
def test_a_short_limit_hides_nothing(body: dict[str, Any], is_ascii: bool, limit: int) -> None:
    raw = json.dumps(body, ensure_ascii=is_ascii).encode()
    one, other = read(raw, limit_bytes=limit), read(raw, limit_bytes=1_000_000)
    for field in ("model", "answers", "inputs", "max_tokens", "adapter_numbers", "has_tools"):
        assert getattr(one, field) == getattr(other, field), field
    assert one.unread is other.unread is None


@given(st.dictionaries(NAMES, VALUES, max_size=8), st.data())
def test_nothing_is_found_in_a_cut_body_that_does_not_stand_at_its_top(
    body: dict[str, Any], data: st.DataObject
) -> None:
    raw = json.dumps(body).encode()
    found: dict[str, Any] = {}
    read_cut(raw[: data.draw(st.integers(0, len(raw)))], found)
    for key, value in found.items():
        assert key in body
        if not isinstance(value, dict | list):
            assert value == body[key], key


PIECES = ("row the boat ", "\n", '"', "\\", "é☃", "}]}", '","model":"q"', "\u0001", "12, ")
TEXTS = st.lists(st.sampled_from(PIECES), max_size=40).map("".join)
MANY = st.one_of(TEXTS, st.lists(st.fixed_dictionaries({"content": TEXTS}), max_size=4))


@given(st.dictionaries(st.one_of(NAMES, TEXTS), MANY, max_size=6), st.booleans(), st.data())
def test_the_rest_of_a_text_hides_nothing(
    body: dict[str, Any], is_ascii: bool, data: st.DataObject
) -> None:
    """The text in which the beginning ends is skipped, and not what only looks like its end."""
    raw = json.dumps(body | {"n": 3}, ensure_ascii=is_ascii).encode()
    limit = data.draw(st.integers(1, len(raw)))
    noise = data.draw(st.sampled_from([raw, raw[:-1], raw + b"}", raw.replace(b"row", b'r"w', 1)]))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(top_level, "read_behind_list", lambda *_: None)
        quick = read(noise, limit_bytes=limit)
        patched.setattr(top_level, "read_behind", lambda *_: None)
        assert read(noise, limit_bytes=limit) == quick


CONTENTS: st.SearchStrategy[Any] = st.one_of(
    TEXTS, st.lists(st.one_of(TEXTS, st.integers(), st.just([])))
)
MESSAGE = st.one_of(
    st.fixed_dictionaries({"role": TEXTS, "content": CONTENTS}),
    st.fixed_dictionaries({"content": CONTENTS, "role": TEXTS}),
)
PAIRS = st.tuples(NAMES, st.one_of(VALUES, st.lists(MESSAGE, max_size=5)))


@given(
    st.lists(PAIRS, max_size=4),
    st.lists(MESSAGE, min_size=1, max_size=8),
    st.lists(PAIRS, max_size=4),
    st.tuples(st.booleans(), st.sampled_from([None, 1])),
    st.data(),
)
def test_the_rest_of_a_list_hides_nothing(
    before: list[tuple[str, Any]],
    messages: list[dict[str, Any]],
    behind: list[tuple[str, Any]],
    form: tuple[bool, int | None],
    data: st.DataObject,
) -> None:
    """Also if keys stand there twice, or inside texts."""
    is_ascii, indent = form
    pairs = [*before, ("messages", messages), *behind]
    inside = [
        f"{json.dumps(key)}:{json.dumps(value, ensure_ascii=is_ascii, indent=indent)}"
        for key, value in pairs
    ]
    raw = "{{{}}}".format(" , ".join(inside)).encode()
    limit = data.draw(st.integers(1, len(raw)))
    quick = read(raw, limit_bytes=limit)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(top_level, "read_behind_list", lambda *_: None)
        assert read(raw, limit_bytes=limit) == quick
    last = json.loads(raw).get("model")
    assert quick.model == (last if isinstance(last, str) and last else None)


@pytest.mark.parametrize(
    "behind",
    [
        '"x": -1.5e3',
        '"x":true',
        '"x": {"y":"row"}',
        '"x":"row"',
        '"p\\u0072om\\\\pt":null',
        '"é☃":[]',
        '"]":1',
        '"x":[1] , "messages" : 0',
        '"x":[1],"messages":"row"',
        '"x":[[1]],"messages":[0],"x":[2],"messages":{}',
    ],
)
def test_a_list_that_may_have_ended_is_not_read_on(behind: str) -> None:
    """Wherever the cut is: in half of a key, of a value, or in a key that is there twice."""
    raw = f'{{"messages":[{{"content":["row"]}} ] , {behind},"model":"beta","stop":["a"]}}'.encode()
    json.loads(raw)
    for limit in range(1, len(raw)):
        assert read(raw, limit_bytes=limit).model == "beta", limit


MANY_MESSAGES = [{"role": "user", "content": 'row "the" boat\n' * 5}] * 800
PARTS = [{"role": "user", "content": [{"type": "text", "text": "row " * 300}]}] * 60
TOOLS = [{"type": "function", "function": {"name": "row", "required": ["boat"], "x": 1.5}}] * 40


@pytest.mark.parametrize("messages", [MANY_MESSAGES, PARTS])
@pytest.mark.parametrize("indent", [None, 2])
def test_many_messages_are_not_read_twice(
    messages: list[dict[str, object]], indent: int | None
) -> None:
    """What is behind them is read alone."""
    body = {"messages": messages, "n": 2, "tools": TOOLS}
    raw = json.dumps(body, indent=indent).encode()
    for limit in range(20_000, 20_200):
        tree = jiter.from_json(raw[:limit], partial_mode="trailing-strings")
        found = top_level.read_behind_list(raw, tree, limit)
        assert (bytes(found.n), json.loads(bytes(found.tools))) == (b"2", TOOLS)


def test_brackets_are_looked_at_a_bounded_number_of_times() -> None:
    """Where texts are full of what may be the end of the list, all is read."""
    ends = [{"content": [1], "role": "user"}] * (top_level.MAX_BRACKETS + 1)
    raw = json.dumps({"messages": ends, "n": 2}).encode()
    tree = jiter.from_json(raw[:LIMIT], partial_mode="trailing-strings")
    assert top_level.read_behind_list(raw, tree, LIMIT) is None
    assert read(raw).answers == 2


def test_only_strict_looks_for_faults_in_the_rest_of_a_list() -> None:
    """A server finds them anyway."""
    raw = json.dumps({"messages": MANY_MESSAGES, "model": "beta"}).encode()
    raw = raw[:50_000] + raw[50_000:].replace(b'"role"', b'"role', 1)
    assert read(raw).model == "beta"
    strict = read_body(raw, Kind.GENERATION, limit_bytes=LIMIT, is_whole=True, is_strict=True)
    assert "is not JSON" in str(strict.problem)


@pytest.mark.parametrize(
    "tools",
    [
        TOOLS,
        [{"name": 'réa"d'}],
        [{"name": "row", "cache_control": {"type": "ephemeral"}}],
        [{"name": "row", "minimum": 0.1, "x": [], "y": {}}],
        ["row"],
    ],
)
@pytest.mark.parametrize("is_ascii", [True, False])
@pytest.mark.parametrize("indent", [None, 2])
def test_tools_make_the_same_text_of_a_short_body_and_behind_a_long_one(
    tools: list[object], is_ascii: bool, indent: int | None
) -> None:
    short, long = (
        read(
            json.dumps(
                {"messages": messages, "tools": tools}, ensure_ascii=is_ascii, indent=indent
            ).encode(),
            limit_bytes=16_384,
        )
        for messages in (MANY_MESSAGES[:1], MANY_MESSAGES)
    )
    assert long.text.startswith(short.text) and long.has_tools and short.has_tools
    assert not read(MESSAGES | {"tools": None}).has_tools
    empty: list[object] = []
    assert not read(MESSAGES | {"tools": empty}).has_tools


def test_one_long_text_is_not_read_twice() -> None:
    """What is behind it is read alone; the text may have escapes, and letters of several bytes."""
    for text in (TEXT, TEXT + "\n", "é☃ row\n" * 10_000, "row" + "\\" * 100 + " it" * 400):
        raw = json.dumps({"messages": [{"content": text}], "n": 2}, ensure_ascii=False).encode()
        tree = jiter.from_json(raw[:LIMIT], partial_mode="trailing-strings")
        found = top_level.read_behind(raw, tree, LIMIT)
        assert (bytes(found.n), bytes(found.model)) == (b"2", b"")


@given(st.binary(max_size=300), st.booleans(), st.integers(1, 20))
def test_any_bytes(noise: bytes, is_whole: bool, limit: int) -> None:
    for raw in (noise, b'{"model":"a",' + noise, b'{"model":"a"' + noise + b"}"):
        read(raw, is_whole=is_whole, limit_bytes=limit)
