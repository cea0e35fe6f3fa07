"""Claims about extproc/records/selection.py: a record in memory and its line in the file are
selected alike."""

from __future__ import annotations

import json
from typing import Any

import pytest

from extproc.core.exchange_record import Outcome
from extproc.core.rejection import Reason
from extproc.records.request_record import record_of
from extproc.records.selection import Selection
from tests.telemetry.records import record

SERVED = {"client": "team-ä", "model": "tiny", "endpoint_name": "gpu-1"}
REJECTED = {"endpoint": None, "outcome": Outcome.REJECTED, "reason": Reason.QUEUE_TIMEOUT}


@pytest.mark.parametrize(
    ("selection", "selected"),
    [
        ({}, (True, True)),
        ({"client": "team-ä"}, (True, False)),
        ({"model": "tiny"}, (True, False)),
        ({"endpoint": "gpu-1"}, (True, False)),
        ({"endpoint": "10.0.0.1:8080"}, (True, False)),
        ({"endpoint": "gpu-2"}, (False, False)),
        ({"outcome": "served"}, (True, False)),
        ({"outcome": "rejected"}, (False, True)),
        ({"outcome": "queue-timeout"}, (False, True)),
        ({"client": "team-ä", "outcome": "rejected"}, (False, False)),
    ],
)
def test_what_is_selected(selection: dict[str, str], selected: tuple[bool, bool]) -> None:
    chosen = Selection(**selection)
    changes: tuple[dict[str, Any], ...] = (SERVED, REJECTED)
    for change, is_selected in zip(changes, selected, strict=True):
        ended = record(**change)
        kept = record_of(ended, None, 0.0)
        line = json.dumps(kept.as_json(), separators=(",", ":")).encode()
        assert chosen.takes(ended) == chosen.takes_record(kept) == is_selected
        assert chosen.may_take(line) or not is_selected
