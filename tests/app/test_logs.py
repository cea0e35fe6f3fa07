"""Claims about extproc/app/logs.py and request_log.py."""

from __future__ import annotations

import io
import json
import logging
import threading
from collections.abc import Iterator

import pytest
from aiohttp.http_exceptions import BadHttpMessage, ContentEncodingError
from aiohttp.web import RequestPayloadError
from google.protobuf.message import DecodeError

from extproc.app import logs
from extproc.app.logs import HumanLines, JsonLines, QueuedLines, without_foreign_bytes
from extproc.app.request_log import log_request
from extproc.core.exchange_record import ExchangeRecord, Outcome
from extproc.core.rejection import Reason
from extproc.telemetry.batcher import BatcherOptions
from extproc.telemetry.metrics import outcome
from tests.telemetry.records import record

LONG_S = 60.0


class SlowStream(io.StringIO):
    """A stderr that takes nothing while `gate` is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.entered = threading.Event()

    def write(self, text: str) -> int:
        self.entered.set()
        self.gate.wait(LONG_S)
        return super().write(text)


@pytest.fixture
def logger(monkeypatch: pytest.MonkeyPatch) -> Iterator[logging.Logger]:
    """The parent of all our loggers, without what others attached; its last lines are waited
    for."""
    monkeypatch.setattr(logs, "FLUSH_S", LONG_S)
    logger = logging.getLogger("coxswain")
    before = logger.level, logger.propagate
    logger.setLevel(logging.INFO)
    logger.propagate = False
    yield logger
    logger.handlers.clear()
    logger.level, logger.propagate = before


def written(logger: logging.Logger, formatter: logging.Formatter, act: object) -> list[str]:
    """The lines that `act` makes."""
    stream = io.StringIO()
    handler = QueuedLines(stream, formatter)
    logger.addHandler(handler)
    assert callable(act)
    act()
    handler.close()
    return stream.getvalue().splitlines()


def test_json_line_of_a_request(logger: logging.Logger) -> None:
    """Request id, endpoint, outcome, times and trace id are fields of their own."""
    (line,) = written(logger, JsonLines(), lambda: log_request(record(), "abc"))
    event = json.loads(line)
    assert event["request_id"] == "r1" and event["trace_id"] == "abc"
    assert event["endpoint"] == "10.0.0.1:8080" and event["outcome"] == "served"
    assert event["queue_ms"] == 500 and event["duration_ms"] == 2000
    assert event["first_token_ms"] == 750 and event["status"] == 200
    assert event["logger"] == "coxswain.request" and event["level"] == "info"


@pytest.mark.parametrize("formatter", [HumanLines(), JsonLines()], ids=["human", "json"])
def test_what_a_server_prints_does_nothing_to_a_terminal(
    logger: logging.Logger, formatter: logging.Formatter
) -> None:
    """Nor can it look like a line of ours."""
    text = "\x1b[2J\x1b]0;title\x07 \x9b1m\u202e\n12:00:00.000 info placement: all is well"
    lines = written(logger, formatter, lambda: logger.warning("qwen: %s", text))
    assert all(line.isprintable() for line in lines)
    own = [line for line in lines if not line.startswith(" ")]
    assert len(own) == 1
    if isinstance(formatter, JsonLines):
        assert json.loads(own[0])["message"] == f"qwen: {text}"
    else:
        assert r"\x1b[2J" in own[0] and lines[1:] == ["  12:00:00.000 info placement: all is well"]


def test_the_line_of_a_request_names_its_endpoint(logger: logging.Logger) -> None:
    """By its name; the JSON has the address beside it."""
    named = record(endpoint_name="gpu-1")
    (line,) = written(logger, HumanLines(), lambda: log_request(named, ""))
    assert " endpoint=gpu-1 " in line
    logger.handlers.clear()
    (line,) = written(logger, JsonLines(), lambda: log_request(named, ""))
    event = json.loads(line)
    assert (event["endpoint"], event["address"]) == ("gpu-1", "10.0.0.1:8080")


def test_human_line_of_a_request(logger: logging.Logger) -> None:
    """The same in one line for eyes."""
    rejected = record(outcome=Outcome.REJECTED, reason=Reason.QUEUE_FULL, endpoint=None)
    (line,) = written(logger, HumanLines(), lambda: log_request(rejected, "abc"))
    assert line.endswith(
        "info request: queue-full request=r1 endpoint=- status=200 queue_ms=500 duration_ms=2000 "
        "trace=abc"
    )


def test_the_line_of_a_request_names_its_client(logger: logging.Logger) -> None:
    """Where keys are checked; a name cannot look like a field of ours."""
    (line,) = written(logger, HumanLines(), lambda: log_request(record(client="a b"), ""))
    assert line.endswith("client='a b'")
    logger.handlers.clear()
    (line,) = written(logger, JsonLines(), lambda: log_request(record(client="a b"), ""))
    assert json.loads(line)["client"] == "a b"


@pytest.mark.parametrize(
    "ended",
    [
        record(),
        record(outcome=Outcome.REJECTED, reason=Reason.QUEUE_TIMEOUT, endpoint=None),
        record(outcome=Outcome.BROKEN, reason=Reason.CANCELLED),
    ],
)
def test_the_outcome_is_the_metrics(logger: logging.Logger, ended: ExchangeRecord) -> None:
    """Who counts lines and who reads the counter find the same words; a reason besides is told."""
    (line,) = written(logger, JsonLines(), lambda: log_request(ended, ""))
    event = json.loads(line)
    assert event["outcome"] == outcome(ended)
    logger.handlers.clear()
    (words,) = written(logger, HumanLines(), lambda: log_request(ended, ""))
    assert f"request: {outcome(ended)} " in words
    is_besides = ended.reason is not None and ended.reason.value != outcome(ended)
    assert ("reason=" in words) is is_besides


def test_nothing_of_a_prompt_or_path_is_written(logger: logging.Logger) -> None:
    """A query may hold a secret, so no path is in the line at all."""
    (line,) = written(logger, JsonLines(), lambda: log_request(record(path="/secret"), ""))
    assert "secret" not in line


def test_a_stalled_stderr_stalls_nobody(logger: logging.Logger) -> None:
    """Events are taken at once; beyond the bound they are dropped, and a line says how many."""
    stream = SlowStream()
    queue = BatcherOptions(max_pending=10, max_batch=5, delay_s=0.0)
    handler = QueuedLines(stream, HumanLines(), queue)
    logger.addHandler(handler)
    logger.info("first")
    assert stream.entered.wait(LONG_S)
    for number in range(30):
        logger.info("line %d", number)
    assert handler.dropped == 20
    stream.gate.set()
    handler.close()
    text = stream.getvalue()
    assert "line 9" in text and "line 10" not in text
    assert "20 log lines were dropped" in text


def test_a_stderr_that_is_gone_is_not_reported_by_itself(logger: logging.Logger) -> None:
    """Each line about a line that was lost would be lost, and told of in its turn."""
    logger.setLevel(logging.DEBUG)
    stream = io.StringIO()
    handler = QueuedLines(stream, HumanLines())
    logger.addHandler(handler)
    stream.close()
    logger.info("nobody reads this")
    handler.close()
    assert handler.dropped == 1


def test_an_exception_keeps_its_traceback(logger: logging.Logger) -> None:
    """Though its line is made later, in another thread."""

    def fail() -> None:
        try:
            raise ValueError("broken oar")
        except ValueError:
            logger.exception("it failed")

    (line,) = written(logger, JsonLines(), fail)
    assert "broken oar" in json.loads(line)["exception"]


def caused_by(cause: Exception) -> Exception:
    error = RequestPayloadError("b'sk-secret'")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "fault",
    [
        DecodeError("corrupt"),
        BadHttpMessage("b'sk-secret'"),
        caused_by(ContentEncodingError("b'sk-secret'")),
    ],
)
def test_what_foreign_requests_send_is_one_line_without_a_byte_of_it(
    logger: logging.Logger, fault: Exception
) -> None:
    """A library's traceback over a message that is none shows the message, keys and all."""

    def fail() -> None:
        try:
            raise fault
        except type(fault):
            logger.exception("Error handling request from %s", "10.0.0.1")

    stream = io.StringIO()
    handler = QueuedLines(stream, HumanLines())
    handler.addFilter(without_foreign_bytes)
    logger.addHandler(handler)
    fail()
    handler.close()
    (line,) = stream.getvalue().splitlines()
    assert line.endswith("Error handling request from 10.0.0.1: the data is not a valid message")
    assert " warning " in line


@pytest.mark.parametrize("formatter", [HumanLines(), JsonLines()])
def test_a_line_that_cannot_be_written_costs_no_other(formatter: logging.Formatter) -> None:
    """Arguments that do not fit are named without their content."""
    stream = io.StringIO()
    handler = QueuedLines(stream, formatter)
    for text, arguments in (("before", ()), ("%d requests", ("sk-secret",)), ("after", ())):
        handler.handle(
            logging.LogRecord("coxswain", logging.INFO, "x.py", 7, text, arguments, exc_info=None)
        )
    handler.close()
    before, line, after = stream.getvalue().splitlines()
    assert "before" in before and "after" in after
    assert "a line cannot be written: TypeError at x.py:7" in line and "sk-secret" not in line


def test_a_request_id_cannot_write_on_the_terminal(logger: logging.Logger) -> None:
    """Clients name their requests, and Envoy lets escape sequences through."""
    hostile = record(request_id="a\x1b[2J\nb\x9b31m")
    (line,) = written(logger, HumanLines(), lambda: log_request(hostile, ""))
    assert r"request='a\x1b[2J\nb\x9b31m' " in line


def test_a_request_id_cannot_write_fields_of_ours(logger: logging.Logger) -> None:
    """Who searches for status=500 finds what had it, not what a client called itself."""
    hostile = record(request_id="a endpoint=10.9.9.9:1 status=500")
    (line,) = written(logger, HumanLines(), lambda: log_request(hostile, ""))
    assert "request='a endpoint=10.9.9.9:1 status=500' endpoint=" in line
