"""Claims about extproc/stream/request/body.py: any bytes, any dialect, nothing raises."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from extproc.core.request import Kind
from extproc.stream.request.body import MAX_COUNT, MAX_NAME_CHARS, RequestBody, read_body

LIMIT = 65_536
CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "row"}], "max_tokens": 8}


def read(
    body: object,
    kind: Kind = Kind.GENERATION,
    *,
    limit_bytes: int = LIMIT,
    is_whole: bool = True,
    is_strict: bool = False,
) -> RequestBody:
    part = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read_body(part, kind, limit_bytes=limit_bytes, is_whole=is_whole, is_strict=is_strict)


# Dialects


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (CHAT, "row"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "row"}]}]}, "row"),
        ({"prompt": "row the boat"}, "row the boat"),
        ({"prompt": ["row", "boat"]}, "boat"),
        ({"prompt": [1, 22, 333]}, "333"),
        ({"instructions": "be kind", "input": "row"}, "be kind"),
        ({"input": [{"role": "user", "content": "row"}]}, "row"),
        ({"system": "be kind", "messages": [{"role": "user", "content": "row"}]}, "be kind"),
        ({"system": [{"type": "text", "text": "be kind"}], "messages": []}, "be kind"),
        ({"input_prefix": "def ", "input_suffix": "return", "prompt": ""}, "def "),
        ({"input_extra": [{"filename": "a.py", "text": "import row"}], "prompt": ""}, "import"),
        ({"messages": [{"role": "user", "content": None, "tool_calls": [{"id": "call-7"}]}]}, "7"),
        ({"messages": [], "tools": [{"type": "function", "function": {"name": "row"}}]}, "row"),
    ],
)
def test_the_prompt_of_every_dialect_is_found(body: object, text: str) -> None:
    assert text in read(body).text


@pytest.mark.parametrize(
    ("more", "has_grammar", "has_tools"),
    [
        ({}, False, False),
        ({"grammar": ""}, False, False),
        ({"grammar": "root ::= [a-z]"}, True, False),
        ({"json_schema": {"type": "object"}}, True, False),
        ({"response_format": {"type": "json_object"}}, True, False),
        ({"tools": [{"type": "function"}]}, False, True),
        ({"tools": []}, False, False),
    ],
)
def test_what_a_server_may_fail_at_is_found(
    more: dict[str, object], has_grammar: bool, has_tools: bool
) -> None:
    body = read(CHAT | more)
    assert (body.has_grammar, body.has_tools) == (has_grammar, has_tools)


@pytest.mark.parametrize(
    "key", ["max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict"]
)
def test_the_bound_of_every_dialect_is_found(key: str) -> None:
    assert read({"prompt": "row", key: 17}).max_tokens == 17


@pytest.mark.parametrize(
    ("asked", "bound"),
    [
        ({"n_predict": 5, "max_completion_tokens": 6, "max_tokens": 7}, 5),
        ({"max_tokens": 7, "max_completion_tokens": 6}, 6),
        ({"max_tokens": 7, "max_output_tokens": 6}, 6),
        ({"n_predict": None, "max_tokens": 7}, 7),
        ({"n_predict": -1, "max_tokens": 7}, None),
        ({"max_tokens": 7.9}, 7),
    ],
)
def test_of_several_bounds_the_servers_counts(asked: dict[str, object], bound: int | None) -> None:
    assert read({"prompt": "row"} | asked).max_tokens == bound


@pytest.mark.parametrize("odd", [False, 0.5, "8", -1, 0, None, [8]])
def test_an_odd_bound_is_none(odd: object) -> None:
    assert read({"prompt": "row", "max_tokens": odd}).max_tokens is None


def test_another_strength_of_an_adapter_is_another_prompt() -> None:
    """What the server has cached of the one is of no use to the other."""
    loras = ([{"id": 0, "scale": 1.0}], [{"id": 0, "scale": 0.5}], None)
    assert len({read({"lora": lora, "prompt": "row"}).text for lora in loras}) == 3


def test_a_conversation_that_goes_on_begins_as_before() -> None:
    """So that its next turn finds the cache of the last one."""
    turns = [{"role": "system", "content": "be kind"}, {"role": "user", "content": "row " * 200}]
    before = read({"messages": turns}).text
    turns += [{"role": "assistant", "content": "it's done"}, {"role": "user", "content": "on"}]
    assert read({"messages": turns, "max_tokens": 9}).text.startswith(before)


def test_who_speaks_is_part_of_the_prompt() -> None:
    texts = {read({"messages": [{"role": role, "content": "row"}]}).text for role in ("user", "x")}
    assert len(texts) == 2


def test_an_embedding_has_no_prompt_to_remember() -> None:
    assert read({"input": "row"}, Kind.EMBEDDING).text == ""


# Weight


@pytest.mark.parametrize(
    ("body", "kind", "weight_slots"),
    [
        (CHAT, Kind.GENERATION, 1),
        (CHAT | {"n": 3}, Kind.GENERATION, 3),
        ({"prompt": ["a", "b"], "n": 2}, Kind.GENERATION, 4),
        (CHAT | {"n_cmpl": 3}, Kind.GENERATION, 3),
        (CHAT | {"n_cmpl": 2, "n": 3}, Kind.GENERATION, 2),
        (CHAT | {"n_cmpl": None, "n": 3}, Kind.GENERATION, 3),
        (CHAT | {"n": 3.0}, Kind.GENERATION, 3),
        ({"prompt": [1, 2, 3]}, Kind.GENERATION, 1),
        ({"prompt": [[1, 2], [3]]}, Kind.GENERATION, 2),
        ({"prompt": ["row", [1, 2], "boat"]}, Kind.GENERATION, 3),
        ({"prompt": ["row", 1, "boat"]}, Kind.GENERATION, 1),
        ({"input": [{"role": "user"}, {"role": "assistant"}]}, Kind.GENERATION, 1),
        ({"input": "a"}, Kind.EMBEDDING, 1),
        ({"input": ["a", "b", "c"]}, Kind.EMBEDDING, 3),
        ({"input": [1, 2, 3]}, Kind.EMBEDDING, 1),
        ({"content": [[1], [2]]}, Kind.EMBEDDING, 2),
        ({"query": "q", "documents": ["a", "b"]}, Kind.EMBEDDING, 2),
        ({"query": "q", "texts": ["a", "b", "c"]}, Kind.EMBEDDING, 3),
        ({"input": []}, Kind.EMBEDDING, 1),
    ],
)
def test_the_weight(body: object, kind: Kind, weight_slots: int) -> None:
    """A slot for each answer to each input; a list of tokens is one input."""
    assert read(body, kind).weight_slots == weight_slots


@pytest.mark.parametrize(
    ("lora", "numbers"),
    [
        (None, None),
        ([], None),
        ([{"id": 1, "scale": 0.5}, {"id": 0, "scale": 1}, {"id": 1, "scale": 1}], {0, 1}),
        ([{"id": 2}, {"id": 3, "scale": 0}, {"scale": 1.0}], set()),
        ([{"id": "4", "scale": 1}, {"id": True, "scale": 1}, {"id": 5, "scale": "x"}, 6], set()),
        ({"id": 7, "scale": 1}, set()),
    ],
)
def test_the_adapters_by_number(lora: object, numbers: set[int] | None) -> None:
    """Those that are on: a scale of 0, or none, is off; what is odd names nothing."""
    body = read({"lora": lora})
    assert body.adapter_numbers == numbers


@pytest.mark.parametrize("n", [0, -3, True, 1.5, "2", None, [], b"1e999", b"NaN"])
def test_an_odd_n_is_one(n: object) -> None:
    body = b'{"n": ' + n + b"}" if isinstance(n, bytes) else {"n": n}
    assert read(body).weight_slots == 1


def test_a_huge_n_has_a_bound() -> None:
    assert read({"n": 10**400, "prompt": ["a"] * 10}).weight_slots == MAX_COUNT


# Cut and broken


def test_a_cut_body_is_read_as_far_as_it_goes() -> None:
    """The prompt's beginning counts, and what stood before it."""
    whole = json.dumps({"model": "tiny", "n": 2, "prompt": "row the boat " * 1000}).encode()
    body = read(whole[:500], is_whole=False)
    assert (body.model, body.answers) == ("tiny", 2)
    assert body.text.startswith("row the boat ") and len(body.text) > 400
    assert not body.is_complete and body.problem is None


@pytest.mark.parametrize(
    "cut",
    [b'{"prompt":"a","model":"ti', b'{"prompt":"a","n":12'],
)
def test_half_a_value_is_no_value(cut: bytes) -> None:
    """It may have been `tiny`, 128 or nothing."""
    body = read(cut, is_whole=False)
    assert (body.model, body.answers, body.text) == (None, 1, "a")


@pytest.mark.parametrize(
    "fault",
    [b'"\\ud800"', b"[" * 500, b'{"a":' * 500, b"nonsense", b'"\x01"', b'"\xff"', b"9" * 5000],
)
def test_what_stands_before_a_fault_counts(fault: bytes) -> None:
    body = read(b'{"model":"tiny",\n"n":2,\n"x":' + fault + b"}")
    assert (body.model, body.answers) == ("tiny", 2)
    assert body.problem is not None and not body.is_complete


@pytest.mark.parametrize("is_whole", [True, False])
@pytest.mark.parametrize(
    ("part", "told"),
    [
        (b'{"model":"m","prompt":"p","user":"caf\xe9"}', ("m", "p", 1)),
        (b'{"model":"m","prompt":"caf\xe9","n":2}', ("m", "caf", 1)),
        (b'{"n":2,"model":"caf\xe9"}', (None, "", 2)),
        (b'{"n":2,"model":"caf\xe9","prompt":"p"}', (None, "", 2)),
        (b'{"model":"m","x":["caf\xe9"],"user":"u","n":2}', ("m", "", 1)),
    ],
)
def test_a_text_that_is_no_utf_8_is_a_fault(
    part: bytes, told: tuple[str | None, str, int], is_whole: bool
) -> None:
    """Also where half a character stands right before its closing quote."""
    body = read(part, is_whole=is_whole)
    assert (body.model, body.text, body.answers) == told
    assert not body.is_complete and (body.problem is not None) is is_whole


@pytest.mark.parametrize("part", [b"", b"[]", b"7", b'"row"', b"null", b"\xff\xfe{", b"a=b", b"{"])
def test_what_is_no_object_says_nothing(part: bytes) -> None:
    body = read(part)
    assert body.problem is not None
    assert body == RequestBody(problem=body.problem, unread=body.unread)
    is_json = part in (b"[]", b"7", b'"row"', b"null")
    assert body.unread == (None if is_json else body.problem), "JSON that is no object names none"


def test_of_two_values_the_last_counts() -> None:
    """As for llama-server; strictly it is a fault."""
    twice = b'{"model":"a","model":"b"}'
    assert read(twice).model == "b" and read(twice).problem is None
    assert "uplicate" in str(read(twice, is_strict=True).problem)


@pytest.mark.parametrize("number", [b"1e999", b"-1e999", b"NaN", b"Infinity"])
def test_numbers_beyond_all_bounds_are_a_fault_if_strict(number: bytes) -> None:
    part = b'{"model":"a","x":[{"y":' + number + b"}]}"
    assert read(part).model == "a"
    assert read(part, is_strict=True).problem is not None


def test_a_name_of_a_megabyte_is_no_name() -> None:
    """It is one that is not read, where no name or an odd one names none."""
    long = read({"model": "x" * (MAX_NAME_CHARS + 1)})
    assert long.model is None and "more than 512 characters" in str(long.unread)
    for odd in ("", ["tiny"], None, 7):
        assert (read({"model": odd}).model, read({"model": odd}).unread) == (None, None)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=12,
)
KEYS = st.sampled_from(
    ["model", "messages", "prompt", "input", "n", "max_tokens", "system", "tools", "lora", "x"]
)


@given(st.dictionaries(KEYS, VALUES), st.sampled_from(Kind), st.booleans(), st.data())
def test_any_json_cut_anywhere(
    body: dict[str, Any], kind: Kind, is_strict: bool, data: st.DataObject
) -> None:
    """Whatever stands where, and wherever it ends, it is read without an exception."""
    part = json.dumps(body).encode()
    cut = part[: data.draw(st.integers(0, len(part)))]
    for is_whole in (True, False):
        found = read_body(cut, kind, limit_bytes=LIMIT, is_whole=is_whole, is_strict=is_strict)
        assert 1 <= found.weight_slots <= MAX_COUNT
        assert found.is_complete <= is_whole


@given(st.binary(max_size=300), st.sampled_from(Kind), st.booleans())
@example(b'{"a":"\\ud800', Kind.GENERATION, False)
@example(b'\n\n{"a":\n"\\u', Kind.GENERATION, True)
def test_any_bytes(part: bytes, kind: Kind, is_strict: bool) -> None:
    for is_whole in (True, False):
        read_body(part, kind, limit_bytes=LIMIT, is_whole=is_whole, is_strict=is_strict)


@given(st.dictionaries(KEYS, VALUES, min_size=1), st.binary(min_size=1, max_size=4), st.data())
@example({"prompt": "p", "user": "caf"}, b"\xe9", 28)
def test_any_bytes_anywhere_in_any_json(
    body: dict[str, Any], noise: bytes, at: st.DataObject | int
) -> None:
    """Also in the last text, which is read for a second time without its unfinished end."""
    whole = json.dumps(body, ensure_ascii=False).encode(errors="replace")
    place = at if isinstance(at, int) else at.draw(st.integers(0, len(whole)))
    for is_whole in (True, False):
        read_body(
            whole[:place] + noise + whole[place:],
            Kind.GENERATION,
            limit_bytes=LIMIT,
            is_whole=is_whole,
            is_strict=False,
        )


@given(st.binary(max_size=40), st.integers(0, 100))
def test_bytes_in_the_middle_of_a_body(noise: bytes, at: int) -> None:
    part = json.dumps(CHAT).encode()
    read_body(
        part[:at] + noise + part[at:],
        Kind.GENERATION,
        limit_bytes=LIMIT,
        is_whole=True,
        is_strict=False,
    )
