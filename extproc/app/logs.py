"""The log on stderr: one line for each event, human-readable or JSON.

Lines are formatted and written in a thread behind a bounded queue, so a terminal or a log
collector that stalls never stalls a request: what it cannot take is dropped and counted.
"""

import logging
import sys
from datetime import UTC, datetime
from typing import Final, TextIO

from google.protobuf.message import DecodeError

from extproc.security.foreign_text import escaped, json_text
from extproc.settings import LogSettings
from extproc.telemetry.batcher import Batcher, BatcherOptions

QUEUE: Final = BatcherOptions(max_pending=10_000, max_batch=500, delay_s=0.02)
FLUSH_S: Final = 1.0
"""The longest time to write the last lines when the process ends."""


def set_up_logging(settings: LogSettings) -> None:
    """Log our events at the configured level, and only warnings of libraries."""
    formatter = JsonLines() if settings.format == "json" else HumanLines()
    handler = QueuedLines(sys.stderr, formatter)
    handler.addFilter(without_foreign_bytes)
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger("coxswain").setLevel(settings.level.upper())
    # Each event costs half as much without what no line of ours shows.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # noqa: SLF001 - the documented way


def without_foreign_bytes(record: logging.LogRecord) -> bool:
    """Log a peer that sends an invalid message in one line, without any of its bytes.

    The libraries that read HTTP and gRPC for us take it for an error of ours, and write a
    traceback that shows what was sent: keys and prompts too, where a client took the wrong port.
    """
    error = record.exc_info[1] if record.exc_info else None
    cause = error.__cause__ if error is not None else None  # of a body that is not as encoded
    foreign: tuple[type[Exception], ...] = (DecodeError, *_http_errors())
    if isinstance(error, foreign) or isinstance(cause, foreign):
        record.msg = f"{record.getMessage()}: the data is not a valid message"
        record.args = None
        record.exc_info = record.exc_text = None
        record.levelno, record.levelname = logging.WARNING, "WARNING"
    return True


def _http_errors() -> tuple[type[Exception], ...]:
    """aiohttp's errors of invalid HTTP. Only a process that has loaded it can raise them: fronts
    serve no HTTP/1, and start sooner without it."""
    module = sys.modules.get("aiohttp.http_exceptions")
    return () if module is None else (module.HttpProcessingError,)


def dropped_lines() -> int:
    """The number of lines that were dropped because stderr was too slow."""
    handlers = logging.getLogger().handlers
    return sum(handler.dropped for handler in handlers if isinstance(handler, QueuedLines))


class QueuedLines(logging.Handler):
    """Queues an event in a microsecond and never waits; a thread formats and writes it."""

    def __init__(
        self, stream: TextIO, formatter: logging.Formatter, queue: BatcherOptions = QUEUE
    ) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self._stream = stream
        self._reported = 0
        self._batcher: Batcher[logging.LogRecord] = Batcher("write log lines", self._write, queue)

    @property
    def dropped(self) -> int:
        return self._batcher.dropped

    def emit(self, record: logging.LogRecord) -> None:
        self._batcher.put(record)

    def close(self) -> None:
        """Write what is left, for at most `FLUSH_S`."""
        self._batcher.close(FLUSH_S)
        super().close()

    def _write(self, records: list[logging.LogRecord]) -> int:
        lines = [self._line(record) for record in records]
        dropped = self._batcher.dropped
        if dropped > self._reported:
            lines.append(self.format(_notice(dropped - self._reported)))
            self._reported = dropped
        try:
            self._stream.write("\n".join(lines) + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            return len(records)  # nobody reads any more: a line about it would come here, too
        return 0

    def _line(self, record: logging.LogRecord) -> str:
        """The record as text. One with arguments that do not fit costs no other its line."""
        try:
            return self.format(record)
        except Exception as error:  # noqa: BLE001 - a fault where it was logged
            at = f"{record.filename}:{record.lineno}"
            record.msg = f"a line cannot be written: {type(error).__name__} at {at}"
            record.args = record.exc_info = record.exc_text = None
            record.__dict__.pop("fields", None)
            return self.format(record)


def _notice(count: int) -> logging.LogRecord:
    text = "%d log lines were dropped: their reader is too slow"
    return logging.LogRecord("coxswain.log", logging.WARNING, "", 0, text, (count,), exc_info=None)


class HumanLines(logging.Formatter):
    """`12:00:00.123 warning scraper: text`, in local time."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03d %(level)s %(part)s: %(message)s", "%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        record.level = record.levelname.lower()
        record.part = record.name.removeprefix("coxswain.")
        # What servers and clients named is in it; none of that begins a line of ours.
        return escaped(super().format(record)).replace("\n", "\n  ")


class JsonLines(logging.Formatter):
    """One JSON object a line; what an event carries in `fields` stands beside its text.

    `fields` is a dict, or makes one when it is called: in the thread that writes.
    """

    def format(self, record: logging.LogRecord) -> str:
        event = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            event["exception"] = self.formatException(record.exc_info)
        return json_text(event)


def _fields(record: logging.LogRecord) -> dict[str, object]:
    fields = getattr(record, "fields", {})
    made: dict[str, object] = fields() if callable(fields) else fields
    return made
