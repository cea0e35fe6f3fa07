"""Claims about extproc/telemetry/batcher.py."""

from __future__ import annotations

import logging
import threading

import pytest

from extproc.telemetry.batcher import Batcher, BatcherOptions

LONG_S = 60.0


class Sink:
    """Takes batches; while `gate` is closed it hangs as a receiver does."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.fails = False

    def send(self, batch: list[int]) -> int:
        self.entered.set()
        self.gate.wait(LONG_S)
        if self.fails:
            raise OSError("gone")
        self.batches.append(batch)
        return 0


def options(max_pending: int = 10, max_batch: int = 4, delay_s: float = 0.0) -> BatcherOptions:
    return BatcherOptions(max_pending=max_pending, max_batch=max_batch, delay_s=delay_s)


def test_everything_arrives_in_order_and_in_batches() -> None:
    """What was put before the end is sent before the end, in batches of bounded size."""
    sink = Sink()
    batcher: Batcher[int] = Batcher("test", sink.send, options(max_pending=1000))
    for number in range(100):
        batcher.put(number)
    assert batcher.close(LONG_S)
    assert [number for batch in sink.batches for number in batch] == list(range(100))
    assert max(map(len, sink.batches)) <= 4 and batcher.dropped == 0


def test_a_full_batch_does_not_wait() -> None:
    """The delay is for half-empty batches: a full one goes at once."""
    sink = Sink()
    batcher: Batcher[int] = Batcher("test", sink.send, options(delay_s=LONG_S))
    for number in range(4):
        batcher.put(number)
    assert sink.entered.wait(LONG_S / 2)
    batcher.close(LONG_S)


def test_closing_does_not_wait_for_the_delay() -> None:
    """What lies in the queue when the process ends is sent at once."""
    sink = Sink()
    batcher: Batcher[int] = Batcher("test", sink.send, options(delay_s=LONG_S))
    batcher.put(1)
    assert batcher.close(LONG_S / 2) and sink.batches == [[1]]


def test_a_receiver_that_hangs_blocks_nobody() -> None:
    """`put` returns at once; beyond the bound things are dropped and counted, none before."""
    sink = Sink()
    sink.gate.clear()
    batcher: Batcher[int] = Batcher("test", sink.send, options(max_pending=10))
    batcher.put(0)
    assert sink.entered.wait(LONG_S)
    for number in range(1, 31):
        batcher.put(number)
    assert batcher.dropped == 20
    assert not batcher.close(0.0), "closing does not wait for it either"
    sink.gate.set()
    assert batcher.close(LONG_S)
    assert [number for batch in sink.batches for number in batch] == list(range(11))


def test_a_failure_is_counted_and_survived() -> None:
    """What could not be sent is dropped; what comes later is sent."""
    sink = Sink()
    sink.fails = True
    batcher: Batcher[int] = Batcher("test", sink.send, options(max_batch=1))
    batcher.put(1)
    while batcher.dropped == 0:
        threading.Event().wait(0.001)
    sink.fails = False
    batcher.put(2)
    assert batcher.close(LONG_S)
    assert sink.batches == [[2]] and batcher.dropped == 1


def test_failures_are_reported_once_and_so_is_their_end(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever raises: also what makes the message for a sender that reports its own failures."""
    caplog.set_level(logging.INFO, "coxswain.telemetry")

    def send(batch: list[bool]) -> int:
        if batch[0]:
            raise ValueError("out of range")
        return 1

    batcher: Batcher[bool] = Batcher("send metrics", send, options(max_batch=1))
    for fails in (False, True, True, False, False):
        batcher.put(fails)
    assert batcher.close(LONG_S)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "cannot send metrics; requests are not affected"),
        ("INFO", "can send metrics again"),
    ]


def test_after_closing_nothing_is_taken() -> None:
    """A late thing is dropped and counted, and wakes nobody."""
    batcher: Batcher[int] = Batcher("test", Sink().send, options())
    batcher.close(LONG_S)
    batcher.put(1)
    assert batcher.dropped == 1
