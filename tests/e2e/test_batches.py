"""Batches over a real Envoy: nothing is lost or repeated, and nobody else waits for them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.docs.pages import page
from tests.e2e.batched import batching, lines
from tests.e2e.stack import CHAT, chat, until
from tests.e2e.test_clients_page import OPENAI, run, with_package

pytestmark = pytest.mark.e2e


async def test_every_line_once_though_all_are_killed(tmp_path: Path) -> None:
    """The process of batches and the picker, with lines on their way."""
    async with batching(tmp_path, kind="simulator", slots=(2, 2)) as batches:
        stack = batches.stack
        id_ = await batches.submit(lines(60, tokens=40))
        await batches.until_done(id_, 5)
        await stack.kill(batches.child)
        await batches.start()
        await batches.until_done(id_, 20)
        await stack.kill(stack.picker)
        await stack.restart_picker()
        batch = await batches.until_ended(id_)
        assert batch["status"] == "completed"
        assert batch["request_counts"] == {"total": 60, "completed": 60, "failed": 0}
        assert batch["error_file_id"] is None
        found = await batches.content(batch["output_file_id"])
        assert [one["custom_id"] for one in found] == [f"line-{number}" for number in range(60)]
        for one in found:
            assert one["response"]["status_code"] == 200
            assert one["response"]["body"]["usage"]["completion_tokens"] == 40


async def test_others_do_not_wait_for_lines(tmp_path: Path) -> None:
    """All slots have lines that take minutes; who comes is served, and the lines are sent again."""
    async with batching(tmp_path, kind="simulator", slots=(2,)) as batches:
        stack = batches.stack
        id_ = await batches.submit(lines(2, tokens=16_000))
        await stack.until(lambda status: status["slots"]["leased"] == 2)
        answers = [
            await stack.client.post(f"{batches.url}{CHAT}", json=chat(4, content=f"{number}"))
            for number in range(3)
        ]
        assert [answer.status_code for answer in answers] == [200, 200, 200]
        await stack.until(lambda status: status["slots"]["leased"] == 2)
        batch = await batches.batch(id_)
        assert batch["request_counts"] == {"total": 2, "completed": 0, "failed": 0}
        ended = await stack.client.post(f"{batches.url}/v1/batches/{id_}/cancel")
        assert ended.json()["status"] == "cancelled"
        await stack.until(lambda status: status["slots"]["leased"] == 0)
        assert (await stack.client.get(f"{batches.url}/v1/batches?x=1")).status_code == 200
        other = await stack.client.get(f"{batches.url}/v1/batches/{id_}/more/parts")
        assert other.json()["error"]["code"] == "unknown-path"


@pytest.mark.llama
async def test_lines_are_answered_by_a_real_server(tmp_path: Path, llama: None) -> None:
    """With keys: another client sees nothing, lines are bound by what the key may that submitted
    them, and end with it."""
    keys = tmp_path / "keys"
    keys.write_text("ann key-of-ann\nbob key-of-bob\ncyd key-of-cyd\nbatches key-of-batches\n")
    own = tmp_path / "own.key"
    own.write_text("key-of-batches\n")
    options = ["--keys-file", str(keys), "--api-key-file", str(own)]
    options += ["--client", "ann", "--client", "bob", "--client", "cyd"]
    limits = {"bob": {"models": ["other"]}, "cyd": {"budgets": {"daily": {"tokens": 1}}}}
    clients = {"keys_file": str(keys), "batches": "batches", "limits": limits}
    settings = {"clients": clients, "usage": {"path": str(tmp_path / "usage.db")}}
    async with batching(
        tmp_path, options=options, settings=settings, slots=(2,), key="key-of-ann"
    ) as batches:
        id_ = await batches.submit(lines(6))
        batch = await batches.until_ended(id_)
        assert batch["request_counts"] == {"total": 6, "completed": 6, "failed": 0}
        found = await batches.content(batch["output_file_id"])
        assert [one["custom_id"] for one in found] == [f"line-{number}" for number in range(6)]
        assert all(one["response"]["body"]["usage"]["completion_tokens"] == 8 for one in found)
        for key, status in (
            ("key-of-bob", 404),
            ("key-of-batches", 401),
            ("key-of-nobody", 401),
        ):
            headers = {"authorization": f"Bearer {key}"}
            for path in (f"batches/{id_}", f"files/{batch['output_file_id']}/content"):
                other = await batches.client.get(f"{batches.url}/v1/{path}", headers=headers)
                assert other.status_code == status
        batches.client.headers["authorization"] = "Bearer key-of-bob"
        named = lines(2).replace(b'"body": {', b'"body": {"model": "none", ')
        batch = await batches.until_ended(await batches.submit(named))
        assert batch["request_counts"] == {"total": 2, "completed": 0, "failed": 2}
        for one in await batches.content(batch["error_file_id"]):
            assert one["response"]["status_code"] == 404
            assert one["response"]["body"]["error"]["code"] == "model_not_found"
        batches.client.headers["authorization"] = "Bearer key-of-cyd"
        batch = await batches.until_ended(await batches.submit(lines(3)))
        assert batch["request_counts"] == {"total": 3, "completed": 1, "failed": 2}
        for one in await batches.content(batch["error_file_id"]):
            assert one["response"]["status_code"] == 429
            assert one["response"]["body"]["error"]["code"] == "insufficient_quota"
        batches.client.headers["authorization"] = "Bearer key-of-ann"
        id_ = await batches.submit(lines(6, tokens=8_000))
        await batches.stack.until(lambda status: status["slots"]["leased"] == 2)
        keys.write_text("ann new-key-of-ann\nbatches key-of-batches\n")
        batches.client.headers["authorization"] = "Bearer new-key-of-ann"

        async def is_known() -> bool:
            return (await batches.client.get(f"{batches.url}/v1/batches")).status_code == 200

        await until(is_known)
        batch = await batches.until_ended(id_)
        assert batch["status"] == "failed"
        assert batch["errors"]["data"][0]["code"] == "invalid_api_key"
        await batches.stack.until(lambda status: status["slots"]["leased"] == 0)


async def test_the_key_and_the_token_of_the_process_are_rotated_while_it_runs(
    tmp_path: Path,
) -> None:
    """As its files say; the old ones open nothing any more."""
    keys, own, token = tmp_path / "keys", tmp_path / "own.key", tmp_path / "token"
    keys.write_text("ann key-of-ann\nbatches key-of-batches\n")
    own.write_text("key-of-batches\n")
    token.write_text("first-token\n")
    options = ["--keys-file", str(keys), "--api-key-file", str(own), "--token-file", str(token)]
    settings = {
        "clients": {"keys_file": str(keys), "batches": "batches"},
        "admin": {"token_file": str(token)},
    }
    async with batching(
        tmp_path,
        options=options,
        settings=settings,
        kind="simulator",
        slots=(2,),
        key="key-of-ann",
    ) as batches:
        await batches.until_ended(await batches.submit(lines(1)))
        keys.write_text("ann key-of-ann\nbatches key-of-batches\nbatches new-key\n")
        own.write_text("new-key\n")
        token.write_text("second-token\n")
        child = batches.child
        assert child is not None

        async def is_renewed() -> bool:
            return child.log.read_text().count("what it holds now is sent") == 2

        await until(is_renewed)
        keys.write_text("ann key-of-ann\nbatches new-key\n")

        async def is_revoked() -> bool:
            headers = {"authorization": "Bearer key-of-batches"}
            answer = await batches.client.post(
                f"{batches.url}{CHAT}", json=chat(1), headers=headers
            )
            return answer.status_code == 401

        await until(is_revoked)
        await batches.stack.kill(batches.stack.picker)
        await batches.stack.restart_picker()
        batch = await batches.until_ended(await batches.submit(lines(4)))
        assert batch["request_counts"] == {"total": 4, "completed": 4, "failed": 0}


@pytest.mark.timeout(600)
async def test_openais_sdk(tmp_path: Path) -> None:
    """As docs/batches.md prints it."""
    text = page("docs/batches.md").text.partition("\n```python\n")[2].partition("\n```")[0]
    async with batching(tmp_path, kind="simulator", slots=(2,)) as batches:
        code = text.replace("http://127.0.0.1:10000", batches.url)
        out = await run(*await with_package(OPENAI, "python", "-c", code))
    status, _, result = out.partition(" ")
    assert status == "completed"
    assert json.loads(result)["custom_id"] == "a-1"
