from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from extproc.demo.simulator.slots import Slots, Task

UNTIL_CANCELLED_S = 600.0


def task(prompt: bytes = b"row", *, tokens: int = 1, answer_s: float = 0.0) -> Task:
    return Task(prompt=prompt, tokens=tokens, answer_s=answer_s, params={})


def endless(prompt: bytes = b"row") -> Task:
    """Says a token every millisecond for ten minutes."""
    return task(prompt, tokens=600_000, answer_s=UNTIL_CANCELLED_S)


@pytest.fixture
async def slots() -> AsyncGenerator[Slots, None]:
    board = Slots(2, prompt_tokens_per_second=1e9)
    yield board
    await board.close()


def busy(board: Slots) -> int:
    return sum(slot.is_processing for slot in board.all)


async def test_no_more_tasks_run_than_there_are_slots_and_the_rest_keep_their_order(
    slots: Slots,
) -> None:
    first, second = endless(), endless()
    later = [task() for _ in range(4)]
    for one in (first, second, *later):
        slots.submit(one)
    assert (busy(slots), len(slots._deferred)) == (2, 4)
    slots.cancel(first)
    ended: list[int] = []
    for one in later:
        await one.ended()
        ended.append(one.id)
    assert ended == sorted(ended)
    assert {one.slot_id for one in later} == {first.slot_id}
    assert (busy(slots), len(slots._deferred)) == (1, 0)


async def test_a_cancelled_task_keeps_its_slot_until_its_step_ends(slots: Slots) -> None:
    running = endless()
    slots.submit(running)
    slots.cancel(running)
    assert busy(slots) == 1
    await running.ended()
    assert busy(slots) == 0
    assert running.decoded < running.tokens


async def test_a_task_that_is_cancelled_while_deferred_never_runs(slots: Slots) -> None:
    running = [endless(), endless()]
    waiting = task()
    for one in (*running, waiting):
        slots.submit(one)
    slots.cancel(waiting)
    await waiting.ended()
    assert (waiting.slot_id, waiting.decoded, len(slots._deferred)) == (-1, 0, 0)


async def test_reading_a_prompt_is_one_step_that_nothing_interrupts() -> None:
    slots = Slots(1, prompt_tokens_per_second=0.01)
    reading = endless()
    slots.submit(reading)
    slots.cancel(reading)
    between = asyncio.ensure_future(slots.between_steps())
    done, _ = await asyncio.wait([between], timeout=0.05)
    assert not done
    assert busy(slots) == 1
    await slots.close()
    await between


async def test_the_slot_that_remembers_the_prompt_is_preferred(slots: Slots) -> None:
    for prompt in (b"oars are long", b"hulls are wet"):
        one = task(prompt)
        slots.submit(one)
        await one.ended()
    again = task(b"oars are long and light")
    slots.submit(again)
    await again.ended()
    assert again.slot_id == 0
    assert again.cached_tokens == len(b"oars are long") + 1


async def test_a_prompt_that_is_hardly_similar_takes_the_slot_that_was_idle_longest(
    slots: Slots,
) -> None:
    """The words that all prompts begin with would otherwise cost each conversation its cache."""
    for prompt in (b"hulls" * 20, b"oars" * 20):
        one = task(prompt)
        slots.submit(one)
        await one.ended()
    again = task(b"oars and other things" * 10)
    slots.submit(again)
    await again.ended()
    assert again.slot_id == 0


async def test_steps_report_every_token_once(slots: Slots) -> None:
    one = task(tokens=5)
    slots.submit(one)
    assert [number async for number in one.steps()] == [0, 1, 2, 3, 4]


async def test_caches_that_slots_lost_are_kept_outside_up_to_a_number() -> None:
    board = Slots(1, prompt_tokens_per_second=1e9, kept_prompts=2)
    prompts = [letter * 1_000 for letter in (b"a", b"b", b"c")]

    async def cached(prompt: bytes) -> int:
        one = task(prompt)
        board.submit(one)
        await one.ended()
        return one.cached_tokens

    # The beginning of the text is one token, and the same in all.
    assert [await cached(prompt) for prompt in prompts] == [0, 1, 1]
    assert await cached(prompts[0] + b" and more") == 1_001
    assert await cached(prompts[1]) == 1_000
    assert len(board._kept) == 2
    await board.close()


async def test_a_slot_alone_keeps_its_last_prompt_only(slots: Slots) -> None:
    for prompt in (b"a" * 1_000, b"b" * 1_000, b"c" * 1_000):
        one = task(prompt)
        slots.submit(one)
        await one.ended()
    again = task(b"a" * 1_000)
    slots.submit(again)
    await again.ended()
    assert again.cached_tokens == 1


async def test_deferred_tasks_are_logged_as_llama_server_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    board = Slots(1, prompt_tokens_per_second=1e9, logs_deferred=True)
    for one in (endless(), endless(), task()):
        board.submit(one)
    assert capsys.readouterr().out.splitlines() == [
        "no slot is available, defer task, id_task = 1",
        "no slot is available, defer task, id_task = 2",
    ]
    await board.close()
