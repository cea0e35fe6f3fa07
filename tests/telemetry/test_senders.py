"""Claims about extproc/telemetry/senders.py; that they reach a receiver stands in test_otlp.py."""

from __future__ import annotations

import logging

import pytest
from google.protobuf.message import Message
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from extproc.telemetry.senders import Sender

TO = "http://collector:4317"


class Receiver:
    """Answers with these, one after the other; an exception is raised."""

    def __init__(self, *answers: bool | Exception) -> None:
        self._answers = list(answers)
        self.is_shut_down = False

    def transmit(self, _message: Message) -> bool:
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def shut_down(self) -> None:
        self.is_shut_down = True


def sender(receiver: Receiver) -> Sender:
    return Sender("traces", TO, receiver.transmit, receiver.shut_down)


def send(to: Sender, times: int) -> list[bool]:
    return [to.send(ExportTraceServiceRequest()) for _ in range(times)]


def test_a_change_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    """A receiver that is gone for a day fills no log, and neither does one that works."""
    caplog.set_level(logging.INFO, "coxswain.telemetry")
    answers = (True, False, False, False, True, True)
    assert send(sender(Receiver(*answers)), len(answers)) == list(answers)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", f"traces cannot be sent to {TO}; requests are not affected"),
        ("INFO", f"traces reach {TO} again"),
    ]


def test_an_exporter_that_raises_has_not_sent(caplog: pytest.LogCaptureFixture) -> None:
    """What a library throws at the network's faults stops nobody."""
    caplog.set_level(logging.INFO, "coxswain.telemetry")
    assert send(sender(Receiver(OSError("no route"), True)), 2) == [False, True]
    assert len(caplog.records) == 2


def test_closing_shuts_the_exporter_down() -> None:
    """It breaks off what is being sent."""
    receiver = Receiver()
    sender(receiver).close()
    assert receiver.is_shut_down
