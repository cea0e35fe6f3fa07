"""What is written to stderr, and how: a line an event, for eyes or for machines."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from extproc.settings import LogSettings


def set_up_logging(settings: LogSettings) -> None:
    """Write our events at the level that the settings ask for; of libraries, only warnings."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if settings.format == "json" else HumanLines())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger("coxswain").setLevel(settings.level.upper())


class HumanLines(logging.Formatter):
    """`12:00:00.123 warning scraper: text`, in local time."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03d %(level)s %(part)s: %(message)s", "%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        record.level = record.levelname.lower()
        record.part = record.name.removeprefix("coxswain.")
        return super().format(record)


class JsonLines(logging.Formatter):
    """One JSON object a line; what an event carries in `fields` stands beside its text."""

    def format(self, record: logging.LogRecord) -> str:
        event = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            event["exception"] = self.formatException(record.exc_info)
        return json.dumps(event, ensure_ascii=False)
