"""The simulator is what it stands for: one class of claims, held by it and by the real server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from extproc.core.request import DAMAGED, MEDIA, Kind, Request
from extproc.demo.fleet import (
    EmbeddedServer,
    health_probe,
    llama_server_command,
    plan_fleet,
    server_environment,
    simulator_command,
)
from extproc.demo.llama_server import find_llama_server
from extproc.demo.model import write_model
from extproc.demo.process import Children, until
from extproc.stream.envoy.codec import read_response_head
from extproc.stream.server_errors import is_about_request
from tests.fakes import envoy_messages

REAL = pytest.param("llama-server", marks=pytest.mark.llama)
PATIENCE_S = 60.0
CONTEXT_TOKENS = 32_768
SHARED_TOKENS = 512
CHAT = "/v1/chat/completions"
RECORDED = Path(__file__).parents[2] / "data" / "llamacpp"
ENDLESS: dict[str, Any] = {"n_predict": 30_000, "ignore_eos": True}
"""Seconds of work for the real server, minutes for the simulator: nobody waits for its end."""


@pytest.fixture(params=["simulator", REAL])
async def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def run(
    kind: str, folder: Path, stack: AsyncExitStack, *extra: str, shared_tokens: int = 0
) -> tuple[EmbeddedServer, httpx.AsyncClient]:
    """Start one server with two slots, and a client for it; with `shared_tokens` plainly: four
    slots share that context."""
    children = await stack.enter_async_context(Children(folder))
    client = await stack.enter_async_context(httpx.AsyncClient(timeout=PATIENCE_S))
    [planned] = plan_fleet([None if shared_tokens else 2])
    server = replace(planned, context_tokens=shared_tokens or CONTEXT_TOKENS)
    if kind == "simulator":
        command = [*simulator_command(server, service_time_s=None), *extra]
    else:
        binary = find_llama_server()
        if binary is None:
            pytest.skip("no llama-server; build one with `make llama`")
        write_model(folder / "tiny.gguf")
        command = llama_server_command(binary, folder / "tiny.gguf", server, extra=extra)
    child = await children.start(kind, command, environment=server_environment())
    await child.wait_ready(
        health_probe(client, f"http://{server.address}/health"), timeout_s=PATIENCE_S
    )
    client.base_url = httpx.URL(f"http://{server.address}")
    return server, client


@pytest.fixture
async def client(kind: str, tmp_path: Path) -> AsyncGenerator[httpx.AsyncClient, None]:
    async with AsyncExitStack() as stack:
        yield (await run(kind, tmp_path, stack))[1]


@pytest.fixture
async def plain(kind: str, tmp_path: Path) -> AsyncGenerator[httpx.AsyncClient, None]:
    early = ("--early-headers",) if kind == "simulator" else ()
    async with AsyncExitStack() as stack:
        yield (await run(kind, tmp_path, stack, *early, shared_tokens=SHARED_TOKENS))[1]


async def slots(client: httpx.AsyncClient) -> list[dict[str, Any]]:
    answer = await client.get("/slots")
    assert answer.status_code == 200
    told = answer.json()
    assert isinstance(told, list)
    return told


async def busy(client: httpx.AsyncClient) -> int:
    return sum(slot["is_processing"] for slot in await slots(client))


async def until_busy(client: httpx.AsyncClient, count: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if await busy(client) == count:
                return
            await asyncio.sleep(0.02)


async def open_stream(client: httpx.AsyncClient, stack: AsyncExitStack) -> None:
    """A completion that goes on for as long as the stack is open; its first event was read."""
    body = {"prompt": "row", "stream": True, **ENDLESS}
    response = await stack.enter_async_context(client.stream("POST", "/completion", json=body))
    assert response.status_code == 200
    lines = response.aiter_lines()
    await anext(lines)
    stack.callback(lambda _: None, lines)  # an iterator that nobody holds closes the response


def events(text: str) -> list[Any]:
    """What a whole event stream held; the end mark as a text."""
    found = [line.removeprefix("data: ") for line in text.splitlines() if line]
    return [event if event == "[DONE]" else json.loads(event) for event in found]


ENDS = ("max_tokens", "end_turn")
"""The real server's model may end an answer by itself."""
MESSAGES = [{"role": "user", "content": "row"}]


def named_events(text: str) -> list[tuple[str, dict[str, Any]]]:
    """The events of a stream whose events have names."""
    found = []
    for block in text.strip().split("\n\n"):
        name, data = block.splitlines()
        found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


class TestLikeLlamaServer:
    async def test_health_and_props_report_that_it_is_ready_and_its_slots(
        self, client: httpx.AsyncClient
    ) -> None:
        assert (await client.get("/health")).json() == {"status": "ok"}
        props = (await client.get("/props")).json()
        assert props["total_slots"] == 2
        assert props["model_alias"] == "coxswain"
        assert props["default_generation_settings"]["n_ctx"] == CONTEXT_TOKENS
        assert props["endpoint_slots"] is True
        assert props["is_sleeping"] is False

    async def test_models_name_the_alias(self, client: httpx.AsyncClient) -> None:
        told = (await client.get("/v1/models")).json()
        assert [model["id"] for model in told["data"]] == ["coxswain"]
        assert told["data"][0]["aliases"] == ["coxswain"]
        assert told["data"][0]["meta"]["n_ctx"] == CONTEXT_TOKENS

    async def test_idle_slots_say_so(self, client: httpx.AsyncClient) -> None:
        told = await slots(client)
        assert [slot["id"] for slot in told] == [0, 1]
        assert not any(slot["is_processing"] for slot in told)
        assert {slot["n_ctx"] for slot in told} == {CONTEXT_TOKENS}

    async def test_a_busy_slot_reports_its_progress_and_an_idle_one_keeps_its_memory(
        self, client: httpx.AsyncClient
    ) -> None:
        async with AsyncExitStack() as stack:
            await open_stream(client, stack)
            [working] = [slot for slot in await slots(client) if slot["is_processing"]]
            assert {"id_task", "n_prompt_tokens", "n_prompt_tokens_cache", "params"} <= set(working)
            assert working["next_token"][0]["n_decoded"] >= 1
            assert working["next_token"][0]["n_remain"] > 0
        await until_busy(client, 0)
        [kept] = [slot for slot in await slots(client) if slot["id"] == working["id"]]
        assert kept["id_task"] == working["id_task"]

    async def test_fail_on_no_slot_counts_free_slots(self, client: httpx.AsyncClient) -> None:
        path = "/slots?fail_on_no_slot=1"
        assert (await client.get(path)).status_code == 200
        async with AsyncExitStack() as stack:
            for _ in range(2):
                await open_stream(client, stack)
            assert (await client.get(path)).status_code == 503

    async def test_a_full_server_defers_silently_and_a_client_that_leaves_frees_its_slot(
        self, client: httpx.AsyncClient
    ) -> None:
        async with AsyncExitStack() as streams:
            last = await streams.enter_async_context(AsyncExitStack())
            await open_stream(client, streams)
            await open_stream(client, last)
            body = {"prompt": "third", "n_predict": 2, "ignore_eos": True}
            third = asyncio.create_task(client.post("/completion", json=body))
            done, _ = await asyncio.wait([third], timeout=0.3)
            assert not done
            assert await busy(client) == 2
            await last.aclose()
            answer = await third
            assert answer.status_code == 200
            assert answer.json()["tokens_predicted"] == 2

    async def test_a_client_that_leaves_while_deferred_keeps_no_slot(
        self, client: httpx.AsyncClient
    ) -> None:
        """A stream, since the real server notices others only in a second without any answer."""
        async with AsyncExitStack() as streams:
            for _ in range(2):
                await open_stream(client, streams)
            body = {"prompt": "third", "stream": True, **ENDLESS}
            third = asyncio.create_task(client.post("/completion", json=body))
            await asyncio.wait([third], timeout=0.3)
            third.cancel()
            await asyncio.wait([third])
        await until_busy(client, 0)
        assert await busy(client) == 0

    async def test_two_answers_take_two_slots(self, client: httpx.AsyncClient) -> None:
        body = {
            "messages": [{"role": "user", "content": "row"}],
            "n": 2,
            "max_tokens": 30_000,
            "ignore_eos": True,
            "stream": True,
        }
        async with client.stream("POST", "/v1/chat/completions", json=body) as response:
            lines = response.aiter_lines()
            await anext(lines)
            await until_busy(client, 2)

    async def test_a_chat_is_answered_whole(self, client: httpx.AsyncClient) -> None:
        body = {"messages": [{"role": "user", "content": "row"}], "max_tokens": 3}
        answer = (await client.post("/v1/chat/completions", json=body)).json()
        assert answer["object"] == "chat.completion"
        [choice] = answer["choices"]
        assert choice["message"]["role"] == "assistant"
        assert choice["message"]["content"]
        usage = answer["usage"]
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
        assert usage["prompt_tokens_details"]["cached_tokens"] >= 0
        assert answer["timings"]["predicted_n"] == usage["completion_tokens"]
        assert answer["timings"]["cache_n"] == usage["prompt_tokens_details"]["cached_tokens"]

    async def test_a_chat_is_streamed_event_by_event(self, client: httpx.AsyncClient) -> None:
        body = {
            "messages": [{"role": "user", "content": "row"}],
            "max_tokens": 3,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        answer = await client.post("/v1/chat/completions", json=body)
        assert answer.headers["content-type"].startswith("text/event-stream")
        *told, usage, end = events(answer.text)
        assert end == "[DONE]"
        assert {event["object"] for event in told} == {"chat.completion.chunk"}
        assert told[0]["choices"][0]["delta"]["role"] == "assistant"
        assert told[-1]["choices"][0]["finish_reason"] == "length"
        said = [event["choices"][0]["delta"].get("content") for event in told]
        assert len([text for text in said if text]) == 3
        assert usage["choices"] == []
        assert usage["usage"]["completion_tokens"] == 3

    @pytest.mark.parametrize("streams", [False, True])
    async def test_a_text_is_completed(self, client: httpx.AsyncClient, streams: bool) -> None:
        body = {"prompt": "row", "max_tokens": 3, "ignore_eos": True, "stream": streams}
        answer = await client.post("/v1/completions", json=body)
        told = events(answer.text)[:-1] if streams else [answer.json()]
        assert {event["object"] for event in told} == {"text_completion"}
        assert "".join(event["choices"][0]["text"] for event in told)
        assert told[-1]["choices"][0]["finish_reason"] == "length"
        assert told[-1]["usage"]["completion_tokens"] == 3

    async def test_its_own_completion_stream_ends_with_a_summary(
        self, client: httpx.AsyncClient
    ) -> None:
        body = {"prompt": "row", "n_predict": 3, "ignore_eos": True, "stream": True}
        *parts, end = events((await client.post("/completion", json=body)).text)
        assert [part["stop"] for part in parts] == [False] * 3
        assert end["stop"] is True
        assert end["tokens_predicted"] == 3
        assert end["id_slot"] in (0, 1)

    async def test_a_known_beginning_is_not_read_again(self, client: httpx.AsyncClient) -> None:
        body = {"prompt": "row " * 200, "n_predict": 1, "cache_prompt": True}
        first = (await client.post("/completion", json=body)).json()["timings"]
        again = (await client.post("/completion", json=body)).json()["timings"]
        assert first["cache_n"] < 10
        assert again["cache_n"] == first["prompt_n"] + first["cache_n"] - 1

    async def test_anthropics_messages(self, client: httpx.AsyncClient) -> None:
        """Whole and as a stream, with the tokens that a count says."""
        asked = {"messages": MESSAGES, "max_tokens": 4}
        told = (await client.post("/v1/messages", json=asked)).json()
        assert (told["type"], told["role"]) == ("message", "assistant")
        assert told["stop_reason"] in ENDS and told["stop_sequence"] is None
        [content] = told["content"]
        assert content["type"] == "text" and content["text"]
        counted = (await client.post("/v1/messages/count_tokens", json=asked)).json()
        usage = told["usage"]
        assert 1 <= usage["output_tokens"] <= 4
        read = usage["input_tokens"] + usage["cache_read_input_tokens"]
        assert abs(read - counted["input_tokens"]) <= 12  # the template's own
        streamed = named_events(
            (await client.post("/v1/messages", json=asked | {"stream": True})).text
        )
        assert list(dict.fromkeys(name for name, _ in streamed)) == [
            "message_start",
            "content_block_start",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop",
        ]
        assert all(event["type"] == name for name, event in streamed)
        begun, end = streamed[0][1]["message"], streamed[-2][1]
        assert begun["content"] == [] and begun["usage"]["output_tokens"] == 0
        assert end["delta"]["stop_reason"] in ENDS and 1 <= end["usage"]["output_tokens"] <= 4

    @pytest.mark.parametrize("given", ["row", [{"role": "user", "content": "row"}]])
    async def test_openais_responses(self, client: httpx.AsyncClient, given: object) -> None:
        """Whole and as a stream, whose last event holds the whole."""
        asked = {"input": given, "max_output_tokens": 4}
        told = (await client.post("/v1/responses", json=asked)).json()
        assert told["id"].startswith("resp_")
        assert (told["object"], told["status"]) == ("response", "completed")
        streamed = named_events(
            (await client.post("/v1/responses", json=asked | {"stream": True})).text
        )
        assert list(dict.fromkeys(name for name, _ in streamed)) == [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed",
        ]
        parts = [event["delta"] for name, event in streamed if name.endswith(".delta")]
        completed = streamed[-1][1]["response"]
        for whole in (told, completed):
            [item] = whole["output"]
            [content] = item["content"]
            assert (item["type"], item["role"]) == ("message", "assistant")
            assert content["type"] == "output_text" and content["annotations"] == []
            assert 1 <= whole["usage"]["output_tokens"] <= 4
        assert completed["output"][0]["content"][0]["text"] == "".join(parts)

    async def test_tokens_are_counted_and_made_text_again(self, client: httpx.AsyncClient) -> None:
        tokens = (await client.post("/tokenize", json={"content": "row"})).json()["tokens"]
        answer = await client.post("/detokenize", json={"tokens": tokens})
        assert answer.json() == {"content": "row"}
        for path in ("/v1/chat/completions/input_tokens", "/v1/responses/input_tokens"):
            asked = {"messages": MESSAGES} if "chat" in path else {"input": MESSAGES}
            counted = (await client.post(path, json=asked)).json()
            assert counted["object"] == "response.input_tokens" and counted["input_tokens"] > 0
        made = (await client.post("/apply-template", json={"messages": MESSAGES})).json()
        assert "row" in made["prompt"]

    @pytest.mark.parametrize(
        ("path", "body", "status"),
        [("/v1/chat/completions", "{}", 400), ("/completion", "{}", 400), ("/nowhere", "", 404)],
    )
    async def test_what_it_does_not_take_is_rejected_in_its_error_shape(
        self, client: httpx.AsyncClient, path: str, body: str, status: int
    ) -> None:
        answer = await client.post(path, content=body)
        assert answer.status_code == status
        assert answer.json()["error"]["code"] == status
        assert answer.json()["error"]["message"]

    async def test_what_was_not_switched_on_is_501(self, client: httpx.AsyncClient) -> None:
        answer = await client.get("/metrics")
        assert answer.status_code == 501
        assert answer.json()["error"]["type"] == "not_supported_error"


class TestWithOptionsLikeLlamaServer:
    async def test_metrics_say_how_many_requests_run_and_wait(
        self, kind: str, tmp_path: Path
    ) -> None:
        async with AsyncExitStack() as stack:
            _, client = await run(kind, tmp_path, stack, "--metrics")
            assert (await client.get("/props")).json()["endpoint_metrics"] is True
            for _ in range(2):
                await open_stream(client, stack)
            body = {"prompt": "third", "stream": True, **ENDLESS}
            third = asyncio.create_task(client.post("/completion", json=body))

            async def is_deferred() -> bool:
                return "requests_deferred 1\n" in (await client.get("/metrics")).text

            async with asyncio.timeout(PATIENCE_S):
                await until(is_deferred)
            text = (await client.get("/metrics")).text
            third.cancel()
            await asyncio.wait([third])
            assert "\nllamacpp:requests_processing 2\n" in text
            assert (
                "\n# TYPE llamacpp:requests_deferred gauge\nllamacpp:requests_deferred 1\n" in text
            )

    async def test_hidden_slots_are_501_and_props_say_so(self, kind: str, tmp_path: Path) -> None:
        async with AsyncExitStack() as stack:
            _, client = await run(kind, tmp_path, stack, "--no-slots")
            answer = await client.get("/slots")
            assert answer.status_code == 501
            assert answer.json()["error"]["type"] == "not_supported_error"
            props = (await client.get("/props")).json()
            assert props["endpoint_slots"] is False
            assert props["total_slots"] == 2

    async def test_a_key_is_asked_for_everywhere_but_at_health(
        self, kind: str, tmp_path: Path
    ) -> None:
        async with AsyncExitStack() as stack:
            _, client = await run(kind, tmp_path, stack, "--api-key", "oar")
            assert (await client.get("/health")).status_code == 200
            for path in ("/slots", "/props", "/v1/models"):
                rejected = await client.get(path)
                assert rejected.status_code == 401
                assert rejected.json()["error"]["type"] == "authentication_error"
                key = {"authorization": "Bearer oar"}
                assert (await client.get(path, headers=key)).status_code == 200

    async def test_embeddings_have_one_vector_an_input(self, kind: str, tmp_path: Path) -> None:
        given = () if kind == "simulator" else ("--embeddings", "--pooling", "mean")
        async with AsyncExitStack() as stack:
            _, client = await run(kind, tmp_path, stack, *given)
            body = {"input": ["row", "pull", "row"]}
            told = (await client.post("/v1/embeddings", json=body)).json()
            assert [entry["index"] for entry in told["data"]] == [0, 1, 2]
            one, two, three = (entry["embedding"] for entry in told["data"])
            assert one == pytest.approx(three, abs=1e-3) != two
            assert sum(value * value for value in one) == pytest.approx(1.0, abs=1e-3)
            assert told["usage"]["prompt_tokens"] > 0


def long_answer(number: int, *, streams: bool) -> dict[str, Any]:
    """A request that fits alone and, with three others, not at all; unlike the others. The most
    likely token is never the last: Anthropic's API has no `ignore_eos`."""
    return {
        "temperature": 0,
        "messages": [{"role": "user", "content": f"{number} " + "row " * 15}],
        "max_tokens": 400,
        "ignore_eos": True,
        "stream": streams,
    }


LONG_ONES = (CHAT, False), (CHAT, False), (CHAT, True), ("/v1/messages", True)
"""By path, and whether it is streamed."""


class TestSharedContextLikeLlamaServer:
    """As in docs/decisions/0214-what-an-overflow-does.md."""

    async def test_each_slot_shows_the_whole_context(self, plain: httpx.AsyncClient) -> None:
        assert [slot["n_ctx"] for slot in await slots(plain)] == [SHARED_TOKENS] * 4
        props = (await plain.get("/props")).json()
        assert props["total_slots"] == 4
        assert props["default_generation_settings"]["n_ctx"] == SHARED_TOKENS

    async def test_an_overflow_ends_all_that_runs_and_nothing_else(
        self, plain: httpx.AsyncClient
    ) -> None:
        """Until each kind was seen: on a busy machine one may come after the others ended. The
        short one is sent while all four slots are busy, so that it does not run beside them."""
        recorded = json.loads((RECORDED / "overflow_500.json").read_text())
        last_event = (RECORDED / "overflow_stream_messages.txt").read_text().split("\n\n")[-2]
        short = {"messages": [{"role": "user", "content": "row"}], "max_tokens": 3}
        missing = {"whole", "chat", "message", "after"}
        async with asyncio.timeout(PATIENCE_S):
            while missing:
                running = [
                    asyncio.ensure_future(
                        plain.post(path, json=long_answer(number, streams=streams))
                    )
                    for number, (path, streams) in enumerate(LONG_ONES)
                ]
                while not any(one.done() for one in running):
                    if await busy(plain) == len(running):
                        assert (await plain.post(CHAT, json=short)).status_code == 200
                        missing.discard("after")
                        break
                whole, other, chat, message = await asyncio.gather(*running)
                for answer in (whole, other):
                    if answer.status_code != 200:
                        assert (answer.status_code, answer.json()) == (500, recorded)
                        missing.discard("whole")
                assert {chat.status_code, message.status_code} == {200}
                if events(chat.text)[-1] == recorded:
                    missing.discard("chat")
                if message.text.split("\n\n")[-2] == last_event:
                    missing.discard("message")
        assert [slot["is_processing"] for slot in await slots(plain)] == [False] * 4

    async def test_one_alone_ends_at_its_context(self, plain: httpx.AsyncClient) -> None:
        body = {"prompt": "row " * 20, "n_predict": 2_000, "ignore_eos": True}
        answer = await plain.post("/completion", json=body)
        assert answer.status_code == 200
        told = answer.json()
        assert told["stop_type"] == "limit"
        assert told["tokens_evaluated"] + told["tokens_predicted"] <= SHARED_TOKENS

    async def test_what_idle_slots_hold_is_given_up_first(self, plain: httpx.AsyncClient) -> None:
        for number in range(4):
            body = {"prompt": f"{number} " + "row " * 50, "n_predict": 5, "ignore_eos": True}
            assert (await plain.post("/completion", json=body)).status_code == 200
        assert sum(slot.get("n_prompt_tokens", 0) for slot in await slots(plain)) <= SHARED_TOKENS
        body = {"prompt": "pull " * 40, "n_predict": 150, "ignore_eos": True}
        assert (await plain.post("/completion", json=body)).status_code == 200

    async def test_answers_to_one_request_share_its_prompt(self, plain: httpx.AsyncClient) -> None:
        body = {
            "messages": [{"role": "user", "content": "row " * 50}],
            "max_tokens": 20,
            "ignore_eos": True,
            "n": 4,
        }
        answer = await plain.post("/v1/chat/completions", json=body)
        assert answer.status_code == 200
        assert len(answer.json()["choices"]) == 4


PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


@pytest.mark.llama
@pytest.mark.parametrize(
    ("flag", "path", "body", "request_"),
    [
        (
            "--embeddings",
            "/embedding",
            {"content": "row " * 300},
            Request(id="r", timeout_s=1.0, kind=Kind.EMBEDDING),
        ),
        (
            "--no-webui",
            CHAT,
            {"messages": [{"role": "user", "content": [PICTURE]}]},
            Request(id="r", timeout_s=1.0, traits=f"{CHAT} {MEDIA}"),
        ),
        ("--no-webui", "/v1/messages", {}, Request(id="r", timeout_s=1.0, path="/v1/messages")),
        ("--no-webui", CHAT, "{", Request(id="r", timeout_s=1.0, traits=f"{CHAT} {DAMAGED}")),
    ],
)
async def test_what_the_real_one_says_of_one_request_is_known(
    flag: str, path: str, body: object, request_: Request, tmp_path: Path
) -> None:
    """Started plainly; the picker sees the status, the type and the length."""
    content = body if isinstance(body, str) else json.dumps(body)
    async with AsyncExitStack() as stack:
        _, client = await run("llama-server", tmp_path, stack, flag, shared_tokens=SHARED_TOKENS)
        answer = await client.post(
            path, content=content, headers={"content-type": "application/json"}
        )
    message = envoy_messages.response_headers(
        str(answer.status_code),
        content_type=answer.headers["content-type"],
        body_bytes=int(answer.headers["content-length"]),
    )
    assert answer.status_code == 500
    assert is_about_request(read_response_head(message), request_), answer.text
