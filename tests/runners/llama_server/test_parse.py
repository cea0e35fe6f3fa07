"""Answers become readings or a clean `ParseError`, whatever they are."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from extproc.core.observation import (
    MAX_ENTRIES,
    AdapterReading,
    EndedTask,
    ModelState,
    SlotReading,
)
from extproc.runners.answers import MAX_VALUES, ParseError
from extproc.runners.llama_server.parse import (
    MAX_ALIASES,
    MAX_NAMES,
    SlotsReading,
    parse_adapters,
    parse_models,
    parse_props,
    parse_slots,
)

RECORDED = Path(__file__).parents[2] / "data" / "llamacpp"

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda children: (
        st.lists(children, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ("data", "id", "aliases", "status", "value", "args", "role", "total_slots")
                + ("is_processing", "id_task", "is_sleeping", "media_marker", "build_info")
            )
            | st.text(max_size=4),
            children,
            max_size=5,
        )
    ),
    max_leaves=20,
)


def recorded(name: str) -> bytes:
    return (RECORDED / f"{name}.json").read_bytes()


def encoded(value: object) -> bytes:
    return json.dumps(value).encode()


def props(**changes: object) -> bytes:
    return encoded({"total_slots": 2, "media_marker": "<__media_a__>", **changes})


def test_the_recorded_slots_are_read() -> None:
    assert parse_slots(recorded("slots_idle")) == SlotsReading(
        slots=2, busy_slots=0, newest_task=None, context_tokens=4096
    )
    busy = parse_slots(recorded("slots_busy"))
    assert (busy.slots, busy.busy_slots, busy.newest_task) == (2, 2, 4)
    assert busy.busy[0] == SlotReading(
        task_id=4,
        prompt_tokens=723,
        cached_tokens=0,
        processed_tokens=10,
        decoded_tokens=713,
        remaining_tokens=2287,
    )
    assert busy.context_tokens == 4096
    assert parse_slots(recorded("router_slots_loaded_model")).slots == 4


def test_only_is_processing_makes_a_slot_busy() -> None:
    """An idle slot that has worked keeps its task."""
    reading = parse_slots(recorded("router_slots_loaded_model"))
    assert reading.busy_slots == 0
    assert reading.newest_task == 0


def test_the_recorded_props_are_read() -> None:
    plain = parse_props(recorded("props"))
    assert (plain.total_slots, plain.is_router, plain.shows_slots) == (2, False, True)
    assert (plain.is_asleep, plain.model, plain.is_process_unique) == (False, "small", True)
    assert parse_props(recorded("sleep_props_asleep")).is_asleep is True
    router = parse_props(recorded("router_props"))
    assert router.is_router and router.autoloads
    assert router.total_slots is None and not router.is_process_unique


def test_the_recorded_models_are_read() -> None:
    (model,) = parse_models(recorded("models"))
    assert (model.name, model.aliases, model.status) == ("small", ("tiny",), ModelState.LOADED)
    alpha, beta = parse_models(recorded("router_models"))
    assert (alpha.name, alpha.status) == ("alpha", ModelState.LOADED)
    assert (beta.name, beta.status) == ("beta", ModelState.UNLOADED)


def test_a_router_shows_which_models_may_sleep() -> None:
    entry = {
        "data": [
            {"id": "a", "status": {"value": "sleeping", "args": ["--sleep-idle-seconds", "5"]}},
            {"id": "b", "status": {"value": "unloaded", "failed": True, "args": []}},
            {"id": "c", "status": {"value": "downloading"}},
            {"id": "d", "status": {"value": "dreaming"}},
        ]
    }
    a, b, c, d = parse_models(encoded(entry))
    assert (c.status, d.status) == (ModelState.DOWNLOADING, ModelState.UNLOADED)
    assert (a.status, a.may_sleep) == (ModelState.SLEEPING, True)
    assert (b.status, b.may_sleep) == (ModelState.FAILED, False)


def test_a_router_shows_which_models_share_a_context() -> None:
    """As its children do without a number of slots; what is no list of texts says nothing."""
    meta = {"n_ctx": 512}
    listed = [
        {"id": "a", "status": {"value": "loaded", "args": ["llama-server"]}, "meta": meta},
        {"id": "b", "status": {"value": "loaded", "args": ["--parallel", "2"]}, "meta": meta},
        {"id": "c", "status": {"value": "loaded", "args": ["--ctx-size", 512]}},
        {"id": "d", "status": {"value": "unloaded"}},
    ]
    a, b, c, d = parse_models(encoded({"data": listed}))
    assert a.context is not None and a.context.is_shared and a.slot_tokens == 512
    assert b.context is not None and not b.context.is_shared
    assert c.context is None and d.context is None and c.slot_tokens is None


def test_a_process_is_distinguished_by_its_marker_which_is_not_repeated() -> None:
    one, other = (parse_props(props(media_marker=f"<__media_{m}__>")) for m in ("one", "two"))
    assert one.process != other.process
    assert "one" not in one.process
    assert one.process == parse_props(props(media_marker="<__media_one__>", build_info="x")).process


def test_a_pinned_marker_distinguishes_no_processes() -> None:
    assert not parse_props(props(media_marker="pinned")).is_process_unique


def test_a_build_without_sleep_says_nothing_of_it() -> None:
    assert parse_props(props()).is_asleep is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff\xfe\xfd",
        b"[" * 200_000,
        b'{"total_slots": ' + b"9" * 5_000 + b"}",
        b"null",
        b"[]",
        encoded({"error": {"code": 501}}),
        encoded([{"id": 0}]),
        encoded([{"is_processing": 1}]),
        encoded([{"is_processing": "true"}]),
        encoded([None]),
        encoded([{"is_processing": False}, []]),
        recorded("slots_busy")[:-40],
    ],
)
def test_what_is_no_list_of_slots_is_rejected(body: bytes) -> None:
    with pytest.raises(ParseError):
        parse_slots(body)


@pytest.mark.parametrize("total", [0, -1, 1.5, "2", True, [], 65_537, 10**30, None])
def test_impossible_slot_counts_are_rejected(total: object) -> None:
    with pytest.raises(ParseError):
        parse_props(props(total_slots=total))


def test_a_server_of_a_million_slots_is_misread_not_huge() -> None:
    with pytest.raises(ParseError):
        parse_slots(encoded([{"is_processing": False}] * 65_537))


def test_negative_and_absurd_task_numbers_are_ignored() -> None:
    slots = [{"is_processing": True, "id_task": task} for task in (-1, True, "4", 3.0, None)]
    assert parse_slots(encoded(slots)).newest_task is None
    huge = [{"is_processing": is_busy, "id_task": 2**64} for is_busy in (True, False)]
    seen = parse_slots(encoded(huge))
    assert (seen.busy_slots, seen.newest_task, seen.busy, seen.ended) == (1, None, (), ())


def test_the_newest_task_is_unknown_where_idle_slots_forget_theirs() -> None:
    """Else its end would look like another process whose numbers are lower."""

    def newest(*slots: tuple[bool, int]) -> int | None:
        shown = [{"is_processing": is_busy, "id_task": task} for is_busy, task in slots]
        return parse_slots(encoded(shown)).newest_task

    assert newest((True, 3), (True, 4)) == 4
    assert newest((True, 3), (False, -1)) is None, "4 may have ended there"
    assert newest((True, 3), (False, 4)) == 4, "this build remembers"
    assert newest((True, 3), (False, 2), (False, -1)) == 3
    assert newest((False, -1), (False, -1)) is None


def test_unusable_names_are_left_out() -> None:
    names: list[Any] = ["ok", "", "a\nb", "\ud800", 3, None, "x" * 600, "ok"]
    body = encoded({"data": [{"id": name} for name in names] + [None, []]})
    assert [model.name for model in parse_models(body)] == ["ok"]


def test_a_listing_without_end_is_cut() -> None:
    body = encoded({"data": [{"id": f"m{i}"} for i in range(MAX_ENTRIES + 5)]})
    assert len(parse_models(body)) == MAX_ENTRIES


def test_a_listing_of_names_without_end_is_cut() -> None:
    """Each model has its name; their aliases are bounded together, too."""
    entries = [
        {"id": f"m{i}", "aliases": [f"a{i}-{each}" for each in range(MAX_ALIASES + 1)]}
        for i in range(500)
    ]
    models = parse_models(encoded({"data": entries}))
    assert len(models) == 500
    assert len(models[0].aliases) == MAX_ALIASES
    assert models[-1].aliases == ()
    assert len(models) + sum(len(model.aliases) for model in models) == MAX_NAMES


@pytest.mark.parametrize("piece", [b"[],", b"{},", b"[[[]]],", b'{"a":1},', b"1,"])
def test_more_values_than_any_server_has_are_not_even_read(piece: bytes) -> None:
    """Reading them would take seconds, in which no request is answered."""
    body = b"[" + piece * MAX_VALUES + b"{}]"
    with pytest.raises(ParseError, match="more than"):
        parse_slots(body)


def test_numbers_of_thousands_of_digits_are_not_read() -> None:
    """They take the square of their length; in a long answer such a number is none."""
    huge = "9" * 4_000
    text = f'[{{"is_processing": true, "id_task": {huge}, "x": "{"y" * 65_536}"}}]'
    assert parse_slots(text.encode()).newest_task is None
    text = f'[{{"is_processing": true, "id_task": 7, "x": "{"y" * 65_536}"}}]'
    assert parse_slots(text.encode()).newest_task == 7


@given(ANY_JSON)
@example([{"is_processing": False, "id_task": float("inf")}])
@example({"role": "router", "media_marker": [[[]]], "build_info": {"a": float("nan")}})
def test_any_json_is_a_reading_or_a_parse_error(value: object) -> None:
    body = json.dumps(value).encode()
    for parse in (parse_slots, parse_props, parse_models):
        with contextlib.suppress(ParseError):
            parse(body)


@given(st.binary(max_size=64))
def test_any_bytes_are_a_reading_or_a_parse_error(body: bytes) -> None:
    for parse in (parse_slots, parse_props, parse_models):
        with contextlib.suppress(ParseError):
            parse(body)


@given(st.lists(st.booleans(), min_size=1, max_size=40))
def test_busy_slots_are_those_that_process(busy: list[bool]) -> None:
    reading = parse_slots(encoded([{"is_processing": is_busy} for is_busy in busy]))
    assert (reading.slots, reading.busy_slots) == (len(busy), sum(busy))


def test_adapters_are_named_by_their_files() -> None:
    """Two of one name are one; what is no list of adapters is rejected."""
    body = encoded(
        [{"id": 0, "path": "lora/pirate.gguf", "scale": 0.0}, {"id": 3, "path": "C:\\x\\bard.gguf"}]
    )
    assert parse_adapters(body) == (
        AdapterReading(id=0, name="pirate"),
        AdapterReading(id=3, name="bard"),
    )
    assert parse_adapters(b"[]") == ()
    nameless = encoded([{"id": 0, "path": path} for path in ("/", ".", "\\", "a.gguf")])
    assert parse_adapters(nameless) == (AdapterReading(id=0, name="a"),)
    huge = encoded([{"id": 2**32, "path": "x"}])
    for garbage in (huge, b"{}", b"[1]", b'[{"id": -1, "path": "x"}]', b'[{"id": 1}]'):
        with pytest.raises(ParseError):
            parse_adapters(garbage)


def test_an_idle_slot_still_shows_its_last_task() -> None:
    """If it has had one, and as far as the numbers can be right."""
    idle = {"is_processing": False, "id_task": 4, "n_prompt_tokens": 48}
    slots = [idle, {"is_processing": False}, idle | {"n_prompt_tokens": 0}, idle | {"id_task": -1}]
    busy = idle | {"is_processing": True, "id_task": 9}
    reading = parse_slots(json.dumps([*slots, busy]).encode())
    assert reading.ended == (EndedTask(task_id=4, held_tokens=48),)
    assert [one.task_id for one in reading.busy] == [9]
