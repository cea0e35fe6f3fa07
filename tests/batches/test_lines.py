"""Claims about extproc/batches/lines.py."""

from __future__ import annotations

import json
from typing import Any

import pytest

from extproc.batches import lines
from extproc.batches.lines import LineProblem, answered, read_lines, split_lines, unanswered

CHAT = "/v1/chat/completions"


def line(**other: Any) -> bytes:
    whole = {"custom_id": "a", "method": "POST", "url": CHAT, "body": {"model": "tiny"}, **other}
    return json.dumps({key: value for key, value in whole.items() if value is not None}).encode()


def problems_of(*parts: bytes) -> list[LineProblem]:
    found: list[LineProblem] = []
    list(read_lines(parts, CHAT, found))
    return found


def test_parts_are_cut_anywhere() -> None:
    content = line(custom_id="a") + b"\n\n" + line(custom_id="b", body={}) + b"\r\n"
    read: list[lines.InputLine] = []
    for size in (1, 7, len(content)):
        parts = [content[at : at + size] for at in range(0, len(content), size)]
        found: list[LineProblem] = []
        read = list(read_lines(parts, CHAT, found))
        assert not found
        assert [(one.custom_id, one.model) for one in read] == [("a", "tiny"), ("b", "")]
    assert json.loads(read[0].body) == {"model": "tiny"}


@pytest.mark.parametrize(
    ("text", "code", "param"),
    [
        (b"{", "invalid_json_line", None),
        (b"[]", "invalid_json_line", None),
        (line(body=None), "missing_required_parameter", "body"),
        (line(custom_id=7), "invalid_custom_id", "custom_id"),
        (line(custom_id="x" * 257), "invalid_custom_id", "custom_id"),
        (line(custom_id="\ud800"), "invalid_custom_id", "custom_id"),
        (line(body={"model": "\ud800"}), "invalid_body", "body.model"),
        (line(method="GET"), "invalid_method", "method"),
        (line(url="/v1/embeddings"), "invalid_url", "url"),
        (line(body="secret"), "invalid_body", "body"),
        (line(body={"stream": True}), "invalid_body", "body.stream"),
        (b"  \n", "empty_file", None),
        (line() + b"\n" + line(), "duplicate_custom_id", "custom_id"),
    ],
)
def test_what_is_wrong_is_named_and_not_quoted(text: bytes, code: str, param: str | None) -> None:
    (problem,) = problems_of(text)
    assert (problem.code, problem.param) == (code, param)
    assert "secret" not in problem.message
    assert problem.as_json()["code"] == code


def test_errors_lines_and_their_lengths_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(problems_of(b"{\n" * 1000)) == lines.MAX_ERRORS
    monkeypatch.setattr(lines, "MAX_LINES", 1)
    (problem,) = problems_of(line(custom_id="a") + b"\n" + line(custom_id="b"))
    assert problem.code == "too_many_tasks"
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 20)
    (problem,) = problems_of(b"x" * 15, b"x" * 15)
    assert problem.code == "line_too_long"
    assert max(map(len, split_lines([b"x" * 15] * 5))) <= 36


def test_results_are_lines_of_json() -> None:
    found = json.loads(answered("r1", "a", 200, "q", b'{"one":\n 1}'))
    assert found == {
        "id": "r1",
        "custom_id": "a",
        "response": {"status_code": 200, "request_id": "q", "body": {"one": 1}},
        "error": None,
    }
    text = answered("r1", "a", 502, "q", b"bad\n\xff")
    assert text.count(b"\n") == 1
    assert json.loads(text)["response"]["body"].startswith("bad")
    error = json.loads(unanswered("r1", "a", "batch_expired", "late"))
    assert error["response"] is None and error["error"]["code"] == "batch_expired"
