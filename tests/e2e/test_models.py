"""Several models on plain servers, told apart by what clients write: over real Envoy."""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
import zlib
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest_asyncio

from tests.e2e.conftest import QUICK
from tests.e2e.pool import StackPool, shares
from tests.e2e.stack import CHAT, Stack, chat
from tests.long_run import in_each_mode

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

pytestmark = shares("models")

SETTINGS: dict[str, Any] = {
    **QUICK,
    "models": {"both": {"tiny": 9, "small": 1}, "default": "small"},
    "routing": {"model_match": "strict"},
    "objectives": {
        "gold": {"criticality": "critical"},
        "cheap": {"criticality": "sheddable", "models": ["both"]},
    },
    "queue": {"max_requests": 0},
}
SPLIT_REQUESTS = 150


@pytest_asyncio.fixture(loop_scope="session")
async def stack(mode: str, stacks: StackPool) -> AsyncIterator[Stack]:
    """`tiny` with two slots and `small` with one; nobody may wait."""
    flags = (("--alias", "tiny"), ("--alias", "small"))
    async with stacks.lend(
        slots=(2, 1), flags=flags, kind="simulator", settings=SETTINGS, mode=mode
    ) as lent:
        yield lent


async def ask(stack: Stack, body: dict[str, Any], **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await stack.client.post(stack.url(CHAT), json=chat(1) | body, headers=named)


def reason(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.headers.get("x-coxswain-reason", "")


async def test_a_model_is_served_by_its_servers_alone(stack: Stack) -> None:
    """Also where it stands behind a long prompt; what cannot be read is not guessed at."""
    tiny, small = (server.address for server in stack.servers)
    long = {"user": "x" * 100_000}
    wanted = [("tiny", tiny), ("small", small), ("default", small)] * 3
    for name, address in wanted:
        answer = await ask(stack, {"model": name})
        assert (answer.status_code, answer.headers["x-coxswain-endpoint"]) == (200, address)
        hinted = await ask(stack, long | {"model": name}, x_gateway_model_name=name)
        assert hinted.headers["x-coxswain-endpoint"] == address
        behind = await ask(stack, long | {"model": name})
        assert (behind.status_code, behind.headers["x-coxswain-endpoint"]) == (200, address)
    assert reason(await ask(stack, {"model": "nobody"})) == (404, "model-not-found")
    listed = (await stack.client.get(stack.url("/v1/models"))).json()["data"]
    assert sorted(one["id"] for one in listed) == ["both", "default", "small", "tiny"]


def form(model: str, *, is_behind: bool) -> tuple[bytes, dict[str, str]]:
    field = f'content-disposition: form-data; name="model"\r\n\r\n{model}'.encode()
    file = b'content-disposition: form-data; name="file"; filename="a.wav"\r\n\r\n' + bytes(300_000)
    parts = (file, field) if is_behind else (field, file)
    body = b"".join(b"--xyz\r\n" + part + b"\r\n" for part in parts) + b"--xyz--\r\n"
    return body, {"content-type": "multipart/form-data; boundary=xyz"}


async def test_a_model_is_found_in_each_form_of_a_request(stack: Stack) -> None:
    """tests/stream/request/test_models_of_requests.py has all of them, in each mode of Envoy."""
    tiny, small = (server.address for server in stack.servers)
    speech, encoding = "/v1/audio/transcriptions", "content-encoding"

    def long(model: str) -> bytes:
        tools = [{"type": "function", "function": {"name": f"f{number}"}} for number in range(200)]
        body = chat(1) | {"user": "x" * 200_000, "model": model, "tools": tools}
        return json.dumps(body).encode()

    for name, address in (("tiny", tiny), ("small", small), ("nobody", "")):
        plain = json.dumps(chat(1) | {"model": name}).encode()
        requests: list[tuple[str, bytes, dict[str, str]]] = [
            (CHAT, b"\xef\xbb\xbf" + plain, {}),
            (CHAT, gzip.compress(long(name)), {encoding: "gzip"}),
            (CHAT, zlib.compress(plain), {encoding: "deflate"}),
            (CHAT, zstd.compress(long(name)), {encoding: "zstd"}),
            (speech, *form(name, is_behind=False)),
            (speech, *form(name, is_behind=True)),
            ("/tokenize", json.dumps({"content": "x" * 3_000_000, "model": name}).encode(), {}),
            ("/v1/messages/count_tokens", zstd.compress(long(name)), {encoding: "zstd"}),
            ("/apply-template", plain, {}),
        ]
        for path, body, headers in requests:
            answer = await stack.client.post(stack.url(path), content=body, headers=headers)
            if not address:
                assert reason(answer) == (404, "model-not-found"), path
                continue
            assert answer.headers["x-coxswain-endpoint"] == address, path
            if path == CHAT:
                assert answer.status_code == 200, answer.text
        answer = await stack.client.get(stack.url(f"/props?model={name}"))
        assert answer.headers.get("x-coxswain-endpoint", "") == address
    for body, headers, status in (
        (b"row", {encoding: "br"}, 415),
        (b"row", {encoding: "gzip"}, 400),
        (zstd.compress(bytes(9_000_000)), {encoding: "zstd"}, 400),
        (b'{"model":"tiny"', {}, 400),
    ):
        answer = await stack.client.post(stack.url(CHAT), content=body, headers=headers)
        assert answer.status_code == status and answer.json()["error"]["type"]


@in_each_mode
async def test_a_split_follows_its_weights_and_classes_hold(stack: Stack) -> None:
    """Nine to one; and when all of a model's slots are busy, each class is told its own reason,
    while the other model's requests are served."""
    tiny, small = (server.address for server in stack.servers)
    served = Counter(
        [
            (await ask(stack, {"model": "both"})).headers["x-coxswain-endpoint"]
            for _ in range(SPLIT_REQUESTS)
        ]
    )
    # Fewer than 105 or all 150 to `tiny`: less than once in a million.
    assert 105 <= served[tiny] < SPLIT_REQUESTS and served.total() == SPLIT_REQUESTS

    async with asyncio.timeout(60):  # it is held for longer
        held = await stack.client.send(
            stack.client.build_request(
                "POST", stack.url(CHAT), json=chat(16_000, stream=True) | {"model": "small"}
            ),
            stream=True,
        )
        assert held.headers["x-coxswain-endpoint"] == small
        rejected = await ask(stack, {"model": "default"})
        assert reason(rejected) == (429, "queue-full")
        assert rejected.json()["error"]["code"] == "queue-full"
        assert int(rejected.headers["retry-after"]) >= 1
        gold = await ask(stack, {"model": "small"}, x_gateway_inference_objective="gold")
        assert reason(gold) == (429, "queue-full")
        cheap = await ask(stack, {"model": "small"}, x_gateway_inference_objective="cheap")
        assert reason(cheap) == (429, "shed")
        impatient = await ask(stack, {"model": "small"}, x_coxswain_queue_timeout_ms="0")
        assert reason(impatient) == (429, "queue-full")
        both = [await ask(stack, {"model": "both"}) for _ in range(SPLIT_REQUESTS)]
        assert {reason(answer) for answer in both} == {(200, ""), (429, "shed")}
        assert (await ask(stack, {"model": "tiny"})).status_code == 200
        await held.aclose()
