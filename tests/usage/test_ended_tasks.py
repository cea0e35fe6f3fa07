"""Claims about extproc/usage/ended_tasks.py."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extproc.core.address import Address
from extproc.core.observation import EndedTask, Observation, ScrapeStatus, SlotReading
from extproc.usage.ended_tasks import (
    LONGEST_S,
    MAX_TASKS,
    MAX_WAITING,
    PATIENCE_S,
    SETTLE_S,
    UNSHOWN_S,
    EndedTasks,
    Left,
    Work,
)

ADDRESS = Address("10.0.0.1", 8080)


def busy(
    task: int, prompt: int, decoded: int, *, cached: int = 0, remaining: int = 999
) -> SlotReading:
    return SlotReading(
        task_id=task,
        prompt_tokens=prompt + decoded,
        cached_tokens=cached,
        processed_tokens=prompt - cached,
        decoded_tokens=decoded,
        remaining_tokens=remaining,
    )


def ended(task: int, prompt: int, generated: int) -> EndedTask:
    return EndedTask(task_id=task, held_tokens=prompt + generated - 1)


class Server:
    """Scrapes of one server, each 0.01 s long."""

    def __init__(self) -> None:
        self.tasks = EndedTasks()

    def scrape(self, at: float, *slots: SlotReading | EndedTask, instance: str = "1") -> None:
        readings = tuple(slot for slot in slots if isinstance(slot, SlotReading))
        self.tasks.observe(
            Observation(
                address=ADDRESS,
                began_at=at,
                answered_at=at + 0.01,
                status=ScrapeStatus.READY,
                busy_slots=len(readings),
                slot_readings=readings,
                ended_tasks=tuple(slot for slot in slots if isinstance(slot, EndedTask)),
                instance=instance,
            )
        )

    def work_at(self, now: float, *, is_last: bool = False) -> list[Work | None]:
        return [work for _, work in self.tasks.settle(now, is_last=is_last)]


def work(prompt: int, generated: int, cached: int = 0) -> Work:
    return Work(prompt_tokens=prompt, cached_tokens=cached, generated_tokens=generated)


@pytest.fixture
def server() -> Server:
    server = Server()
    server.scrape(0.0)
    return server


def test_an_idle_slot_shows_how_far_its_last_task_came(server: Server) -> None:
    server.scrape(2.0, busy(7, 30, 11, cached=20))
    server.tasks.left(Left(opened_at=1.0, left_at=2.5))
    assert server.work_at(3.0) == [], "it runs on"
    server.scrape(3.0, ended(7, 30, 25))
    assert server.work_at(3.1) == [], "its response may have been whole"
    assert server.work_at(3.1 + SETTLE_S) == [work(30, 25, 20)]
    assert server.tasks.is_idle


def test_a_task_of_a_whole_response_is_not_counted_again(server: Server) -> None:
    """Of two tasks that began together, the one whose counts came is not that of the other."""
    server.scrape(2.0, busy(7, 30, 11), busy(8, 40, 12))
    server.tasks.left(Left(opened_at=1.0, left_at=2.5))
    server.scrape(3.0, ended(7, 30, 25), busy(8, 40, 20))
    assert server.work_at(4.0) == [], "8 may be its task as well"
    server.tasks.served(1.0, 3.0, 30, 25)
    assert server.work_at(4.0) == [], "and is"
    server.scrape(5.0, ended(8, 40, 33))
    assert server.work_at(6.0) == [work(40, 33)]


def test_a_whole_response_is_known_though_its_end_was_not_seen(server: Server) -> None:
    server.scrape(2.0, busy(7, 30, 11), busy(8, 40, 12))
    server.tasks.left(Left(opened_at=0.05, left_at=2.1))
    server.tasks.served(1.0, 2.5, 30, 25)
    server.scrape(2.1, busy(7, 30, 12), busy(8, 40, 13))
    server.scrape(3.0, busy(9, 5, 1), ended(8, 40, 33))
    assert server.work_at(4.0) == [work(40, 33)]


def test_the_events_of_a_stream_tell_its_task(server: Server) -> None:
    server.scrape(2.0, busy(7, 30, 11), busy(8, 40, 90))
    server.tasks.left(Left(opened_at=1.0, left_at=2.5, events=99))
    server.scrape(3.0, ended(7, 30, 25), ended(8, 40, 101))
    assert server.work_at(4.0) == [work(40, 101)]


def test_two_that_left_share_two_tasks(server: Server) -> None:
    """Whichever is whose, each is counted once."""
    server.scrape(2.0, busy(7, 30, 11), busy(8, 40, 12))
    for _ in range(2):
        server.tasks.left(Left(opened_at=1.0, left_at=2.5))
    server.scrape(3.0, ended(7, 30, 25), ended(8, 40, 33))
    assert sorted(map(str, server.work_at(4.0))) == sorted(map(str, (work(30, 25), work(40, 33))))


def test_a_task_from_before_or_after_is_another_ones(server: Server) -> None:
    """Or one that had ended while the client was still there."""
    server.scrape(1.0, busy(5, 10, 10), ended(6, 20, 20))
    server.tasks.left(Left(opened_at=1.5, left_at=2.0))
    server.scrape(3.0, ended(5, 10, 11), ended(6, 20, 20))
    server.scrape(4.0, busy(7, 30, 1))
    assert server.work_at(4.0) == []
    assert server.work_at(2.1 + UNSHOWN_S) == [None]


def test_what_no_scrape_showed_is_counted_by_its_events(server: Server) -> None:
    server.tasks.left(Left(opened_at=1.0, left_at=2.0, events=9, prompt_tokens=30))
    assert server.work_at(2.1 + UNSHOWN_S) == [work(30, 9)]


def test_a_reused_slot_hides_the_end_and_the_rate_stands_for_it(server: Server) -> None:
    """Ten tokens in half a second, and for half of the second in which it ended."""
    server.scrape(2.0, busy(7, 30, 10))
    server.scrape(2.5, busy(7, 30, 20))
    server.tasks.left(Left(opened_at=0.05, left_at=2.2))
    server.scrape(3.3, busy(9, 5, 1))
    assert server.work_at(4.0) == [work(30, 20 + 8)]


def test_two_scrapes_that_were_answered_at_once_are_no_rate(server: Server) -> None:
    """Ten tokens a second, though the last two came in a hundredth."""
    server.scrape(1.0, busy(7, 30, 0))
    server.scrape(2.0, busy(7, 30, 10))
    server.scrape(2.99, busy(7, 30, 18))
    server.scrape(3.0, busy(7, 30, 20))
    server.tasks.left(Left(opened_at=0.5, left_at=3.05))
    server.scrape(4.0, busy(8, 5, 1))
    assert server.work_at(5.0) == [work(30, 25)]


def test_no_more_is_estimated_than_the_request_allowed(server: Server) -> None:
    server.scrape(2.0, busy(7, 30, 10))
    server.scrape(2.5, busy(7, 30, 20, remaining=3))
    server.tasks.left(Left(opened_at=0.05, left_at=2.2))
    server.scrape(3.3, busy(9, 5, 1))
    assert server.work_at(4.0) == [work(30, 23)]


def test_a_stream_in_a_reused_slot_has_its_events(server: Server) -> None:
    server.scrape(2.0, busy(7, 30, 10))
    server.scrape(2.1, busy(7, 30, 11))
    server.tasks.left(Left(opened_at=0.05, left_at=2.2, events=16))
    server.scrape(3.0, busy(9, 5, 1))
    assert server.work_at(4.0) == [work(30, 16)]


def test_a_prompt_that_nothing_showed_is_what_is_left(server: Server) -> None:
    """Of what the slot held, the events were generated."""
    server.tasks.left(Left(opened_at=1.0, left_at=2.0, events=4))
    server.scrape(2.1, ended(7, 30, 4))
    assert server.work_at(3.0) == [work(30, 4)]


def test_a_prefill_that_was_cut_counts_as_far_as_it_came(server: Server) -> None:
    for at in (1.5, 2.1):
        server.scrape(
            at, SlotReading(task_id=7, prompt_tokens=512, cached_tokens=0, decoded_tokens=0)
        )
    server.tasks.left(Left(opened_at=0.05, left_at=2.0))
    server.scrape(2.2, busy(9, 5, 1))
    assert server.work_at(3.0) == [work(512, 0)]


def test_what_the_previous_task_left_in_a_slot_is_not_counted(server: Server) -> None:
    """The first scrape came before the first batch of 100 tokens."""
    old = SlotReading(task_id=7, prompt_tokens=9000, cached_tokens=0, processed_tokens=0)
    server.scrape(1.0, old)
    server.scrape(1.1, replace(old, prompt_tokens=100))
    server.scrape(1.2, replace(old, prompt_tokens=100))
    server.tasks.left(Left(opened_at=0.9, left_at=1.25))
    server.scrape(1.3, busy(8, 5, 1))
    assert server.work_at(1.3 + PATIENCE_S) == [work(100, 0)]


def test_a_prompt_that_was_never_shown_is_not_counted_as_empty(server: Server) -> None:
    """The server may have read all of it: the request is uncounted, not one of 0 tokens."""
    server.tasks.left(Left(opened_at=0.15, left_at=0.16))
    unbegun = SlotReading(
        task_id=7,
        prompt_tokens=182,  # what the previous task has left
        cached_tokens=0,
        processed_tokens=0,
        decoded_tokens=0,
        remaining_tokens=144,
    )
    server.scrape(0.17, unbegun)
    server.scrape(0.40, busy(8, 178, 7, cached=167))
    assert server.work_at(0.40 + PATIENCE_S) == [None]


def test_what_cannot_be_told_apart_is_not_waited_for_for_ever(server: Server) -> None:
    """Tasks of requests that bypass the picker are nobody's."""
    server.scrape(2.0, busy(7, 30, 11), busy(8, 40, 12))
    server.tasks.left(Left(opened_at=1.0, left_at=2.5))
    server.scrape(3.0, ended(7, 30, 25), ended(8, 40, 33))
    assert server.work_at(4.0) == []
    [found] = server.work_at(2.6 + PATIENCE_S)
    assert found == work(30, 25)
    assert (found.is_prompt_certain, found.is_generated_certain) == (False, False)
    assert found.least_generated_tokens == 0, "all of it may be the other's"


def test_a_task_that_runs_on_is_counted_as_far_as_it_is(server: Server) -> None:
    """When the picker stops, and after ten minutes."""
    for now, is_last in ((5.0, True), (2.6 + LONGEST_S, False)):
        server = Server()
        server.scrape(0.0)
        server.scrape(2.0, busy(7, 30, 11))
        server.tasks.left(Left(opened_at=1.0, left_at=2.5))
        assert server.work_at(4.0) == []
        [found] = server.work_at(now, is_last=is_last)
        assert found == work(30, 11)
        assert found.is_prompt_certain, "nobody else's task is like it"
        assert not found.is_generated_certain


def test_a_new_process_has_none_of_the_old_tasks(server: Server) -> None:
    server.scrape(2.0, busy(7, 30, 11))
    server.tasks.left(Left(opened_at=1.0, left_at=2.5))
    server.scrape(3.0, ended(7, 3, 2), instance="2")
    assert server.work_at(4.0) != [work(30, 11)]


def test_a_server_that_hides_its_slots_shows_no_task(server: Server) -> None:
    hidden = Observation(
        address=ADDRESS, began_at=2.0, answered_at=2.1, status=ScrapeStatus.READY, busy_slots=None
    )
    server.tasks.observe(replace(hidden, slots=4))
    server.tasks.left(Left(opened_at=1.0, left_at=2.0))
    assert server.work_at(2.1 + UNSHOWN_S) == [None]


def test_what_is_kept_is_bounded(server: Server) -> None:
    for number in range(3 * MAX_TASKS):
        server.scrape(1.0 + number * 0.02, busy(number, 30, 1))
        server.tasks.served(1.0, 2.0, 3, 4)
    assert len(server.tasks._tasks) <= MAX_TASKS
    assert len(server.tasks._served) <= 2 * MAX_TASKS
    for _ in range(MAX_WAITING + 1):
        server.tasks.left(Left(opened_at=0.0, left_at=1.0 + 3 * MAX_TASKS * 0.02))
    server.work_at(2.0 + 3 * MAX_TASKS * 0.02)
    assert len(server.tasks._waiting) <= MAX_WAITING
