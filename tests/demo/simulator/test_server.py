"""What only the simulator does, and how it takes bad input, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from extproc.core.request import Kind
from extproc.demo.simulator import server
from extproc.demo.simulator.__main__ import main
from extproc.demo.simulator.options import SimulatorOptions
from extproc.demo.simulator.server import Simulator
from extproc.demo.simulator.slots import Task
from extproc.runners.llama_server.paths import LLAMA_SERVER
from extproc.runners.openai.paths import OPENAI, RERANK


@asynccontextmanager
async def running(**options: Any) -> AsyncGenerator[tuple[Simulator, int], None]:
    simulator = Simulator(SimulatorOptions(**options))
    port = await simulator.start()
    try:
        yield simulator, port
    finally:
        await simulator.close()


async def talk(port: int, sent: bytes) -> bytes:
    """Send bytes, say no more, and return all that comes back."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(sent)
        await writer.drain()
        return await asyncio.wait_for(reader.read(), timeout=20)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def post(path: str, body: object, extra: str = "") -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\n{extra}content-length: {len(content)}\r\n\r\n"
    return head.encode() + content


async def under_way(simulator: Simulator) -> Task:
    """What one of its slots works on, as soon as one does."""
    while True:
        for slot in simulator.slots.all:
            if slot.is_processing and slot.last is not None:
                return slot.last
        await asyncio.sleep(0.01)  # the simulator has no event for it


CLOSING = "connection: close\r\n"


ANYTHING: dict[str, object] = {
    "prompt": "row",
    "messages": [{"role": "user", "content": "row"}],
    "input": "row",
    "input_prefix": "row",
    "input_suffix": "boat",
    "query": "row",
    "documents": ["row", "pull", "row the boat"],
    "max_tokens": 2,
}
"""A body in which each path finds what it needs."""


SLOT_PATHS = {
    path: kind for api in (OPENAI, RERANK, LLAMA_SERVER) for path, kind in api.slot_paths.items()
}


@pytest.mark.parametrize("path", SLOT_PATHS)
async def test_every_path_that_takes_a_slot_is_served(path: str) -> None:
    """With a result that says what it is, where it is a text."""
    async with running(service_time_s=0.0) as (_, port), httpx.AsyncClient() as client:
        url = f"http://127.0.0.1:{port}{path}"
        if "audio" in path:
            form = {"files": {"file": ("a.wav", b"RIFF")}, "data": {"model": "whisper-1"}}
            answer = await client.post(url, **form)  # type: ignore[arg-type]
        else:
            answer = await client.post(url, json=ANYTHING)
        assert answer.status_code == 200, answer.text
        if SLOT_PATHS[path] is Kind.GENERATION:
            assert "(simulated answer)" in answer.text
        elif "rank" in path:
            first = answer.json()["results"][0]
            assert (first["index"], first["relevance_score"]) == (0, pytest.approx(1.0))
        else:
            assert "embedding" in answer.text


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/responses", {"input": 5}),
        ("/v1/messages", {"max_tokens": 2}),
        ("/infill", {"input_prefix": "row"}),
        ("/v1/rerank", {"query": "row"}),
        ("/v1/rerank", {"query": "row", "documents": []}),
        ("/detokenize", {"tokens": "row"}),
        ("/v1/responses/input_tokens", {}),
    ],
)
async def test_what_a_path_does_not_take_is_rejected(path: str, body: object) -> None:
    async with running(service_time_s=0.0) as (_, port), httpx.AsyncClient() as client:
        answer = await client.post(f"http://127.0.0.1:{port}{path}", json=body)
        assert answer.status_code == 400 and answer.json()["error"]["message"]


async def test_audio_without_a_file_is_rejected() -> None:
    async with running(service_time_s=0.0) as (_, port), httpx.AsyncClient() as client:
        url = f"http://127.0.0.1:{port}/v1/audio/transcriptions"
        assert (await client.post(url, data={"model": "x"})).status_code == 400
        assert (await client.post(url, json={})).status_code == 400


async def test_a_transcription_streams() -> None:
    async with running(service_time_s=0.0) as (_, port), httpx.AsyncClient() as client:
        answer = await client.post(
            f"http://127.0.0.1:{port}/v1/audio/transcriptions",
            files={"file": ("a.wav", b"RIFF")},
            data={"stream": "true"},
        )
        *parts, done, end = [line[6:] for line in answer.text.splitlines() if line]
        text = "".join(json.loads(part)["delta"] for part in parts)
        assert json.loads(done)["text"] == text and end == "[DONE]"


async def test_embeddings_can_be_left_out() -> None:
    async with (
        running(service_time_s=0.0, gives_embeddings=False) as (_, port),
        httpx.AsyncClient() as client,
    ):
        for path in ("/v1/embeddings", "/v1/rerank"):
            answer = await client.post(f"http://127.0.0.1:{port}{path}", json=ANYTHING)
            assert answer.status_code == 501


async def test_every_answer_says_that_it_is_simulated() -> None:
    async with running(service_time_s=0.0) as (_, port), httpx.AsyncClient() as client:
        client.base_url = httpx.URL(f"http://127.0.0.1:{port}")
        body = {"prompt": "row", "messages": [], "max_tokens": 2}
        for path in ("/completion", "/v1/completions", "/v1/chat/completions"):
            answer = await client.post(path, json=body)
            assert "(simulated answer)" in answer.text
            assert answer.json()["system_fingerprint"] == "coxswain-simulator"
            assert answer.headers["server"] == "coxswain-simulator"
        assert (await client.get("/props")).json()["build_info"] == "coxswain-simulator"


@pytest.mark.parametrize(
    ("lengths", "tokens"),
    [
        ({"simulated_answer_tokens": 3}, 3),
        ({"simulated_answer_tokens": 3, "max_tokens": 2}, 2),
        ({"simulated_answer_tokens": 3, "max_tokens": 9}, 3),
        ({"simulated_answer_tokens": 0, "max_tokens": 4}, 4),
        ({"simulated_answer_tokens": 10**9}, 4096 - len("user: row\n") - 1),
    ],
)
async def test_an_answer_can_end_before_what_its_client_allowed(
    lengths: dict[str, int], tokens: int
) -> None:
    async with running(service_time_s=0.0) as (_, port):
        body = {"messages": [{"role": "user", "content": "row"}], **lengths}
        sent = post("/v1/chat/completions", body, "connection: close\r\n")
        answer = await talk(port, sent)
        found = json.loads(answer.partition(b"\r\n\r\n")[2])
        assert found["usage"]["completion_tokens"] == tokens


async def test_it_says_503_while_it_loads() -> None:
    async with running(load_s=600.0) as (_, port), httpx.AsyncClient() as client:
        for path in ("/health", "/slots", "/props"):
            answer = await client.get(f"http://127.0.0.1:{port}{path}")
            assert answer.status_code == 503
            assert answer.json()["error"]["message"] == "Loading model"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"NONSENSE\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET /\xff HTTP/1.1\r\nhost: x\r\n\r\n", 400),
        (post("/completion", b"{", CLOSING), 400),
        (post("/completion", b"[1]", CLOSING), 400),
        (post("/completion", {"prompt": "row", "n_predict": "many"}, CLOSING), 400),
        (post("/completion", {"prompt": "row", "n": 10**9}, CLOSING), 400),
        (post("/completion", {"prompt": "row" * 10_000}, CLOSING), 400),
        (post("/v1/chat/completions", {"messages": "none"}, CLOSING), 400),
        (post("/v1/embeddings", {"input": None}, CLOSING), 400),
    ],
)
async def test_bad_input_is_rejected_and_the_server_lives_on(sent: bytes, status: int) -> None:
    async with running() as (simulator, port):
        assert (await talk(port, sent)).split()[1] == b"%d" % status
        assert not any(slot.is_processing for slot in simulator.slots.all)
        async with httpx.AsyncClient() as client:
            assert (await client.get(f"http://127.0.0.1:{port}/health")).status_code == 200


async def test_a_body_without_end_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_BODY_BYTES", 1000)
    async with running() as (_, port):
        told = await talk(port, post("/completion", b"x" * 1001, CLOSING))
        assert told.startswith(b"HTTP/1.1 413 ")


async def test_one_connection_serves_one_request_after_the_other() -> None:
    async with running(service_time_s=0.0) as (_, port):
        sent = post("/tokenize", {"content": "a"}) + post("/tokenize", {"content": "b"}, CLOSING)
        told = await talk(port, sent)
        assert told.count(b"HTTP/1.1 200 ") == 2
        assert told.index(b"[97]") < told.index(b"[98]")


async def test_a_client_that_leaves_frees_its_slot_whole_or_streaming() -> None:
    async with running(service_time_s=600.0, answer_tokens=2000) as (simulator, port):
        url = f"http://127.0.0.1:{port}/completion"
        for streams in (False, True):
            async with httpx.AsyncClient(timeout=None) as client:
                body = {"prompt": "row", "stream": streams}
                asking = asyncio.create_task(client.post(url, json=body))
                task = await under_way(simulator)
                asking.cancel()
                await asyncio.wait([asking])
            await task.ended()
            assert task.is_cancelled


async def test_closing_ends_what_is_running() -> None:
    async with running(service_time_s=600.0) as (simulator, port):
        asking = asyncio.create_task(talk(port, post("/completion", {"prompt": "row"})))
        await under_way(simulator)
        await simulator.close()
        assert await asking == b""


@pytest.mark.parametrize("wrong", [["--slots", "0"], ["--port", "x"], ["--distribution", "odd"]])
def test_options_that_cannot_be_end_with_2(wrong: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(wrong)


@pytest.mark.parametrize("path", ["/completion", "/v1/completions", "/v1/chat/completions"])
async def test_headers_of_streams_may_come_before_reading(path: str) -> None:
    """They are here, and the prompt will be read in an hour."""
    options = {"has_early_headers": True, "prompt_tokens_per_second": 0.001}
    async with running(**options) as (simulator, port), httpx.AsyncClient() as client:
        body = {"prompt": "row", "messages": [{"role": "user", "content": "row"}], "stream": True}
        url = f"http://127.0.0.1:{port}{path}"
        async with client.stream("POST", url, json=body) as answer:
            assert answer.status_code == 200
            assert [slot.is_processing for slot in simulator.slots.all].count(True) == 1
            assert all(slot.last is None or not slot.last.decoded for slot in simulator.slots.all)


async def test_pages_of_any_origin_may_read_responses() -> None:
    """As those of a llama-server, also streams."""
    chat = {"messages": [{"role": "user", "content": "row"}], "max_tokens": 2}
    allowed = b"access-control-allow-origin: https://page.example\r\n"
    async with running() as (_, port):
        for is_stream in (False, True):
            asked = post(
                "/v1/chat/completions",
                {**chat, "stream": is_stream},
                "origin: https://page.example\r\nconnection: close\r\n",
            )
            head, _, _ = (await talk(port, asked)).partition(b"\r\n\r\n")
            assert allowed in head.lower() + b"\r\n"
