"""proto/coxswain/v1/admin.proto is what people read to use the admin API."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

from extproc.core.views import explain

ROOT = Path(__file__).resolve().parents[2]
LINES = (ROOT / "proto/coxswain/v1/admin.proto").read_text(encoding="utf-8").splitlines()
DECLARED = re.compile(r"\s*(?:rpc (\w+)|(?:[\w.]+|map<.+>|(?:optional|repeated) [\w.]+) (\w+) = )")
VALUE = re.compile(r"\s*([A-Z_]+) = [1-9]")  # 0 is what nobody says


def declared(line: str) -> str | None:
    """The call, field or value that this line declares."""
    found = DECLARED.match(line) or VALUE.match(line)
    return None if found is None else found[found.lastindex or 1]


def test_every_call_field_and_value_is_explained() -> None:
    """The line above each is a comment."""
    pairs = [(above, declared(line)) for above, line in pairwise(LINES) if declared(line)]
    assert len(pairs) > 130
    assert [name for above, name in pairs if not above.lstrip().startswith("// ")] == []


def test_the_scores_that_it_names_exist() -> None:
    """Somebody will look for them in an answer."""
    (line,) = (line for line in LINES if "The name of the scorer" in line)
    source = Path(explain.__file__).read_text(encoding="utf-8")
    named = re.findall(r"`(\w+)`", line)
    assert named and all(f'name="{name}"' in source for name in named)
