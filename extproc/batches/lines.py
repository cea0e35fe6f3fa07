"""The lines of a batch in OpenAI's format: reading those of an input, writing those of a result."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

ENDPOINTS: Final = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings")
"""What a batch may ask for."""
MAX_LINES: Final = 50_000
MAX_LINE_BYTES: Final = 32 * 1024 * 1024
MAX_ID_CHARS: Final = 256
MAX_ERRORS: Final = 100
"""The number of errors that are listed of an input."""
_NAMES: Final = {"custom_id", "method", "url", "body"}


@dataclass(frozen=True, slots=True, kw_only=True)
class InputLine:
    """One request of a batch. `model` is the one that it names, empty for none; `body` is JSON."""

    custom_id: str
    model: str
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LineProblem:
    """What is wrong with an input; `line` is its number from 1, None for the whole of it. Its texts
    quote nothing of the input."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "line": self.line,
            "message": self.message,
            "param": self.param,
        }


def is_storable(text: str) -> bool:
    """Whether it has a form in UTF-8: JSON can write half of a character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def split_lines(parts: Iterable[bytes]) -> Iterator[bytes]:
    """The lines of a file that comes in parts, without their ends; one that is too long is cut."""
    rest = b""
    for part in parts:
        *whole, rest = (rest + part).split(b"\n")
        yield from whole
        rest = rest[: MAX_LINE_BYTES + 1]
    if rest:
        yield rest


def read_lines(
    parts: Iterable[bytes], endpoint: str, problems: list[LineProblem]
) -> Iterator[InputLine]:
    """The requests in an input, for one endpoint; what is wrong with it is added to `problems`.
    Blank lines count only in the numbers. O(1) lines in memory, but for their ids."""
    seen: set[str] = set()
    number = 0
    for number, text in enumerate(split_lines(parts), start=1):
        if not text.strip():
            continue
        if len(seen) >= MAX_LINES:
            problems.append(
                LineProblem(code="too_many_tasks", message=f"A batch has up to {MAX_LINES} lines.")
            )
            return
        found = _read(text, number, endpoint)
        if isinstance(found, InputLine) and found.custom_id in seen:
            message = "This custom_id is in the file already."
            found = LineProblem(
                code="duplicate_custom_id", message=message, line=number, param="custom_id"
            )
        if isinstance(found, LineProblem):
            problems.append(found)
            if len(problems) >= MAX_ERRORS:
                return
            continue
        seen.add(found.custom_id)
        yield found
    if not seen and not problems:
        problems.append(LineProblem(code="empty_file", message="The file has no lines."))


def _read(text: bytes, number: int, endpoint: str) -> InputLine | LineProblem:
    def problem(code: str, message: str, param: str | None = None) -> LineProblem:
        return LineProblem(code=code, message=message, line=number, param=param)

    if len(text) > MAX_LINE_BYTES:
        return problem("line_too_long", f"A line has up to {MAX_LINE_BYTES} bytes.")
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return problem("invalid_json_line", "This line is not valid JSON.")
    if not isinstance(line, dict):
        return problem("invalid_json_line", "This line is not a JSON object.")
    if missing := sorted(_NAMES - line.keys()):
        return problem("missing_required_parameter", f"{missing[0]} is missing.", missing[0])
    custom_id, body = line["custom_id"], line["body"]
    if not (isinstance(custom_id, str) and 0 < len(custom_id) <= MAX_ID_CHARS):
        message = f"custom_id must be a text of 1 to {MAX_ID_CHARS} characters."
        return problem("invalid_custom_id", message, "custom_id")
    if not is_storable(custom_id):
        message = "custom_id has half of a character."
        return problem("invalid_custom_id", message, "custom_id")
    if line["method"] != "POST":
        return problem("invalid_method", "method must be POST.", "method")
    if line["url"] != endpoint:
        return problem("invalid_url", f"url must be the batch's endpoint, {endpoint}.", "url")
    if not isinstance(body, dict):
        return problem("invalid_body", "body must be a JSON object.", "body")
    if body.get("stream"):
        return problem("invalid_body", "A batch has no streams: leave out stream.", "body.stream")
    model = body.get("model")
    if isinstance(model, str) and not is_storable(model):
        return problem("invalid_body", "model has half of a character.", "body.model")
    return InputLine(
        custom_id=custom_id,
        model=model if isinstance(model, str) else "",
        body=json.dumps(body, separators=(",", ":")).encode(),
    )


def answered(id_: str, custom_id: str, status: int, request_id: str, body: bytes) -> bytes:
    """The line of a result that a server or a picker gave; a body that is not JSON is a text."""
    try:
        content: Any = json.loads(body)
    except (ValueError, RecursionError):
        content = body.decode(errors="replace")
    response = {"status_code": status, "request_id": request_id, "body": content}
    return _written(id_, custom_id, response, None)


def unanswered(id_: str, custom_id: str, code: str, message: str) -> bytes:
    """The line of a result for a request without a response."""
    return _written(id_, custom_id, None, {"code": code, "message": message})


def _written(
    id_: str, custom_id: str, response: dict[str, Any] | None, error: dict[str, str] | None
) -> bytes:
    line = {"id": id_, "custom_id": custom_id, "response": response, "error": error}
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"
