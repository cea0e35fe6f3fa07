"""Claims about extproc/cli/screens/explanation.py: a decision in words."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from extproc.cli.output import WIDE
from extproc.cli.screens import explanation
from extproc.cli.screens.explanation import decision, show
from extproc.pb.coxswain.v1 import admin_pb2 as pb

Decision = pb.ExplainResponse


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        (
            {"decision": Decision.DECISION_PICKED, "chosen": "10.0.0.1:8080"},
            "It would go to 10.0.0.1:8080 at once.",
        ),
        (
            {
                "decision": Decision.DECISION_PICKED,
                "chosen": "10.0.0.1:8080",
                "chosen_name": "gpu-1",
            },
            "It would go to gpu-1 at once.",
        ),
        (
            {"decision": Decision.DECISION_PASSED, "chosen": "10.0.0.1:8080"},
            "It takes no slot and would go to 10.0.0.1:8080 at once.",
        ),
        (
            {"decision": Decision.DECISION_PASSED},
            "It takes no slot and would go to any server that Envoy knows at once.",
        ),
        (
            {"decision": Decision.DECISION_PASSED, "resolved": {"answered_by": "coxswain"}},
            "Coxswain answers it at once, for the whole fleet.",
        ),
        (
            {"decision": Decision.DECISION_QUEUED, "queue_position": 3},
            "It would be queued at position 3.",
        ),
        (
            {"decision": Decision.DECISION_QUEUED, "queue_position": 3, "expected_s": 90.0},
            "It would be queued at position 3, about 1m30s.",
        ),
        (
            {"decision": Decision.DECISION_REJECTED, "reason": "queue-full"},
            "It would be rejected: queue-full.",
        ),
    ],
)
def test_one_sentence(fields: dict[str, Any], sentence: str) -> None:
    assert decision(Decision(**fields)) == sentence


def told() -> pb.ExplainResponse:
    scores = [
        Decision.Score(name="free_share", value=0.5, detail="1 of 2 slots"),
        Decision.Score(name="cost_s", value=1.23456),
        Decision.Score(name="saved_s", value=0.25, detail="half is cached"),
    ]
    good = Decision.Candidate(address="10.0.0.1:8080", name="gpu-1", rank=1, scores=scores)
    bad = Decision.Candidate(address="10.0.0.2:8080", filtered=["it is down", "\x1b[2Jmodel"])
    return Decision(
        decision=Decision.DECISION_PICKED,
        chosen="10.0.0.1:8080",
        resolved={"model": "tiny", "criticality": "standard"},
        candidates=[good, bad],
    )


def drawn(monkeypatch: pytest.MonkeyPatch, capsys: Any, width: int) -> list[str]:
    monkeypatch.setattr(explanation, "console", lambda: Console(width=width, highlight=False))
    show(told())
    out: str = capsys.readouterr().out
    return out.splitlines()


def test_who_was_filtered_out_and_every_score(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was resolved first; the chosen one with its rank, the other with its reason."""
    lines = drawn(monkeypatch, capsys, WIDE)
    assert lines[1:3] == ["  criticality: standard", "  model: tiny"]
    header, first, second = lines[-3:]
    assert header.split() == ["RANK", "ENDPOINT", "FREE_SHARE", "COST_S", "SAVED_S", "NOTES"]
    assert first.split()[:6] == ["1", "gpu-1", "(10.0.0.1:8080)", "0.5", "1.23", "0.25"]
    assert first.rstrip().endswith("free_share: 1 of 2 slots; saved_s: half is cached")
    assert second.split()[:2] == ["-", "10.0.0.2:8080"] and "it is down" in second
    assert not any("\x1b" in line for line in lines), "nothing of a server moves the cursor"


def test_a_narrow_screen_has_what_decides(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The cost and what is free; why one was left out stays too."""
    lines = drawn(monkeypatch, capsys, 80)
    assert all(len(line) <= 80 for line in lines)
    text = "\n".join(lines)
    assert "SAVED_S" not in text and "COST_S" in text and "it is down" in text
    assert "gpu-1 (" not in text
