"""Reads what Envoy and the picker wrote about requests."""

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from rigs.chaos.records import Ended, Line

SUPERVISORS = frozenset({"coxswain.processes", "coxswain.cluster"})
"""They say that a process was killed, or kill it, and that the engine is lost."""
PREFIX = "chaos-"
"""What the ids of our requests begin with."""


def access_lines(logs: Iterable[Path]) -> list[Line]:
    """Our requests' lines in Envoy's access log."""
    return [
        Line(
            id=line["request_id"],
            status=int(line.get("status", 0)),
            endpoint=line.get("endpoint", ""),
            attempts=int(line.get("attempts", 0) or 0),
            bytes_out=int(line.get("bytes_out", 0)),
            flags=line.get("flags", ""),
            details=line.get("details", ""),
        )
        for line in _ours(logs)
    ]


def request_ends(logs: Iterable[Path]) -> list[Ended]:
    """Our requests' ends in the picker's log."""
    return [
        Ended(
            id=line["request_id"],
            outcome=line["outcome"],
            endpoint=line["endpoint"],
            status=line["status"],
        )
        for line in _ours(logs)
        if line.get("logger") == "coxswain.request"
    ]


def troubles(logs: Iterable[Path]) -> list[str]:
    """What the picker logged as an error, or with a traceback; a process's last words, too."""
    found = []
    for text, line in _lines(logs):
        if line is None:
            if "Traceback" in text or "Error" in text:
                found.append(text)
        elif line.get("logger") in SUPERVISORS and "exception" not in line:
            continue
        elif line.get("level") in ("error", "critical") or "exception" in line:
            found.append(f"{line.get('logger')}: {line.get('message')}")
    return found


def _ours(logs: Iterable[Path]) -> Iterator[dict[str, Any]]:
    for _, line in _lines(logs):
        if line is not None and str(line.get("request_id", "")).startswith(PREFIX):
            yield line


def _lines(logs: Iterable[Path]) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """Each line, and the JSON object that it is. A killed process may stop in the middle of one."""
    for log in logs:
        for text in log.read_text(errors="replace").splitlines():
            line = None
            if text.startswith("{"):
                with suppress(ValueError):
                    line = json.loads(text)
            yield text, line
