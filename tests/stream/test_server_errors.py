"""Claims about extproc/stream/server_errors.py: which 500 of llama-server is about one request."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from extproc.core.decision import Picked
from extproc.core.outliers.failure_evidence import Fault
from extproc.core.request import DAMAGED, MEDIA, Kind, Request
from extproc.runners.llama_server.error_texts import OF_MEDIA
from extproc.stream import response_feedback
from extproc.stream.envoy import codec
from extproc.stream.server_errors import is_about_request, may_be_overflow
from tests.fakes import envoy_messages as envoy
from tests.fakes.small_fleet import SmallFleet

CHAT = Request(id="r", timeout_s=1.0, traits="/v1/chat/completions", path="/v1/chat/completions")
SEEN = Request(id="r", timeout_s=1.0, traits=f"/v1/chat/completions tools {MEDIA}")
ANSWERS = Request(id="r", timeout_s=1.0, weight_slots=2, path="/v1/completions")
EMBED = Request(id="r", timeout_s=1.0, kind=Kind.EMBEDDING, path="/v1/embeddings")
ANTHROPIC = Request(id="r", timeout_s=1.0, path="/v1/messages")
DAMAGE = Request(id="r", timeout_s=1.0, traits=f"/v1/completions {DAMAGED}")
NAMED = Request(id="r", timeout_s=1.0, traits=MEDIA)


def told(message: str, code: int = 500, kind: str = "server_error") -> codec.ResponseHead:
    """As llama-server writes it."""
    error = {"code": code, "message": message, "type": kind}
    return head(json.dumps({"error": error}, separators=(",", ":")), code)


def head(
    body: str, code: int = 500, content_type: str = "application/json; charset=utf-8"
) -> codec.ResponseHead:
    message = envoy.response_headers(str(code), content_type=content_type, body_bytes=len(body))
    return codec.read_response_head(message)


TOO_LARGE = (
    "input ({} tokens) is too large to process. increase the physical batch size "
    "(current batch size: {})"
)


@pytest.mark.parametrize(
    ("message", "request_", "is_about_it"),
    [
        (TOO_LARGE.format(6001, 512), EMBED, True),
        (TOO_LARGE.format(513, 64), EMBED, True),
        (TOO_LARGE.format(1_000_000, 16_384), EMBED, True),
        (TOO_LARGE.format(6001, 512), CHAT, False),
        ("the current context does not support logits computation. skipping", CHAT, True),
        ("context shift cannot be used for shared prompt", ANSWERS, True),
        ("context shift cannot be used for shared prompt", CHAT, False),
        *((message, SEEN, True) for message in OF_MEDIA),
        *((message, CHAT, False) for message in OF_MEDIA),
        (OF_MEDIA[0], NAMED, False),
        ("'messages' is required", ANTHROPIC, True),
        ("'messages' is required", CHAT, False),
        ("[json.exception.parse_error.101] parse error at line 1, column 2", DAMAGE, True),
        ("[json.exception.parse_error.101] parse error at line 1, column 2", CHAT, False),
        # What is said of the server, or of all that runs there.
        ("Compute error.", CHAT, False),
        ("Compute error.", EMBED, False),
        ("Invalid input batch.", CHAT, False),
        ("Context size has been exceeded.", CHAT, False),
        ("failed to process speculative batch", CHAT, False),
        ("Unable to save slot", CHAT, False),
        ("unknown error", CHAT, False),
        ("std::bad_alloc", CHAT, False),
        ("", CHAT, False),
    ],
)
def test_each_text_of_llama_servers_500s(
    message: str, request_: Request, is_about_it: bool
) -> None:
    response = told(message)
    assert is_about_request(response, request_) is is_about_it
    assert response_feedback.fault_of(response, request_) is (
        None if is_about_it else Fault.SERVER_ERROR
    )


@pytest.mark.parametrize(
    ("message", "code", "kind"),
    [
        ("input (9 tokens) is larger than the max context size (8 tokens). skipping", 400, "x"),
        ("Failed to initialize samplers: failed to parse grammar", 400, "invalid_request_error"),
        ("Prompt contains invalid tokens", 400, "invalid_request_error"),
        ("This server does not support reranking. Start it with `--reranking`", 501, "x"),
    ],
)
def test_what_it_says_with_another_status_never_counted(message: str, code: int, kind: str) -> None:
    assert response_feedback.fault_of(told(message, code, kind), CHAT) is None


def test_only_json_of_a_server_counts() -> None:
    """An error page of something in between that has the same length says nothing of a request."""
    text = told(TOO_LARGE.format(6001, 512))
    page = head("x" * text.body_bytes, content_type="text/html")
    assert not is_about_request(page, EMBED)
    assert not is_about_request(text._replace(code_details="cluster_not_found"), EMBED)
    assert not is_about_request(text._replace(status=502), EMBED)


@pytest.mark.parametrize(
    ("message", "is_ejected"), [(TOO_LARGE.format(6001, 512), False), ("Compute error.", True)]
)
def test_requests_that_are_too_long_for_a_batch_eject_nobody(
    message: str, is_ejected: bool
) -> None:
    """However many come, each with another text; other servers answered theirs."""
    fleet = SmallFleet(8, 8)
    bad = fleet.addresses[0]
    for number in range(8):
        request = Request(
            id="r",
            timeout_s=1.0,
            kind=Kind.EMBEDDING,
            fingerprint=number + 1,
            traits="/v1/embeddings",
            allowed=frozenset({bad}),
        )
        outcome = fleet.dispatcher.submit(request, fleet.now)
        if not isinstance(outcome, Picked):
            break
        response_feedback.apply_response(
            fleet.dispatcher, told(message), (bad,), outcome.lease, fleet.now, request
        )
    assert fleet.endpoint(bad).is_ejected is is_ejected


@pytest.mark.parametrize("name", ["overflow_500.json", "overflow_speculative_500.json"])
def test_what_llama_server_says_of_a_full_context_is_known_by_its_length(name: str) -> None:
    """With numbers of one to three digits."""
    body = (Path(__file__).parents[1] / "data/llamacpp" / name).read_text().rstrip("\n")
    longer = re.sub(r"index \d+ (.*)\[\d+, \d+\)", r"index 100 \1[100, 200)", body)
    for each in (body, longer):
        assert may_be_overflow(head(each)), len(each)
        assert not may_be_overflow(head(each)._replace(status=502))
    assert not may_be_overflow(head(body[:-1]))
